//! Modes and attributes: what xfstests `generic/355` and `generic/423` look at, in our own words,
//! since no package has xfstests. A file that another user changes is no longer set-user-ID, and
//! whatever is made says of itself what is so, in the order in which it was made.

use super::{Session, Verdict};
use rustix::fs::{AtFlags, CWD, FileType, Mode, Statx, StatxFlags, StatxTimestamp, lstat, makedev, mknodat, statx};
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs both checks.
pub fn run(session: &mut Session) {
    let set_ids = compare_set_ids(&session.reference, &session.directory);
    session.report("set-ids", set_ids.unwrap_or_else(Verdict::Skipped));
    let statx = try_statx(&session.reference, &session.directory);
    session.report("statx", statx.unwrap_or_else(Verdict::Skipped));
}

/// Any two users; nobody need have these numbers.
const OWNER: u32 = 60_355;
const ANOTHER: u32 = 60_356;
const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;
const SET_IDS: u32 = SET_USER | SET_GROUP;
const GROUP_EXECUTES: u32 = 0o010;

/// A program that changes a file of 8192 bytes, which is its last argument.
struct Change {
    name: &'static str,
    program: &'static str,
    arguments: &'static [&'static str],
}

const DD: [&str; 5] = ["if=/dev/zero", "bs=4096", "count=1", "conv=notrunc", "status=none"];
const CHANGES: [Change; 4] = [
    Change { name: "direct write", program: "dd", arguments: &[DD[0], DD[1], DD[2], DD[3], DD[4], "oflag=direct"] },
    Change { name: "write", program: "dd", arguments: &DD },
    Change { name: "truncation", program: "truncate", arguments: &["--size=100"] },
    Change { name: "allocation", program: "fallocate", arguments: &["--offset=8192", "--length=4096"] },
];

/// What was done to a file, and its modes before and after.
#[derive(Debug, PartialEq, Clone)]
struct Outcome {
    what: String,
    before: u32,
    after: u32,
}

fn compare_set_ids(reference: &Path, directory: &Path) -> Result<Verdict, String> {
    let local = set_ids(reference).map_err(|why| format!("fails locally too: {why}"))?;
    if let Some(kept) = difference(&local, &local) {
        return Err(format!("fails locally too: {kept}"));
    }
    Ok(match set_ids(directory) {
        Err(why) => Verdict::Failed(why),
        Ok(tested) => match difference(&local, &tested) {
            Some(why) => Verdict::Failed(why),
            None => Verdict::Ok(format!("{} changes", tested.len())),
        },
    })
}

/// The first change after which a mode is not as it must be: never set-user-ID, and otherwise as in
/// the local file system. The set-group-ID bit of a file that its group may not execute gives no
/// right, and may stay (docs/posix.md).
fn difference(local: &[Outcome], tested: &[Outcome]) -> Option<String> {
    if local.len() != tested.len() {
        return Some(format!("{} changes, not {}", tested.len(), local.len()));
    }
    let (local, tested) = local.iter().zip(tested).find(|(local, tested)| {
        let (before, after) = (tested.before, tested.after);
        let may_stay = if before & GROUP_EXECUTES == 0 { SET_GROUP } else { 0 };
        let same = local.before == before && local.after | may_stay == after | may_stay;
        !same || before & SET_IDS != SET_IDS || after & SET_USER != 0
    })?;
    let Outcome { what, before, after } = tested;
    Some(format!("{what}: {before:04o} became {after:04o}; locally {:04o} became {:04o}", local.before, local.after))
}

/// Changes set-user-ID and set-group-ID files in every way, as their owner and as another user.
fn set_ids(place: &Path) -> Result<Vec<Outcome>, String> {
    let folder = place.join("set-ids");
    let failed = |why: io::Error| format!("{}: {why}", folder.display());
    fs::create_dir(&folder).map_err(failed)?;
    let mut outcomes = Vec::new();
    for change in &CHANGES {
        for (user, name) in [(OWNER, "its owner"), (ANOTHER, "another user")] {
            for executable in [0o000, 0o100, 0o010, 0o110] {
                let what = format!("{} by {name}", change.name);
                let path = folder.join("file");
                let (before, after) = change_once(change, &path, user, SET_IDS | 0o666 | executable)
                    .map_err(|why| format!("{what}: {why}"))?;
                outcomes.push(Outcome { what, before, after });
            }
        }
    }
    fs::remove_dir_all(&folder).map_err(failed)?;
    Ok(outcomes)
}

/// The modes of a file before and after a user changed it.
fn change_once(change: &Change, path: &Path, user: u32, mode: u32) -> Result<(u32, u32), String> {
    let failed = |why: io::Error| format!("{}: {why}", path.display());
    fs::write(path, [1; 8192]).map_err(failed)?;
    // A change of owner takes the bits away, so the mode comes after it.
    chown(path, Some(OWNER), Some(OWNER)).map_err(failed)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(failed)?;
    let before = u32::from(look(path)?.stx_mode) & 0o7777;
    let mut command = Command::new(change.program);
    command.args(change.arguments);
    match change.program {
        "dd" => command.arg(format!("of={}", path.display())),
        _ => command.arg(path),
    };
    let output = command.uid(user).gid(user).stdin(Stdio::null()).output();
    let output = output.map_err(|why| format!("{}: {why}", change.program))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    let after = u32::from(look(path)?.stx_mode) & 0o7777;
    fs::remove_file(path).map_err(failed)?;
    Ok((before, after))
}

/// Clocks tick every few milliseconds, so times out of order show up in some rounds only.
const ROUNDS: usize = 40;

fn try_statx(reference: &Path, directory: &Path) -> Result<Verdict, String> {
    let rounds = |place: &Path| (0..ROUNDS).try_for_each(|round| objects(&place.join(format!("statx-{round}"))));
    rounds(reference).map_err(|why| format!("fails locally too: {why}"))?;
    Ok(match rounds(directory) {
        Ok(()) => Verdict::Ok(format!("{ROUNDS} rounds")),
        Err(why) => Verdict::Failed(why),
    })
}

/// Something to be made, and what statx must say of it.
struct Object {
    name: &'static str,
    kind: FileType,
    device: (u32, u32),
    size: Option<u64>,
}

const SIZE: u64 = 20_480;
const OBJECTS: [Object; 7] = [
    Object { name: "fifo", kind: FileType::Fifo, device: (0, 0), size: Some(0) },
    Object { name: "character device", kind: FileType::CharacterDevice, device: (1, 3), size: Some(0) },
    Object { name: "directory", kind: FileType::Directory, device: (0, 0), size: None },
    Object { name: "block device", kind: FileType::BlockDevice, device: (7, 123), size: Some(0) },
    Object { name: "file", kind: FileType::RegularFile, device: (0, 0), size: Some(SIZE) },
    Object { name: "symbolic link", kind: FileType::Symlink, device: (0, 0), size: Some(7) },
    Object { name: "socket", kind: FileType::Socket, device: (0, 0), size: Some(0) },
];

impl Object {
    fn make(&self, path: &Path) -> io::Result<()> {
        match self.kind {
            FileType::Directory => fs::DirBuilder::new().mode(0o700).create(path),
            FileType::Symlink => symlink("nowhere", path),
            FileType::RegularFile => {
                let mut file = fs::File::options().write(true).create_new(true).mode(0o600).open(path)?;
                io::Write::write_all(&mut file, &[1; SIZE as usize])
            }
            kind => {
                let (major, minor) = self.device;
                Ok(mknodat(CWD, path, kind, Mode::from_raw_mode(0o600), makedev(major, minor))?)
            }
        }
    }

    /// What is wrong with what statx says.
    fn check(&self, said: &Statx) -> Result<(), String> {
        let mode = u32::from(said.stx_mode);
        must(FileType::from_raw_mode(mode) == self.kind, || format!("its mode is {mode:06o}"))?;
        let permissions = match self.kind {
            FileType::Symlink => 0o777,
            FileType::Directory => 0o700,
            _ => 0o600,
        };
        must(mode & 0o7777 == permissions, || format!("its mode is {mode:06o}"))?;
        let device = (said.stx_rdev_major, said.stx_rdev_minor);
        must(device == self.device, || format!("its device is {device:?}"))?;
        must(self.size.is_none_or(|size| size == said.stx_size), || format!("its size is {}", said.stx_size))?;
        let links = said.stx_nlink;
        must(links == 1 || self.kind == FileType::Directory, || format!("it has {links} links"))?;
        let [access, modification, change] = times(said);
        let earliest = access.min(modification).min(change);
        not_earlier("birth", born(said), "the other times", Some(earliest))?;
        must(modification <= change, || format!("it was modified {modification:?}, after {change:?}"))
    }
}

/// Makes one of each kind, one after the other, and looks at each.
fn objects(folder: &Path) -> Result<(), String> {
    let failed = |why: io::Error| format!("{}: {why}", folder.display());
    fs::create_dir(folder).map_err(failed)?;
    let mut made: Vec<Statx> = Vec::new();
    for object in &OBJECTS {
        let in_words = |why: String| format!("{} {}: {why}", folder.display(), object.name);
        let path = folder.join(object.name);
        object.make(&path).map_err(|why| in_words(why.to_string()))?;
        let said = look(&path).map_err(in_words)?;
        object.check(&said).map_err(in_words)?;
        if let Some(before) = made.last() {
            in_order(before, &said).map_err(in_words)?;
        }
        made.push(said);
    }
    let link = folder.join("link");
    fs::hard_link(folder.join("file"), &link).map_err(failed)?;
    let [_, _, directory, _, file, _, socket] = &made[..] else { return Err("not all were made".into()) };
    linked(&look(&link)?, &look(&folder.join("file"))?, file, [directory, socket])
        .map_err(|why| format!("{} link: {why}", folder.display()))?;
    fs::remove_dir_all(folder).map_err(failed)
}

/// What is made later is not older.
fn in_order(before: &Statx, after: &Statx) -> Result<(), String> {
    not_earlier("birth of the one before", born(before), "its own", born(after))?;
    let ([_, modified_before, _], [_, modified, _]) = (times(before), times(after));
    must(modified_before <= modified, || format!("modified {modified:?}, the one before {modified_before:?}"))
}

/// A link is the file itself: born between the directory and the socket, changed after the socket
/// was made.
fn linked(link: &Statx, file: &Statx, first: &Statx, [directory, socket]: [&Statx; 2]) -> Result<(), String> {
    equal(&fields(link), &fields(file), "by the other name")?;
    must(link.stx_ino == first.stx_ino, || format!("its number is {}, it was {}", link.stx_ino, first.stx_ino))?;
    must(link.stx_nlink == 2, || format!("it has {} links", link.stx_nlink))?;
    let ([_, modified, changed], [_, modified_first, _]) = (times(link), times(first));
    must(modified == modified_first, || format!("modified {modified:?}, before it was linked {modified_first:?}"))?;
    must(born(link) == born(first), || format!("born {:?}, before it was linked {:?}", born(link), born(first)))?;
    not_earlier("birth of the directory", born(directory), "its own", born(link))?;
    not_earlier("birth", born(link), "that of the socket", born(socket))?;
    let [_, _, socket_changed] = times(socket);
    must(socket_changed <= changed, || format!("changed {changed:?}, before the socket, {socket_changed:?}"))
}

/// Compares times that a file system may not keep.
fn not_earlier(one: &str, first: Option<Moment>, other: &str, then: Option<Moment>) -> Result<(), String> {
    let wrong = first.zip(then).filter(|(first, then)| then < first);
    wrong.map_or(Ok(()), |(first, then)| Err(format!("{one}, {first:?}, is after {other}, {then:?}")))
}

/// What statx says of a file, after a look whether it says the same whatever it is allowed to have
/// cached, and whether stat agrees.
fn look(path: &Path) -> Result<Statx, String> {
    let failed = |why: rustix::io::Errno| format!("{}: {}", path.display(), io::Error::from(why));
    let all = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let ask = |how: AtFlags| statx(CWD, path, how | AtFlags::SYMLINK_NOFOLLOW, all).map_err(failed);
    let said = ask(AtFlags::empty())?;
    let basic = StatxFlags::BASIC_STATS.bits();
    must(said.stx_mask & basic == basic, || format!("statx leaves something out: {:x}", said.stx_mask))?;
    must(said.stx_attributes_mask.contains(said.stx_attributes), || {
        format!("attributes {:?} of {:?}", said.stx_attributes, said.stx_attributes_mask)
    })?;
    equal(&fields(&said), &fields(&ask(AtFlags::STATX_DONT_SYNC)?), "with AT_STATX_DONT_SYNC")?;
    equal(&fields(&said), &fields(&ask(AtFlags::STATX_FORCE_SYNC)?), "with AT_STATX_FORCE_SYNC")?;
    let stat = lstat(path).map_err(failed)?;
    let as_stat: Fields = [
        ("mode", u64::from(stat.st_mode)),
        ("links", stat.st_nlink as u64),
        ("owner", u64::from(stat.st_uid)),
        ("group", u64::from(stat.st_gid)),
        ("number", stat.st_ino),
        ("size", stat.st_size as u64),
        ("blocks", stat.st_blocks as u64),
        ("size of a block", stat.st_blksize as u64),
        ("device", stat.st_rdev),
        ("file system", stat.st_dev),
        ("access", stat.st_atime as u64),
        ("access, ns", stat.st_atime_nsec as u64),
        ("modification", stat.st_mtime as u64),
        ("modification, ns", stat.st_mtime_nsec as u64),
        ("change", stat.st_ctime as u64),
        ("change, ns", stat.st_ctime_nsec as u64),
    ];
    equal(&fields(&said), &as_stat, "with lstat")?;
    Ok(said)
}

/// What stat knows, too.
type Fields = [(&'static str, u64); 16];

fn fields(said: &Statx) -> Fields {
    [
        ("mode", u64::from(said.stx_mode)),
        ("links", u64::from(said.stx_nlink)),
        ("owner", u64::from(said.stx_uid)),
        ("group", u64::from(said.stx_gid)),
        ("number", said.stx_ino),
        ("size", said.stx_size),
        ("blocks", said.stx_blocks),
        ("size of a block", u64::from(said.stx_blksize)),
        ("device", makedev(said.stx_rdev_major, said.stx_rdev_minor)),
        ("file system", makedev(said.stx_dev_major, said.stx_dev_minor)),
        ("access", said.stx_atime.tv_sec as u64),
        ("access, ns", u64::from(said.stx_atime.tv_nsec)),
        ("modification", said.stx_mtime.tv_sec as u64),
        ("modification, ns", u64::from(said.stx_mtime.tv_nsec)),
        ("change", said.stx_ctime.tv_sec as u64),
        ("change, ns", u64::from(said.stx_ctime.tv_nsec)),
    ]
}

/// Seconds and nanoseconds.
type Moment = (i64, u32);

fn moment(time: StatxTimestamp) -> Moment {
    (time.tv_sec, time.tv_nsec)
}

/// Access, modification and change.
fn times(said: &Statx) -> [Moment; 3] {
    [said.stx_atime, said.stx_mtime, said.stx_ctime].map(moment)
}

/// None where the file system does not tell.
fn born(said: &Statx) -> Option<Moment> {
    (said.stx_mask & StatxFlags::BTIME.bits() != 0).then(|| moment(said.stx_btime))
}

fn equal(said: &Fields, other: &Fields, how: &str) -> Result<(), String> {
    let differs = said.iter().zip(other).find(|(said, other)| said != other);
    differs.map_or(Ok(()), |((what, said), (_, other))| Err(format!("{what} is {said}, and {other} {how}")))
}

fn must(so: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if so { Ok(()) } else { Err(why()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(before: u32, after: u32) -> Outcome {
        Outcome { what: "write".into(), before, after }
    }

    #[test]
    fn a_mode_must_lose_set_user_id_and_be_as_it_is_locally() {
        let local = [outcome(0o6666, 0o2666), outcome(0o6676, 0o676)];
        assert_eq!(difference(&local, &local), None);
        let kept = [local[0].clone(), outcome(0o6676, 0o2676)];
        assert_eq!(difference(&local, &[outcome(0o6666, 0o666), local[1].clone()]), None);
        assert!(
            difference(&local, &kept).is_some_and(|why| why.contains("6676 became 2676; locally 6676 became 0676"))
        );
        let wrong_everywhere = [outcome(0o6666, 0o4666)];
        assert!(difference(&wrong_everywhere, &wrong_everywhere).is_some());
        // Where a file never had the bits, nothing is seen.
        let never = [outcome(0o666, 0o666)];
        assert!(difference(&never, &never).is_some());
        assert!(difference(&local, &local[..1]).is_some());
    }

    #[test]
    fn what_statx_says_of_a_file_is_compared() {
        let folder = std::env::temp_dir().join(format!("weft-attributes-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let [older, newer] = ["older", "newer"].map(|name| folder.join(name));
        fs::write(&older, [0; SIZE as usize]).unwrap();
        fs::set_permissions(&older, fs::Permissions::from_mode(0o600)).unwrap();
        let first = look(&older).unwrap();
        let file = &OBJECTS[4];
        assert_eq!(file.check(&first), Ok(()));
        assert!(OBJECTS[0].check(&first).unwrap_err().contains("mode"));
        let other = Object { size: Some(1), ..Object { name: "file", kind: file.kind, device: (0, 0), size: None } };
        assert!(other.check(&first).unwrap_err().contains("size is 20480"));
        fs::write(&newer, "later").unwrap();
        let mut second = look(&newer).unwrap();
        assert_eq!(in_order(&first, &second), Ok(()));
        second.stx_mtime.tv_sec -= 10;
        assert!(in_order(&first, &second).unwrap_err().contains("modified"));
        fs::hard_link(&older, folder.join("link")).unwrap();
        let link = look(&folder.join("link")).unwrap();
        assert_eq!(linked(&link, &look(&older).unwrap(), &first, [&first, &first]), Ok(()));
        assert!(linked(&link, &first, &first, [&first, &first]).unwrap_err().contains("links is 2"));
        fs::remove_dir_all(&folder).unwrap();
    }
}
