//! Targets that fail while single files are written to them or read from them.

use crate::lab::Lab;
use plan::Position;
use std::sync::Arc;
use volume::Error;
use volume::object::ProblemKind;
use volume::target::{Faults, Faulty, Target};

const BYTES: usize = 3500;

fn data() -> Vec<u8> {
    (0..BYTES).map(|n| (n * 11 + (n >> 8) * 3) as u8).collect()
}

/// A decorator that gives these faults to the targets whose numbers are in `which`.
fn faulty(which: &[usize], faults: &Faults) -> impl FnMut(Arc<dyn Target>) -> Arc<dyn Target> {
    let mut number = 0;
    move |target| {
        let decorated = Faulty::new(target);
        if which.contains(&number) {
            decorated.set(faults.clone());
        }
        number += 1;
        Arc::new(decorated)
    }
}

fn dead() -> Faults {
    Faults { dead: true, ..Faults::default() }
}

#[test]
fn an_encoder_that_fails_leaves_nothing_and_names_the_fragment() {
    let full = Faults { full: true, ..Faults::default() };
    let unsynced = Faults { unsynced: true, ..Faults::default() };
    for (faults, says) in [(full, "no space is left there"), (unsynced, "cannot sync")] {
        let lab = Lab::new(3);
        lab.encode(&data(), false).unwrap();
        let mut decorate = faulty(&[1], &faults);
        let failed = lab.encode_on(&[7; BYTES], true, &mut decorate).unwrap_err().to_string();
        assert!(failed.contains(says) && failed.contains("disk1") && failed.contains("f.001.weft"), "{failed}");
        assert!(lab.decode("f").unwrap() == data());
        assert_eq!(lab.files().len(), 3, "{:?}", lab.files());
        lab.repair("f");
    }
    // A dead disk keeps what it has, without its final name.
    let lab = Lab::new(3);
    let failed = lab.encode_on(&data(), false, &mut faulty(&[1], &dead())).unwrap_err().to_string();
    assert!(failed.contains("cannot write") && failed.contains("disk1/f.001.weft"), "{failed}");
    assert!(matches!(lab.decode("f"), Err(Error::NotFound(_))));
    lab.encode(&data(), false).unwrap();
    assert_eq!(lab.files().len(), 3, "{:?}", lab.files());
}

#[test]
fn a_disk_that_fails_while_it_is_read_is_decoded_around_and_named() {
    let lab = Lab::new(3);
    lab.encode(&data(), false).unwrap();
    for disk in 0..2 {
        let object = lab.find("f").unwrap().decorated(faulty(&[disk], &dead()));
        let (found, problems) = lab.decode_object(object);
        assert!(found.unwrap() == data());
        let [problem] = &problems.listed[..] else { panic!("{problems:?}") };
        assert_eq!(
            (problem.kind, problem.position, problem.stripes),
            (ProblemKind::Unreadable, Some(Position::at(disk)), 4)
        );
    }
    // Parity that no one needs is not read.
    let object = lab.find("f").unwrap().decorated(faulty(&[2], &dead()));
    let (found, problems) = lab.decode_object(object);
    assert!(found.unwrap() == data() && problems.is_empty());
    let object = lab.find("f").unwrap().decorated(faulty(&[0, 2], &dead()));
    let failed = lab.decode_object(object).0.unwrap_err().to_string();
    assert!(failed.contains("1 block is there and 2 are needed"), "{failed}");
}

#[test]
fn bits_that_a_disk_flips_are_noticed() {
    let lab = Lab::new(3);
    lab.encode(&data(), false).unwrap();
    // The first record header, the first block, and one in the middle.
    for (at, kind) in [(4096 + 20, ProblemKind::Record), (4096 + 128 + 3, ProblemKind::Block)] {
        let object = lab.find("f").unwrap().decorated(|target| {
            let decorated = Faulty::new(target.clone());
            let files = target.list().unwrap().into_iter().map(|(file, _)| (file, at..at + 1)).collect::<Vec<_>>();
            let first = files
                .iter()
                .any(|(file, _)| matches!(file, volume::target::TargetFile::Chunk { position: Position(0), .. }));
            if first {
                decorated.set(Faults { flipped: files, ..Faults::default() });
            }
            Arc::new(decorated)
        });
        let (found, problems) = lab.decode_object(object);
        assert!(found.unwrap() == data());
        let [problem] = &problems.listed[..] else { panic!("{problems:?}") };
        assert_eq!((problem.kind, problem.position, problem.stripes), (kind, Some(Position(0)), 1));
    }
}
