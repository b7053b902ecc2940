//! Requests of a client to a metadata server whose arguments can all be decoded, but are what no
//! correct client sends: names of other lengths, extents that overlap or have no end, chunk sets
//! and files of others, numbers at the limits. All go to one volume, in one session.
#![no_main]

mod server;

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use meta::{
    AttributeChange, BulkFile, ContentEdit, FileKind, MAX_SIZE, New, ROOT, Rename, RenameMode, Resize, SetTime, Time,
};
use plan::{Extent, ExtentPlace, Ino, Position, RecordOffset, SessionId, SetId, Span, TargetId, TxId};
use server::Client;
use session::port::{Entry, FileLock, Held, Port, Remote, Session, VERSION};
use std::cell::RefCell;
use std::ops::Range;

/// Numbers of files, chunk sets and bytes that mean something, and those at limits.
const NUMBERS: [u64; 16] = [
    0,
    1,
    2,
    3,
    16,
    17,
    18,
    4096,
    65_536,
    3 << 20,
    u32::MAX as u64,
    1 << 32,
    MAX_SIZE - 1,
    MAX_SIZE,
    u64::MAX - 1,
    u64::MAX,
];

fn number(u: &mut Unstructured<'_>) -> Result<u64> {
    match u.int_in_range(0..=3)? {
        0 => u.arbitrary(),
        1 => u.int_in_range(1..=64),
        _ => Ok(*u.choose(&NUMBERS)?),
    }
}

/// The same as the number of a file.
fn ino(u: &mut Unstructured<'_>) -> Result<Ino> {
    number(u).map(Ino)
}

/// The same as a number of a field that has no more bits.
fn small<T: TryFrom<u64> + From<u8>>(u: &mut Unstructured<'_>) -> Result<T> {
    Ok(T::try_from(number(u)?).unwrap_or_else(|_| T::from(1)))
}

fn list<T>(u: &mut Unstructured<'_>, mut one: impl FnMut(&mut Unstructured<'_>) -> Result<T>) -> Result<Vec<T>> {
    (0..u.int_in_range(0..=4)?).map(|_| one(u)).collect()
}

fn maybe<T>(u: &mut Unstructured<'_>, one: impl FnOnce(&mut Unstructured<'_>) -> Result<T>) -> Result<Option<T>> {
    if u.arbitrary()? { one(u).map(Some) } else { Ok(None) }
}

fn name(u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    Ok(match u.int_in_range(0..=7)? {
        0 => vec![b'x'; u.int_in_range(0..=300)?],
        1 => u.choose(&[&b""[..], b".", b"..", b"a/b", b"a\0b", b"user.a", b"security.capability"])?.to_vec(),
        _ => vec![u.int_in_range(b'a'..=b'd')?],
    })
}

fn time(u: &mut Unstructured<'_>) -> Result<Time> {
    Ok(Time { seconds: u.arbitrary()?, nanoseconds: u.int_in_range(0..=1_000_000_000)? })
}

fn set(u: &mut Unstructured<'_>) -> Result<SetId> {
    number(u).map(SetId)
}

fn range(u: &mut Unstructured<'_>) -> Result<Range<u64>> {
    Ok(number(u)?..number(u)?)
}

fn extent(u: &mut Unstructured<'_>) -> Result<Extent> {
    let (offset, length) = (number(u)?, number(u)?);
    let place = match u.int_in_range(0..=2)? {
        0 => ExtentPlace::Zero,
        1 => ExtentPlace::Bytes(vec![7; u.int_in_range(0..=length.min(70_000) as usize + 1)?].into()),
        _ => ExtentPlace::Stripe(Span {
            set: set(u)?,
            record: RecordOffset(small(u)?),
            block: small(u)?,
            start: small(u)?,
        }),
    };
    Ok(Extent { offset, length, place })
}

fn edit(u: &mut Unstructured<'_>) -> Result<ContentEdit> {
    let ranges = list(u, |u| Ok((range(u)?, list(u, extent)?)))?;
    let resize = match u.int_in_range(0..=2)? {
        0 => Resize::Keep,
        1 => Resize::AtLeast(number(u)?),
        _ => Resize::To(number(u)?),
    };
    Ok(ContentEdit { ranges, resize, modified: maybe(u, time)? })
}

fn new(u: &mut Unstructured<'_>) -> Result<New> {
    let kinds = [FileKind::File, FileKind::Directory, FileKind::Symlink, FileKind::Socket, FileKind::BlockDevice];
    let kind = *u.choose(&kinds)?;
    Ok(New { kind, mode: small(u)?, uid: small(u)?, gid: small(u)?, device: small(u)?, link: name(u)? })
}

fn bulk_file(u: &mut Unstructured<'_>) -> Result<BulkFile> {
    Ok(BulkFile {
        ino: ino(u)?,
        parent: ino(u)?,
        name: name(u)?,
        new: new(u)?,
        size: number(u)?,
        accessed: time(u)?,
        modified: time(u)?,
        changed: time(u)?,
        extents: list(u, extent)?,
        attributes: list(u, |u| Ok((name(u)?, name(u)?)))?,
    })
}

fn set_time(u: &mut Unstructured<'_>) -> Result<SetTime> {
    Ok(if u.arbitrary()? { SetTime::Now } else { SetTime::To(time(u)?) })
}

fn change(u: &mut Unstructured<'_>) -> Result<AttributeChange> {
    Ok(AttributeChange {
        mode: maybe(u, small)?,
        uid: maybe(u, small)?,
        gid: maybe(u, small)?,
        accessed: maybe(u, set_time)?,
        modified: maybe(u, set_time)?,
        changed: maybe(u, time)?,
        created: maybe(u, time)?,
    })
}

fn rename(u: &mut Unstructured<'_>) -> Result<Rename> {
    let mode = *u.choose(&[RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange])?;
    let (from, to) = ((ino(u)?, name(u)?), (ino(u)?, name(u)?));
    Ok(Rename { from, to, mode, replaced: maybe(u, ino)?, keep: u.arbitrary()? })
}

fn lock(u: &mut Unstructured<'_>) -> Result<FileLock> {
    let (owner, first, last) = (u.int_in_range(0..=3)?, number(u)?, number(u)?);
    Ok(FileLock { owner, first, last, exclusive: u.arbitrary()?, process: u.arbitrary()? })
}

fn pair(u: &mut Unstructured<'_>) -> Result<(Ino, u64)> {
    Ok((ino(u)?, number(u)?))
}

fn held(u: &mut Unstructured<'_>) -> Result<Held> {
    Ok(Held {
        open: list(u, |u| Ok((ino(u)?, small(u)?, small(u)?)))?,
        dirty: list(u, pair)?,
        owed: list(u, pair)?,
        kept: list(u, ino)?,
        reserved: list(u, pair)?,
        locks: list(u, |u| Ok((ino(u)?, lock(u)?)))?,
    })
}

/// A call of an operation on names and content.
fn use_port(u: &mut Unstructured<'_>, port: &impl Port) -> Result<()> {
    match u.int_in_range(0..=30)? {
        0 => drop(port.attributes(ino(u)?)),
        1 => drop(port.lookup(ino(u)?, &name(u)?)),
        2 => drop(port.parent(ino(u)?)),
        3 => drop(port.describe(ino(u)?)),
        4 => drop(port.set_attributes(ino(u)?, change(u)?, time(u)?)),
        5 => drop(port.read_link(ino(u)?)),
        6 => drop(port.attribute(ino(u)?, &name(u)?)),
        7 => drop(port.attribute_names(ino(u)?)),
        8 => drop(port.set_attribute(ino(u)?, &name(u)?, &name(u)?, u.arbitrary()?, time(u)?)),
        9 => drop(port.remove_attribute(ino(u)?, &name(u)?, time(u)?)),
        10..=12 => drop(port.make(ROOT, &name(u)?, &new(u)?, time(u)?)),
        13 => drop(port.make(ino(u)?, &name(u)?, &new(u)?, time(u)?)),
        14 => drop(port.link(ino(u)?, ino(u)?, &name(u)?, time(u)?)),
        15 => drop(port.unlink(ino(u)?, &name(u)?, ino(u)?, u.arbitrary()?, time(u)?)),
        16 => drop(port.remove_directory(ino(u)?, &name(u)?, ino(u)?, u.arbitrary()?, time(u)?)),
        17 => drop(port.rename(&rename(u)?, time(u)?)),
        18 => drop(port.list(ino(u)?, number(u)?, small(u)?)),
        19 => drop(port.extents(ino(u)?, range(u)?)),
        20 => drop(port.change_content(ino(u)?, &edit(u)?)),
        21 => drop(port.change_contents(&list(u, |u| Ok((ino(u)?, edit(u)?)))?)),
        22 => drop(port.change_contents_durably(&list(u, |u| Ok((ino(u)?, edit(u)?)))?)),
        23 => drop(port.share(&list(u, |u| Ok((set(u)?, RecordOffset(small(u)?))))?, ino(u)?)),
        24 => drop(port.set(set(u)?)),
        25 => drop(port.seal_set(set(u)?, small(u)?)),
        26 => drop(port.queue_repair(set(u)?, &list(u, |u| small(u).map(Position))?)),
        27 => drop((port.totals(), port.sync(number(u).map(TxId)?), port.has_privileges(ino(u)?))),
        28 => drop(port.new_inos(small(u)?)),
        29 => drop(port.put_files(&list(u, bulk_file)?)),
        _ => drop((port.lookups(&list(u, |u| Ok((ino(u)?, name(u)?)))?), port.content(ino(u)?, range(u)?))),
    }
    Ok(())
}

/// A call of an operation of the session. It takes no lock that it would wait for, and enters no
/// session but `own`: a new one waits for the others.
fn use_session(u: &mut Unstructured<'_>, session: &impl Session, own: Option<SessionId>) -> Result<()> {
    match u.int_in_range(0..=21)? {
        0 => drop(session.heartbeat()),
        1 => drop(session.end()),
        2 => {
            let avoid = list(u, |u| Ok(TargetId(small(u)?)))?;
            drop(session.new_sets(u.int_in_range(0..=2)?, &avoid, &list(u, set)?));
        }
        3 => drop(session.release_sets(&list(u, set)?)),
        4..=6 => drop(session.open(ino(u)?, number(u)?)),
        7 => drop(session.close(ino(u)?, number(u)?)),
        8 => drop(session.clean(&list(u, pair)?)),
        9 => drop(session.reserve_append(ino(u)?, number(u)?)),
        10 => drop(session.label()),
        11 => drop(session.lock(ino(u)?, lock(u)?, false)),
        12 => drop(session.unlock(ino(u)?, u.int_in_range(0..=3)?, number(u)?, number(u)?)),
        13 => drop(session.conflicting_lock(ino(u)?, lock(u)?)),
        14 => drop(session.reclaim_append(ino(u)?, number(u)?)),
        15 => drop(session.reclaim_complete()),
        16 => drop(session.recalled(ino(u)?, number(u)?, number(u)?)),
        17 => drop(session.reclaim_open(ino(u)?, number(u)?)),
        18 => drop(session.removed(number(u)?, &list(u, ino)?, &list(u, ino)?)),
        19 => {
            let version = if u.arbitrary()? { VERSION } else { u.arbitrary()? };
            let entry = Entry { session: own, name: "fuzz".into(), sets: list(u, set)?, ..Entry::default() };
            drop(session.enter(version, &entry));
        }
        20 => drop(session.reclaim(small(u)?, u.arbitrary()?, &held(u)?)),
        _ => {
            drop(session.unlock_owing(ino(u)?, u.int_in_range(0..=3)?, number(u)?, number(u)?, number(u)?));
            drop(session.dropped(&list(u, ino)?));
        }
    }
    Ok(())
}

/// Inputs for one server: its volume grows, and later inputs take longer.
const INPUTS_PER_SERVER: u32 = 500;

thread_local! {
    static CLIENT: RefCell<(Client, u32)> = RefCell::new((Client::new(), 0));
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    CLIENT.with_borrow_mut(|(client, inputs)| {
        let u = &mut Unstructured::new(bytes);
        while !u.is_empty() {
            let remote = Remote(client.clone());
            let one = match u.arbitrary() {
                Ok(true) => use_port(u, &remote),
                _ => use_session(u, &remote, client.session),
            };
            if one.is_err() {
                break;
            }
            if !client.sessions.clients().iter().any(|(session, _)| Some(*session) == client.session) {
                *client = client.begin();
            }
        }
        client.check();
        *inputs += 1;
        if *inputs == INPUTS_PER_SERVER {
            (*client, *inputs) = (Client::new(), 0);
        }
    });
});
