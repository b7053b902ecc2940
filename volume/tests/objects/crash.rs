//! The process is killed, and power lost, before each change that it makes: what there was is
//! there, or the new file is, whole; and what is left over is no obstacle.

use crate::lab::Lab;
use crate::mortal::{Life, Mortal};
use std::sync::Arc;
use volume::Control;
use volume::object::repair;
use volume::target::{Crash, Target};

/// Changes of an encoder: the records of four stripes, the header, a sync and a rename for each of
/// three fragments.
const CHANGES: u64 = 3 * (4 + 3);

fn data(version: u8) -> Vec<u8> {
    (0..3500u32).map(|n| (n * 7 + (n >> 8) * 13) as u8 ^ version).collect()
}

/// The targets of a process that is killed after some changes, and of a machine whose power fails
/// then.
struct Doomed {
    life: Arc<Life>,
    disks: Vec<Arc<Crash>>,
}

impl Doomed {
    fn after(changes: u64) -> Self {
        Self { life: Life::of(changes), disks: Vec::new() }
    }

    fn decorate(&mut self, inner: Arc<dyn Target>) -> Arc<dyn Target> {
        let disk = Arc::new(Crash::new(inner));
        self.disks.push(disk.clone());
        Arc::new(Mortal { inner: disk, life: self.life.clone() })
    }

    /// Then nothing of the process is left, its locks neither.
    fn lose_power(self, seed: u64) {
        self.disks.iter().zip(0..).for_each(|(disk, number)| disk.crash(seed * 10 + number).unwrap());
    }
}

#[test]
fn a_new_file_is_whole_or_not_there() {
    let mut outcomes = [0, 0];
    for changes in 0..CHANGES {
        let lab = Lab::new(3);
        let mut doomed = Doomed::after(changes);
        lab.encode_on(&data(1), false, &mut |target| doomed.decorate(target)).unwrap_err();
        doomed.lose_power(changes);
        match lab.decode("f") {
            Ok(found) => {
                assert!(found == data(1), "after {changes}");
                lab.encode(&data(2), false).unwrap_err();
                lab.repair("f");
                assert!(lab.decode("f").unwrap() == data(1), "after {changes}");
                outcomes[1] += 1;
            }
            Err(error) => {
                assert!(matches!(error, volume::Error::NotFound(_)), "after {changes}: {error}");
                lab.encode(&data(2), false).unwrap();
                assert!(lab.decode("f").unwrap() == data(2), "after {changes}");
                outcomes[0] += 1;
            }
        }
        assert_eq!(lab.files().len(), 3, "after {changes}: {:?}", lab.files());
    }
    // The first rename is what makes it.
    assert_eq!(outcomes, [CHANGES - 2, 2]);
    let mut doomed = Doomed::after(CHANGES);
    Lab::new(3).encode_on(&data(1), false, &mut |target| doomed.decorate(target)).unwrap();
}

/// Of the header of an uncommitted fragment, some sectors are there and others are not.
#[test]
fn what_a_power_loss_left_of_a_fragment_is_removed() {
    let lab = Lab::new(3);
    lab.encode(&data(1), false).unwrap();
    let whole = lab.files().into_iter().next().unwrap();
    let header = std::fs::read(&whole).unwrap()[..4096].to_vec();
    let torn = |keep: std::ops::Range<usize>| {
        let mut bytes = vec![0; header.len()];
        bytes[keep.clone()].copy_from_slice(&header[keep]);
        bytes
    };
    let left = whole.with_file_name(".f.000.weft.tmp-1-1");
    for bytes in [torn(0..512), torn(0..2048), torn(512..4096), header[..512].to_vec()] {
        std::fs::write(&left, bytes).unwrap();
        lab.encode(&data(2), true).unwrap();
        assert_eq!(lab.files().len(), 3, "{:?}", lab.files());
    }
}

#[test]
fn a_file_is_replaced_as_a_whole_or_not_at_all() {
    let mut outcomes = [0, 0];
    for changes in 0..CHANGES {
        let lab = Lab::new(3);
        lab.encode(&data(1), false).unwrap();
        let mut doomed = Doomed::after(changes);
        lab.encode_on(&data(2), true, &mut |target| doomed.decorate(target)).unwrap_err();
        doomed.lose_power(changes);
        let found = lab.decode("f").unwrap();
        let version = (1..3).find(|&version| found == data(version)).expect("one of the two");
        lab.repair("f");
        assert!(lab.decode("f").unwrap() == data(version), "after {changes}");
        outcomes[usize::from(version) - 1] += 1;
        lab.encode(&data(3), true).unwrap();
        assert!(lab.decode("f").unwrap() == data(3), "after {changes}");
        assert_eq!(lab.files().len(), 3, "after {changes}: {:?}", lab.files());
    }
    assert_eq!(outcomes, [CHANGES - 2, 2]);
}

#[test]
fn a_repair_loses_nothing() {
    let mut repaired = false;
    for changes in 0.. {
        let lab = Lab::new(3);
        lab.encode(&data(1), false).unwrap();
        let lost = lab.disks[1].join("f.001.weft");
        let before = std::fs::read(&lost).unwrap();
        std::fs::remove_file(&lost).unwrap();
        let mut doomed = Doomed::after(changes);
        let object = lab.find("f").unwrap().decorated(|target| doomed.decorate(target));
        let done = repair(object, None, Some(1), &Control::default());
        doomed.lose_power(changes);
        assert!(lab.decode("f").unwrap() == data(1), "after {changes}");
        // A repair that says so has made it durable.
        assert!(done.is_err() || std::fs::read(&lost).is_ok_and(|after| after == before), "after {changes}");
        lab.repair("f");
        assert!(std::fs::read(&lost).unwrap() == before, "after {changes}");
        if done.is_ok() {
            repaired = true;
            // The records, the header, a sync and a rename.
            assert_eq!(changes, 4 + 3);
            break;
        }
    }
    assert!(repaired);
}
