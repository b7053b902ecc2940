//! Fragments that earlier builds wrote. They stay as they are: whatever changes here, they must be
//! read, and what is written today must have the same records.

use crate::lab::Lab;
use std::fs;
use std::path::{Path, PathBuf};

/// What was encoded: as `data` with `rs:2+1` in blocks of 512 bytes, and as `plain-less` with
/// `gluster:2+1` in blocks of 1024.
fn data() -> Vec<u8> {
    (0..3000u32).map(|n| (n * 7 + (n >> 8) * 13 + 5) as u8).collect()
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/objects/golden")
}

fn copied() -> Lab {
    let lab = Lab::new(1);
    for entry in fs::read_dir(golden()).unwrap().map(|entry| entry.unwrap()) {
        fs::copy(entry.path(), lab.disks[0].join(entry.file_name())).unwrap();
    }
    lab
}

#[test]
fn old_fragments_are_decoded_without_any_one_of_them_and_repaired_to_the_byte() {
    for name in ["data", "plain-less"] {
        let lab = copied();
        assert!(lab.decode(name).unwrap() == data(), "{name}");
        for lost in 0..3 {
            let file = format!("{name}.{lost:03}.weft");
            fs::remove_file(lab.disks[0].join(&file)).unwrap();
            assert!(lab.decode(name).unwrap() == data(), "{file}");
            lab.repair(name);
            assert!(fs::read(lab.disks[0].join(&file)).unwrap() == fs::read(golden().join(&file)).unwrap(), "{file}");
        }
    }
}

#[test]
fn what_is_encoded_today_has_the_same_records_but_for_its_id() {
    let lab = Lab::new(1);
    lab.encode(&data(), false).unwrap();
    for position in 0..3 {
        let old = fs::read(golden().join(format!("data.{position:03}.weft"))).unwrap();
        let new = fs::read(lab.disks[0].join(format!("f.{position:03}.weft"))).unwrap();
        // Behind the id: the shape, the code, the geometry and the lengths.
        assert!(old.len() == new.len() && old[..32] == new[..32] && old[48..192] == new[48..192]);
        let records = |bytes: &[u8]| bytes[4096..].to_vec();
        for (old, new) in records(&old).chunks(128 + 512).zip(records(&new).chunks(128 + 512)) {
            // The id and the header's checksum differ.
            assert!(old[..8] == new[..8] && old[24..56] == new[24..56] && old[64..] == new[64..]);
        }
    }
}
