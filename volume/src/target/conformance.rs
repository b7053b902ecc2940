//! The contract of every target as one function. Tests of a target call it.

use super::claim_conformance::{blank, claims};
use super::{Allocation, Claim, ClaimRequest, Durable, Epoch, Presence, ReadAt, ReadPart, Target, TargetFile, Wait};
use plan::{Position, SetId, TxId};
use std::io::{ErrorKind, IoSlice};
use std::time::Duration;

/// The whole content of a file.
fn content(target: &dyn Target, file: TargetFile) -> Vec<u8> {
    let mut bytes = vec![0xee; 1 << 20];
    let length = target.read_at(file, 0, &mut bytes).expect("the file is there");
    bytes.truncate(length);
    bytes
}

/// Runs every operation on an empty target and checks it against its description. The target has a
/// claim afterwards, which is released.
///
/// # Panics
/// If the target behaves differently.
pub fn conformance(target: &dyn Target) {
    // A target that was claimed before needs a claim for every change.
    let claimed = target.claim(&ClaimRequest::Read).expect("read the claim").claim;
    let own = claimed.map(|last| Claim { epoch: Epoch { number: last.epoch.number + 1, id: 1 }, ..last });
    if let Some(claim) = &own {
        let ask = ClaimRequest::Take { claim: claim.clone(), lease: Duration::from_secs(30), blank: 0 };
        target.claim(&ask).expect("claim");
    }
    let file = TargetFile::Chunk { set: SetId(0x1234_5678_9abc_def0), position: Position(255) };
    missing_files(target, file);
    // The parts follow each other; gaps between writes read as zeroes.
    target
        .write(file, 10, &[IoSlice::new(b"he"), IoSlice::new(b""), IoSlice::new(b"llo")], Durable::Later)
        .expect("write");
    assert_eq!(content(target, file), b"\0\0\0\0\0\0\0\0\0\0hello");
    target.write(file, 12, &[IoSlice::new(b"LLO, world")], Durable::Later).expect("overwrite");
    assert_eq!(content(target, file)[10..], *b"heLLO, world");
    target.write(file, 100, &[IoSlice::new(&[7; 5000])], Durable::Later).expect("leave a gap");
    let other = TargetFile::Chunk { set: SetId(1), position: Position(0) };
    assert_eq!(target.look(&[other, file]).expect("look"), [Presence::Absent, Presence::There]);
    assert_eq!(content(target, file).len(), 5100);
    // Reads stop at the end of the file.
    let mut bytes = [0; 16];
    assert_eq!(target.read_at(file, 5090, &mut bytes).expect("read at the end"), 10);
    assert_eq!(target.read_at(file, 5100, &mut bytes).expect("read behind the end"), 0);
    assert_eq!(target.read_at(file, 1 << 40, &mut bytes).expect("read far behind the end"), 0);
    assert_eq!(target.read_at(file, 0, &mut []).expect("read nothing"), 0);
    if let Ok(length) = target.read_part(file, 10, &mut bytes, Wait::Never) {
        assert_eq!(&bytes[..length], &content(target, file)[10..10 + length]);
    }
    let (mut one, mut other) = ([0; 7], [0; 20]);
    let mut parts = [ReadPart::new(12, &mut one), ReadPart::new(5090, &mut other)];
    target.read(file, &mut parts, Wait::Always).expect("read two parts");
    assert_eq!(parts.map(|part| part.read), [7, 10]);
    assert_eq!((&one, &other[..10]), (b"LLO, wo", &[7; 10][..]));
    match target.read_part(file, 10, &mut bytes, Wait::Within(Duration::from_secs(60))) {
        Ok(length) => assert_eq!(&bytes[..length], &content(target, file)[10..10 + length]),
        Err(why) => assert_eq!(why.kind(), ErrorKind::Unsupported),
    }
    target.sync(file).expect("sync");
    target.sync(file).expect("sync again");
    let before = content(target, file);
    target.seal(file).expect("seal");
    assert_eq!(content(target, file), before, "a sealed file is as it was");
    reserved_space(target, file);
    names(target, file);
    let all: Vec<_> = target.list().expect("list").into_iter().map(|(file, _)| file).collect();
    all.into_iter().for_each(|file| target.remove(file).expect("remove"));
    assert_eq!(target.list().expect("list"), []);
    if let Some(claim) = own {
        target.claim(&ClaimRequest::Release(claim.epoch)).expect("release");
    } else {
        blank(target);
    }
    claims(target);
    assert_eq!(target.list().expect("list"), []);
}

fn missing_files(target: &dyn Target, file: TargetFile) {
    assert_eq!(target.list().expect("list"), [], "the target is empty");
    let missing =
        |result: std::io::Result<()>| result.expect_err("there is no such file").kind() == ErrorKind::NotFound;
    assert!(missing(target.read_at(file, 0, &mut [0; 9]).map(|_| ())));
    assert!(missing(target.read_at(file, 0, &mut []).map(|_| ())));
    assert!(target.read_part(file, 0, &mut [0; 9], Wait::Never).is_err());
    assert!(missing(target.sync(file).map(drop)));
    assert!(missing(target.allocate(file, Allocation::Punch(0..10))));
    assert!(missing(target.seal(file)));
    assert!(missing(target.rename(file, TargetFile::Label)));
    target.remove(file).expect("removing nothing is no error");
    assert_eq!(target.list().expect("list"), [], "nothing of that made a file");
}

fn reserved_space(target: &dyn Target, file: TargetFile) {
    let space = target.space().expect("space");
    assert!(space.free <= space.total && space.total > 0);
    let before = content(target, file);
    target.allocate(file, Allocation::Reserve(1 << 16)).expect("reserve");
    assert_eq!(content(target, file), before, "space set aside is not length");
    target.allocate(file, Allocation::Punch(4096..5000)).expect("punch");
    let after = content(target, file);
    assert_eq!((after.len(), &after[..4096], &after[5000..]), (before.len(), &before[..4096], &before[5000..]));
    assert!(after[4096..5000].iter().all(|&byte| byte == 0) || after == before, "zeroes or as it was");
    target.allocate(file, Allocation::Punch(1 << 20..1 << 21)).expect("punch behind the end");
    assert_eq!(content(target, file).len(), before.len(), "a hole is not length");
}

fn names(target: &dyn Target, file: TargetFile) {
    let files = [
        TargetFile::Label,
        TargetFile::NewLabel,
        TargetFile::Chunk { set: SetId(0), position: Position(0) },
        TargetFile::NewChunk { set: SetId(0), position: Position(0) },
        TargetFile::Chunk { set: SetId::MAX, position: Position(7) },
        TargetFile::Journal { first: TxId(0) },
        TargetFile::Journal { first: TxId(u64::MAX) },
        TargetFile::Snapshot { last: TxId(9) },
    ];
    for (number, &name) in files.iter().enumerate() {
        target.write(name, 0, &[IoSlice::new(&vec![number as u8; number + 1])], Durable::Later).expect("write");
    }
    let mut expected: Vec<_> = files.iter().enumerate().map(|(number, &name)| (name, number as u64 + 1)).collect();
    expected.push((file, 5100));
    expected.sort_unstable();
    let sorted = |found: std::io::Result<Vec<(TargetFile, u64)>>| {
        let mut found = found.expect("list");
        found.sort_unstable();
        found
    };
    assert_eq!(sorted(target.list()), expected);
    expected.retain(|(file, _)| file.is_metadata());
    assert_eq!(sorted(target.list_metadata()), expected);
    // A rename replaces the old file, also for a reader that read the old one before.
    let (new, old) = (TargetFile::NewLabel, TargetFile::Label);
    assert_eq!(content(target, old), [0]);
    target.sync(new).expect("sync");
    target.rename(new, old).expect("rename");
    assert_eq!(content(target, old), [1, 1]);
    assert_eq!(target.read_at(new, 0, &mut [0; 9]).expect_err("it has another name").kind(), ErrorKind::NotFound);
    // A removed file is gone, and a file created under its name is a new one.
    target.remove(old).expect("remove");
    assert_eq!(target.read_at(old, 0, &mut [0; 9]).expect_err("it was removed").kind(), ErrorKind::NotFound);
    target.write(old, 1, &[IoSlice::new(b"x")], Durable::Later).expect("write");
    assert_eq!(content(target, old), b"\0x");
}

#[cfg(test)]
mod tests {
    use super::super::{Crash, Disk, Faulty, Memory, Traced};
    use super::*;
    use crate::Error;
    use std::path::PathBuf;
    use std::sync::Arc;

    /// A directory that is removed at the end.
    struct Temporary(PathBuf);

    impl Temporary {
        fn new() -> Self {
            Self(std::env::temp_dir().join(format!("weft-disk-{:016x}", fastrand::u64(..))))
        }
    }

    impl Drop for Temporary {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    const FILE: TargetFile = TargetFile::Chunk { set: SetId(5), position: Position(1) };

    #[test]
    fn memory() {
        conformance(&Memory::default());
    }

    #[test]
    fn decorators() {
        let memory = || Arc::new(Memory::default());
        conformance(&Faulty::new(memory()));
        conformance(&Crash::new(memory()));
        let traced = Traced::new(memory());
        conformance(&traced);
        assert!(traced.trace().write.operations > 5 && traced.trace().read.bytes > 5000);
        conformance(&Traced::new(Arc::new(Faulty::new(Arc::new(Crash::new(memory()))))));
    }

    #[test]
    fn disk() {
        let place = Temporary::new();
        conformance(&Disk::format(&place.0).unwrap());
        let disk = Disk::open(&place.0).unwrap();
        disk.lock().unwrap();
        conformance(&disk);
        // Files that do not belong to Weft are left alone.
        std::fs::write(place.0.join("chunks/00/notes.txt"), "x").unwrap();
        std::fs::write(place.0.join("chunks/01/0000000000000000.000.chunk"), "x").unwrap();
        assert_eq!(disk.list().unwrap(), []);
    }

    #[test]
    fn a_directory_that_has_something_is_not_formatted() {
        let place = Temporary::new();
        let disk = Disk::format(&place.0).unwrap();
        disk.write(TargetFile::Label, 0, &[IoSlice::new(b"label")], Durable::Later).unwrap();
        let refused = Disk::format(&place.0).unwrap_err();
        assert!(
            matches!(&refused, Error::Conflict { what, .. } if what.contains("target of a volume already")),
            "{refused}"
        );
        let other = Temporary::new();
        std::fs::create_dir_all(other.0.join("lost+found")).unwrap();
        std::fs::write(other.0.join("letter.txt"), "x").unwrap();
        assert!(matches!(Disk::format(&other.0), Err(Error::Conflict { .. })));
        std::fs::remove_file(other.0.join("letter.txt")).unwrap();
        Disk::format(&other.0).unwrap();
    }

    #[test]
    fn one_at_a_time_has_the_lock() {
        let place = Temporary::new();
        let disk = Disk::format(&place.0).unwrap();
        disk.lock().unwrap();
        let other = Disk::open(&place.0).unwrap();
        assert!(matches!(other.lock(), Err(Error::Conflict { .. })));
        drop(disk);
        other.lock().unwrap();
    }

    #[test]
    fn a_directory_that_goes_away_is_noticed() {
        let place = Temporary::new();
        let disk = Disk::format(&place.0).unwrap();
        disk.write(FILE, 0, &[IoSlice::new(b"before")], Durable::Later).unwrap();
        disk.sync(FILE).unwrap();
        std::fs::remove_dir_all(&place.0).unwrap();
        assert!(disk.space().is_err());
        // An open file accepts writes, but its sync fails.
        let _ = disk.write(FILE, 6, &[IoSlice::new(b"after")], Durable::Later);
        assert!(disk.sync(FILE).is_err());
        assert!(disk.sync(FILE).is_err());
        assert!(disk.write(TargetFile::Label, 0, &[IoSlice::new(b"x")], Durable::Later).is_err());
        // Another directory of that name is not used, either.
        Disk::format(&place.0).unwrap();
        assert!(disk.space().is_err());
        assert!(disk.write(TargetFile::Label, 0, &[IoSlice::new(b"x")], Durable::Later).is_err());
        assert_eq!(Disk::open(&place.0).unwrap().list().unwrap(), []);
    }

    #[test]
    fn more_files_than_are_kept_open() {
        let place = Temporary::new();
        let disk = Disk::format(&place.0).unwrap();
        let file = |set: SetId| TargetFile::Chunk { set, position: Position(0) };
        for set in (0..1300).map(SetId) {
            disk.write(file(set), 0, &[IoSlice::new(&set.0.to_le_bytes())], Durable::Later).unwrap();
        }
        for set in (0..1300).map(SetId) {
            assert_eq!(content(&disk, file(set)), set.0.to_le_bytes());
        }
        disk.sync(file(SetId(0))).unwrap();
        let open = std::fs::read_dir("/proc/self/fd").unwrap();
        let ours = open.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok()).filter(|to| to.starts_with(&place.0));
        assert!(ours.count() < 600);
    }
}
