//! Disks that are there, and cannot be read to the end.

use super::*;
use volume::target::ReadAt;

/// The length of the head of a segment or snapshot, in bytes.
const HEAD: u64 = 176;

/// Disks 0 to 2 of a volume that may lose one. Disk 0 alone has transaction 1, which was durable:
/// disk 1 had it, and was lost.
fn disks_of_which_one_has_all() -> Disks {
    let disks = Disks::new(3);
    let seen = disks.see();
    let kv = Journaled::create(named("a", &seen, 1)).unwrap();
    add_durably(&kv, 0).unwrap();
    seen.cut(2, true);
    add_durably(&kv, 1).unwrap();
    seen.cut_all();
    drop(kv);
    disks.0[1].lose();
    disks
}

/// Makes files of a disk unreadable behind their heads.
fn harm(disk: &Faulty, which: impl Fn(&TargetFile) -> bool) {
    let files = disk.list().unwrap().into_iter().map(|(file, _)| file).filter(which);
    disk.set(Faults { unreadable: files.map(|file| (file, HEAD..u64::MAX)).collect(), ..Faults::default() });
}

/// A read that fails is no end of a journal. `cargo xtask simulate --failovers 1 --seed 41750`
/// found it: the store did not answer for a moment.
#[test]
fn a_journal_that_cannot_be_read_may_have_more() {
    let disks = disks_of_which_one_has_all();
    for access in [Access::Read, Access::Write] {
        let seen = disks.see();
        harm(&seen.0[0], |file| matches!(file, TargetFile::Journal { .. }));
        let opened = Journaled::open(Options { access, ..named("b", &seen, 1) });
        let Err(KvError::TooFew(why)) = &opened else { panic!("{access:?}: {opened:?}") };
        assert!(why.starts_with("1 of 3 targets") && why.contains("target 0: "), "{why}");
    }
    let kv = Journaled::open(named("c", &disks.see(), 1)).unwrap();
    assert_eq!(numbers(&kv), [0, 1].into());
}

/// A snapshot whose end cannot be read is not an incomplete one.
#[test]
fn a_snapshot_that_cannot_be_read_stays() {
    let disks = Disks::new(3);
    let kv = Journaled::create(named("a", &disks.see(), 1)).unwrap();
    (0..20).for_each(|n| add_durably(&kv, n).unwrap());
    kv.checkpoint().unwrap();
    kv.close().unwrap();
    drop(kv);
    let snapshots = |disk: &Memory| {
        let mut files: Vec<TargetFile> = disk.list().unwrap().into_iter().map(|(file, _)| file).collect();
        files.retain(|file| matches!(file, TargetFile::Snapshot { .. }));
        files
    };
    let before = snapshots(&disks.0[0]);
    assert!(!before.is_empty());
    for harmed in [&[0, 1, 2][..], &[0]] {
        let seen = disks.see();
        harmed.iter().for_each(|&number| harm(&seen.0[number], |file| matches!(file, TargetFile::Snapshot { .. })));
        match Journaled::open(named("b", &seen, 1)) {
            Ok(kv) => assert!(harmed.len() == 1 && numbers(&kv) == (0..20).collect(), "{harmed:?}"),
            Err(error) => assert!(harmed.len() == 3 && matches!(error, KvError::TooFew(_)), "{harmed:?}: {error:?}"),
        }
        assert_eq!(snapshots(&disks.0[0]), before, "{harmed:?}");
    }
    let kv = Journaled::open(named("c", &disks.see(), 1)).unwrap();
    assert_eq!(numbers(&kv), (0..20).collect());
}

/// The holder before this one removes a snapshot that it no longer needs, while this one opens.
#[test]
fn a_superfluous_snapshot_that_disappears_in_an_opening_does_no_harm() {
    let snapshot = |disk: &Memory| {
        let mut files = disk.list().unwrap().into_iter().map(|(file, _)| file);
        files.find(|file| matches!(file, TargetFile::Snapshot { .. })).unwrap()
    };
    for after in 0..8 {
        let disks = Disks::new(3);
        let seen = disks.see();
        let kv = Journaled::create(named("a", &seen, 1)).unwrap();
        let more = |number| {
            add_durably(&kv, number).unwrap();
            kv.checkpoint().unwrap();
            snapshot(&disks.0[0])
        };
        let old = more(0);
        let mut bytes = vec![0; disks.0[0].list().unwrap().iter().find(|(file, _)| *file == old).unwrap().1 as usize];
        disks.0[0].read_at(old, 0, &mut bytes).unwrap();
        assert_ne!(more(1), old);
        seen.0[0].write(old, 0, &[IoSlice::new(&bytes)], Durable::Now).unwrap();
        kv.close().unwrap();
        drop(kv);
        let seen = disks.see();
        seen.cut(2, true);
        seen.0[0].set(Faults { removed_after: Some((old, after)), ..Faults::default() });
        let opened = Journaled::open(named("b", &seen, 1));
        assert_eq!(numbers(&opened.unwrap_or_else(|error| panic!("{after}: {error}"))), [0, 1].into());
    }
}
