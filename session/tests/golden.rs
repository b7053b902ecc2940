//! The bytes of every request, answer and error of the session protocol: a line of a table is an
//! operation's number, its arguments and its answer. The tables were made from the rules of
//! postcard 1, not by this code: what differs from them is another version of the messages.

use meta::{
    AttributeChange, Attributes, BulkFile, BulkResult, ContentEdit, DeadStripe, Error, FileKind, KeyEntry, KeyPage,
    Listed, New, Removed, Rename, RenameMode, Resize, Result, SetRecord, SetTime, Time, Totals,
};
use plan::{Extent, ExtentPlace, Ino, Position, RecordOffset, SessionId, SetId, Span, StripeSeq, TargetId, TxId};
use serde::Serialize;
use session::port::{
    Entered, Entry, FileLock, Heartbeat, Held, Opening, PORT_NAMES, Port, Remote, SESSION_NAMES, Session, VERSION,
    Welcome, answer, answer_session,
};
use session::transport::Call;
use std::fmt::Debug;
use std::sync::Mutex;

fn hex(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "-".into();
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// That these lines are the table's. If not, all of them are shown.
#[track_caller]
fn is_table(expected: &str, lines: &[String]) {
    assert!(expected.lines().eq(lines), "the bytes have changed; they are now:\n{}\n", lines.join("\n"));
}

/// That the lines have every operation with these numbers.
#[track_caller]
fn has_all(lines: &[String], names: &[(u16, &str)]) {
    let covered = |number: u16| lines.iter().any(|line| line.starts_with(&format!("{number} ")));
    names.iter().for_each(|(number, name)| assert!(covered(*number), "{name} has no line"));
}

/// Gives one answer to every request, and notes the requests.
#[derive(Default)]
struct Canned {
    answer: Mutex<Vec<u8>>,
    asked: Mutex<Vec<(u16, Vec<u8>)>>,
}

impl Call for Canned {
    fn call(&self, operation: u16, arguments: &[u8]) -> Result<Vec<u8>> {
        self.asked.lock().unwrap().push((operation, arguments.to_vec()));
        Ok(self.answer.lock().unwrap().clone())
    }
}

/// Sends a request that gets this answer, then carries out the same bytes as a server. Returns the
/// line of the table: the number, the request and the answer.
fn exchanged<T: Serialize + PartialEq + Debug>(result: &T, ask: impl FnOnce(&Remote<Canned>) -> Result<T>) -> String {
    let port = Remote(Canned::default());
    *port.0.answer.lock().unwrap() = postcard::to_stdvec(&Ok::<_, Error>(result)).unwrap();
    assert_eq!(ask(&port).as_ref(), Ok(result));
    let (operation, request) = port.0.asked.lock().unwrap().pop().unwrap();
    let served = answer(&port, operation, &request).or_else(|| answer_session(&port, operation, &request));
    assert_eq!(served.as_ref(), Some(&*port.0.answer.lock().unwrap()), "operation {operation}");
    assert_eq!(port.0.asked.lock().unwrap().pop(), Some((operation, request.clone())));
    format!("{operation} {} {}", hex(&request), hex(&served.unwrap()))
}

fn time(seconds: i64) -> Time {
    Time { seconds, nanoseconds: 300 }
}

fn attributes() -> Attributes {
    Attributes {
        ino: Ino(1000),
        kind: FileKind::File,
        mode: 0o644,
        links: 2,
        uid: 1001,
        gid: 101,
        device: 7,
        size: 8192,
        allocated: 4096,
        accessed: time(1),
        modified: time(-2),
        changed: time(3),
        created: time(4),
    }
}

fn extents() -> Vec<Extent> {
    let span = Span { set: SetId(70_000), record: RecordOffset(16), block: 65_536, start: 128 };
    vec![
        Extent { offset: 0, length: 300, place: ExtentPlace::Stripe(span) },
        Extent { offset: 300, length: 3, place: ExtentPlace::Bytes(b"abc"[..].into()) },
        Extent { offset: 4096, length: 4096, place: ExtentPlace::Zero },
    ]
}

fn dead() -> Vec<DeadStripe> {
    vec![DeadStripe { set: SetId(300), record: RecordOffset(32), block: 4096 }]
}

fn edit(resize: Resize) -> ContentEdit {
    ContentEdit { ranges: vec![(0..8192, extents())], resize, modified: Some(time(5)) }
}

fn new(kind: FileKind) -> New {
    New { kind, mode: 0o600, uid: 1, gid: 2, device: 3, link: b"../x".to_vec() }
}

fn rename(mode: RenameMode) -> Rename {
    Rename {
        from: (Ino(1), b"old".to_vec()),
        to: (Ino(2), b"new".to_vec()),
        mode,
        replaced: Some(Ino(1000)),
        keep: true,
    }
}

fn removed(ino: Ino) -> Removed {
    Removed { ino, last: true, orphan: false, dead: dead(), seq: TxId(9) }
}

fn set() -> SetRecord {
    SetRecord { code: "rs:4+2".into(), places: vec![Some(TargetId(3)), None], sealed: true, length: 4096 }
}

fn lock(owner: u64) -> FileLock {
    FileLock { owner, first: 10, last: 300, exclusive: true, process: 4242 }
}

fn welcome() -> Welcome {
    Welcome {
        session: SessionId(7),
        secret: [0x5e; 16],
        fresh: true,
        lapsed: false,
        label: "{}".into(),
        first_stripe: StripeSeq(300),
        start: 4,
        lease_ms: 30_000,
        kept: vec![SetId(11), SetId(12)],
    }
}

#[test]
fn file_operations_have_fixed_bytes() {
    let whole = BulkFile {
        ino: Ino(1000),
        parent: Ino(1),
        name: b"whole".to_vec(),
        new: new(FileKind::File),
        size: 8192,
        accessed: time(1),
        modified: time(2),
        changed: time(3),
        extents: extents(),
        attributes: vec![(b"user.a".to_vec(), b"b".to_vec())],
    };
    let change = AttributeChange {
        mode: Some(0o700),
        uid: Some(1),
        gid: None,
        accessed: Some(SetTime::Now),
        modified: Some(SetTime::To(time(6))),
        changed: Some(time(7)),
        created: None,
    };
    let listed = Listed { cookie: 17, name: b"name".to_vec(), attributes: attributes() };
    let shown = (attributes(), TxId(9));
    let edits = [(Ino(1000), edit(Resize::To(300)))];
    let keyed = KeyEntry { name: b"b".to_vec(), attributes: attributes(), value: Some(b"ab".to_vec()) };
    let lines = [
        exchanged(&attributes(), |port| port.attributes(Ino(1000))),
        exchanged(&attributes(), |port| port.lookup(Ino(1), b"name")),
        exchanged(&Ino(1), |port| port.parent(Ino(1000))),
        exchanged(&(attributes(), Some(b"link".to_vec())), |port| port.describe(Ino(1000))),
        exchanged(&shown, |port| port.set_attributes(Ino(1000), change, time(8))),
        exchanged(&b"../x".to_vec(), |port| port.read_link(Ino(1000))),
        exchanged(&b"value".to_vec(), |port| port.attribute(Ino(1000), b"user.a")),
        exchanged(&vec![b"user.a".to_vec()], |port| port.attribute_names(Ino(1000))),
        exchanged(&TxId(9), |port| port.set_attribute(Ino(1000), b"user.a", b"value", Some(true), time(8))),
        exchanged(&TxId(10), |port| port.remove_attribute(Ino(1000), b"user.a", time(8))),
        exchanged(&shown, |port| port.make(Ino(1), b"name", &new(FileKind::Symlink), time(8))),
        exchanged(&shown, |port| port.link(Ino(1000), Ino(1), b"name", time(8))),
        exchanged(&removed(Ino(1000)), |port| port.unlink(Ino(1), b"name", Ino(1000), true, time(8))),
        exchanged(&removed(Ino(1001)), |port| port.remove_directory(Ino(1), b"name", Ino(1001), false, time(8))),
        exchanged(&(Some(removed(Ino(1002))), TxId(9)), |port| port.rename(&rename(RenameMode::Replace), time(8))),
        exchanged(&(None, TxId(10)), |port| port.rename(&rename(RenameMode::NoReplace), time(8))),
        exchanged(&(None, TxId(11)), |port| port.rename(&rename(RenameMode::Exchange), time(8))),
        exchanged(&vec![listed], |port| port.list(Ino(1), 16, 300)),
        exchanged(&extents(), |port| port.extents(Ino(1000), 0..8192)),
        exchanged(&(attributes(), dead(), TxId(9)), |port| {
            port.change_content(Ino(1000), &edit(Resize::AtLeast(8192)))
        }),
        exchanged(&(attributes(), dead(), TxId(10)), |port| port.change_content(Ino(1000), &edit(Resize::Keep))),
        exchanged(&(dead(), TxId(9)), |port| port.change_contents(&edits)),
        exchanged(&TxId(9), |port| port.share(&[(SetId(70_000), RecordOffset(16))], Ino(1000))),
        exchanged(&set(), |port| port.set(SetId(70_000))),
        exchanged(&TxId(9), |port| port.seal_set(SetId(70_000), 4096)),
        exchanged(&TxId(9), |port| port.queue_repair(SetId(70_000), &[Position(1), Position(300)])),
        exchanged(&Totals { files: 2, bytes: 300 }, Port::totals),
        exchanged(&(), |port| port.sync(TxId(300))),
        exchanged(&Ino(1000), |port| port.new_inos(300)),
        exchanged(&BulkResult { refused: vec![0, 300], seq: TxId(9) }, |port| {
            port.put_files(std::slice::from_ref(&whole))
        }),
        exchanged(&vec![Some(attributes()), None], |port| {
            port.lookups(&[(Ino(1), b"a".to_vec()), (Ino(2), b"b".to_vec())])
        }),
        exchanged(&(dead(), TxId(10)), |port| port.change_contents_durably(&edits)),
        exchanged(&(8192, extents()), |port| port.content(Ino(1000), 300..8192)),
        exchanged(&true, |port| port.has_privileges(Ino(1000))),
        exchanged(&Some(KeyPage { entries: vec![keyed], next: Some(b"c".to_vec()) }), |port| {
            port.list_by_key(Ino(1), b"a", 300, b"user.a")
        }),
    ];
    is_table(include_str!("golden/port.txt"), &lines);
    has_all(&lines, PORT_NAMES);
}

#[test]
fn session_operations_have_fixed_bytes() {
    let opening = Opening { number: 3, id: [0xab; 16] };
    let entry = Entry {
        session: Some(SessionId(7)),
        name: "client".into(),
        sets: vec![SetId(11), SetId(300)],
        opening,
        alone: true,
    };
    let entered = Entered { welcome: welcome(), opening, recovered: TxId(300) };
    let held = Held {
        open: vec![(Ino(1000), 2, 1)],
        dirty: vec![(Ino(1000), 5)],
        owed: vec![(Ino(1002), 6)],
        kept: vec![Ino(1001)],
        reserved: vec![(Ino(1000), 8192)],
        locks: vec![(Ino(1000), lock(5))],
    };
    let heartbeat = Heartbeat { total: 1 << 40, free: 1 << 30, generation: 4, others: 2, removed: 300 };
    let lines = [
        exchanged(&welcome(), |port| port.begin(Some(SessionId(7)), "client".into(), vec![SetId(11), SetId(300)])),
        exchanged(&heartbeat, Session::heartbeat),
        exchanged(&(), Session::end),
        exchanged(&vec![(SetId(70_000), set())], |port| port.new_sets(2, &[TargetId(3)], &[SetId(11), SetId(300)])),
        exchanged(&(), |port| port.release_sets(&[SetId(11), SetId(300)])),
        exchanged(&attributes(), |port| port.open(Ino(1000), 3)),
        exchanged(&(), |port| port.close(Ino(1000), 4)),
        exchanged(&(), |port| port.clean(&[(Ino(1000), 4), (Ino(1001), 300)])),
        exchanged(&8192, |port| port.reserve_append(Ino(1000), 300)),
        exchanged(&"{}".to_owned(), Session::label),
        exchanged(&true, |port| port.lock(Ino(1000), lock(6), true)),
        exchanged(&(), |port| port.unlock(Ino(1000), 6, 10, 300)),
        exchanged(&(), |port| port.reclaim_append(Ino(1000), 8192)),
        exchanged(&Some(lock(7)), |port| port.conflicting_lock(Ino(1000), lock(8))),
        exchanged(&(), Session::reclaim_complete),
        exchanged(&(), |port| port.recalled(Ino(1000), 4, 300)),
        exchanged(&(), |port| port.reclaim_open(Ino(1000), 5)),
        exchanged(&(300, vec![Ino(1000), Ino(1001)]), |port| port.removed(299, &[Ino(1002)], &[Ino(1003), Ino(1004)])),
        exchanged(&entered, |port| port.enter(VERSION, &entry)),
        exchanged(&vec![(Ino(1000), lock(9))], |port| port.reclaim(1, true, &held)),
        exchanged(&(), |port| port.unlock_owing(Ino(1000), 6, 10, 300, 7)),
        exchanged(&(), |port| port.dropped(&[Ino(1000), Ino(1001)])),
    ];
    is_table(include_str!("golden/session.txt"), &lines);
    has_all(&lines, SESSION_NAMES);
}

#[test]
fn errors_have_fixed_bytes() {
    let text = || "why".to_owned();
    let errors = [
        Error::NotFound,
        Error::Exists,
        Error::NotDirectory,
        Error::IsDirectory,
        Error::NotEmpty,
        Error::Invalid("why".into()),
        Error::NameTooLong,
        Error::TooManyLinks,
        Error::TooLarge,
        Error::NoAttribute,
        Error::NotPermitted,
        Error::NoSpace,
        Error::Unavailable(text()),
        Error::Corrupt(text()),
        Error::TooManyLocks,
        Error::Fenced(text()),
        Error::Held(text()),
        Error::TooFew(text()),
        Error::Superseded(vec![Ino(1000), Ino(300)]),
    ];
    let line = |error: &Error| {
        let encoded = postcard::to_stdvec(error).unwrap();
        assert_eq!(postcard::from_bytes::<Error>(&encoded).as_ref(), Ok(error));
        format!("{error:?} {}", hex(&encoded))
    };
    let lines: Vec<String> = errors.iter().map(line).collect();
    is_table(include_str!("golden/error.txt"), &lines);
}
