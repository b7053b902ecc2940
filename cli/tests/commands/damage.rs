//! Up to m damaged fragments of any kind: the right bytes, and each problem named. One more: no
//! bytes at all.

use crate::scratch::{Scratch, created, edit, noise};
use std::fs;
use std::path::Path;

const BYTES: usize = 100_000;
/// A record of a full stripe: its header and its block.
const RECORD: usize = 128 + 4096;

fn encoded() -> Scratch {
    let scratch = Scratch::new(6);
    let file = scratch.file("f", BYTES);
    scratch.encode(&file, "rs:4+2", &["--block-bytes", "4096"]).good();
    scratch
}

fn truncate(path: &Path, bytes: u64) {
    fs::File::options().write(true).open(path).unwrap().set_len(bytes).unwrap();
}

type Damage = (&'static str, fn(&Scratch, usize));

/// Each kind of problem, by the word that reports it, and how to bring it about at a position.
const DAMAGES: &[Damage] = &[
    ("missing", |s, p| fs::remove_file(s.fragment("f", p)).unwrap()),
    ("header", |s, p| truncate(&s.fragment("f", p), 0)),
    ("header", |s, p| truncate(&s.fragment("f", p), 4095)),
    ("truncated", |s, p| truncate(&s.fragment("f", p), 4096)),
    ("truncated", |s, p| truncate(&s.fragment("f", p), 4096 + RECORD as u64 + 77)),
    ("truncated", |s, p| truncate(&s.fragment("f", p), fs::metadata(s.fragment("f", p)).unwrap().len() - 1)),
    ("length", |s, p| edit(&s.fragment("f", p), |bytes| bytes.push(0))),
    ("header", |s, p| edit(&s.fragment("f", p), |bytes| bytes[0] ^= 1)),
    ("header", |s, p| edit(&s.fragment("f", p), |bytes| bytes[60] ^= 8)),
    ("header", |s, p| edit(&s.fragment("f", p), |bytes| bytes.fill(0))),
    ("record", |s, p| edit(&s.fragment("f", p), |bytes| bytes[4096 + RECORD] ^= 1)),
    ("record", |s, p| edit(&s.fragment("f", p), |bytes| bytes[4096 + RECORD + 30] ^= 1)),
    ("record", |s, p| edit(&s.fragment("f", p), |bytes| bytes[4096 + 70] ^= 128)),
    ("block", |s, p| edit(&s.fragment("f", p), |bytes| bytes[4096 + 128] ^= 1)),
    ("block", |s, p| edit(&s.fragment("f", p), |bytes| *bytes.last_mut().unwrap() ^= 1)),
    // A write that went to the wrong place: the record of another stripe, with all its checksums
    // right.
    ("record", |s, p| edit(&s.fragment("f", p), |b| b.copy_within(4096..4096 + RECORD, 4096 + RECORD))),
    ("unreadable", |s, p| {
        fs::remove_file(s.fragment("f", p)).unwrap();
        fs::create_dir(s.fragment("f", p)).unwrap();
    }),
    ("foreign", |s, p| {
        let other = Scratch::new(6);
        let file = other.file("f", BYTES);
        other.encode(&file, "rs:4+2", &["--block-bytes", "4096"]).good();
        fs::copy(other.fragment("f", p), s.fragment("f", p)).unwrap();
        created(&s.fragment("f", p), 1);
    }),
    ("foreign", |s, p| {
        let other = Scratch::new(6);
        let file = other.file("g", BYTES);
        other.encode(&file, "crs:4+2", &[]).good();
        fs::copy(other.fragment("g", p), s.fragment("f", p)).unwrap();
    }),
];

#[test]
fn up_to_m_damages_of_any_kind_are_decoded_around_named_and_repaired() {
    for (number, &(word, damage)) in DAMAGES.iter().enumerate() {
        for positions in [&[0][..], &[5], &[1, 2], &[3, 4]] {
            let scratch = encoded();
            let before: Vec<Vec<u8>> = (0..6).map(|p| fs::read(scratch.fragment("f", p)).unwrap()).collect();
            positions.iter().for_each(|&position| damage(&scratch, position));
            assert!(scratch.decoded("f") == noise(BYTES), "damage {number} at {positions:?}");

            let verified = scratch.on("verify", "f", &["--json"]);
            assert_eq!(verified.status, 1, "damage {number} at {positions:?}");
            let document = verified.json();
            let problems = document["problems"]["listed"].as_array().unwrap().clone();
            for &position in positions {
                let named = problems.iter().any(|p| p["kind"] == word && p["position"] == position);
                assert!(named, "damage {number} ({word}) at {position}: {problems:?}");
            }
            // Blocks under a damaged header, or before surplus bytes, are still of use.
            let survives = document["survives"].as_u64().unwrap() as usize;
            let whole = ["header", "length"].contains(&word);
            assert!(survives == 2 - positions.len() || whole && survives == 2, "damage {number} at {positions:?}");
            if word != "unreadable" {
                scratch.on("repair", "f", &[]).good();
                scratch.on("verify", "f", &[]).good();
                assert!((0..6).all(|p| fs::read(scratch.fragment("f", p)).unwrap() == before[p]), "damage {number}");
                let left = scratch.files().len();
                // The other object's fragments got their own names back.
                let others = scratch.files().iter().filter(|path| path.to_string_lossy().contains("/g.")).count();
                assert_eq!((left - others, others % positions.len()), (6, 0), "damage {number}");
            }
        }
    }
}

#[test]
fn every_problem_has_its_path_stripe_and_offset_in_the_text() {
    let scratch = encoded();
    edit(&scratch.fragment("f", 2), |bytes| bytes[4096 + 3 * RECORD + 128 + 5] ^= 1);
    fs::remove_file(scratch.fragment("f", 0)).unwrap();
    let errors = scratch.decode("f", &[]).errors;
    let offset = 4096 + 3 * RECORD + 128;
    let line = format!("disk2/f.002.weft: stripe 3 at byte {offset}: the block does not match its checksum");
    assert!(errors.contains(&line) && errors.contains("position 0: the fragment is missing"), "{errors}");
    assert_eq!(errors.lines().count(), 2, "{errors}");
}

#[test]
fn one_loss_too_many_gives_no_output_and_says_how_many_are_there() {
    let scratch = encoded();
    for position in [0, 2, 5] {
        fs::remove_file(scratch.fragment("f", position)).unwrap();
    }
    let said = scratch.decode("f", &[]).failed(1);
    assert!(said.contains("3 blocks are there and 4 are needed"), "{said}");
    assert!(scratch.on("repair", "f", &[]).failed(1).contains("3 blocks are there and 4 are needed"));
    assert_eq!(scratch.on("verify", "f", &["--json"]).json()["decodable"], false);
    let left: Vec<_> =
        fs::read_dir(&scratch.path).unwrap().map(|e| e.unwrap().file_name()).filter(|n| n != "f").collect();
    assert_eq!(left.len(), 6, "only the disks: {left:?}");
    assert_eq!(scratch.files().len(), 3);
}

#[test]
fn a_stripe_too_damaged_in_the_middle_leaves_no_output() {
    let scratch = encoded();
    for position in [0, 2, 5] {
        edit(&scratch.fragment("f", position), |bytes| bytes[4096 + 3 * RECORD + 128] ^= 1);
    }
    let said = scratch.decode("f", &[]).failed(1);
    assert!(said.contains("stripe 3") && said.contains("3 blocks are there and 4 are needed"), "{said}");
    let left: Vec<_> =
        fs::read_dir(&scratch.path).unwrap().map(|e| e.unwrap().file_name()).filter(|n| n != "f").collect();
    assert_eq!(left.len(), 6, "only the disks: {left:?}");
    assert_eq!(scratch.on("verify", "f", &["--json"]).json()["survives"], serde_json::Value::Null);
}

#[test]
fn each_fragment_may_be_damaged_if_no_stripe_is_too_much() {
    let scratch = encoded();
    for position in 0..6 {
        edit(&scratch.fragment("f", position), |bytes| bytes[4096 + position * RECORD + 128 + 1] ^= 1);
    }
    assert!(scratch.decoded("f") == noise(BYTES));
    let document = scratch.on("repair", "f", &["--json"]).json();
    assert_eq!(document["made"].as_array().unwrap().len(), 6);
    scratch.on("verify", "f", &[]).good();
}

#[test]
fn swapped_fragments_are_known_by_their_headers() {
    let scratch = encoded();
    let [a, b, c] = [scratch.fragment("f", 1), scratch.fragment("f", 4), scratch.path.join("c")];
    fs::rename(&a, &c).unwrap();
    fs::rename(&b, &a).unwrap();
    fs::rename(&c, &b).unwrap();
    assert!(scratch.decoded("f") == noise(BYTES));
    let errors = scratch.on("verify", "f", &[]).errors;
    assert!(errors.contains("its name says position 1, but it is position 4"), "{errors}");
    // Repair never puts a new fragment over one that is of use.
    fs::remove_file(scratch.fragment("f", 4)).unwrap();
    scratch.on("repair", "f", &[]).failed(1);
    assert!(scratch.decoded("f") == noise(BYTES));
}

#[test]
fn a_copy_of_a_fragment_is_named_and_helps() {
    let scratch = encoded();
    fs::copy(scratch.fragment("f", 1), scratch.disks[3].join("f.001.weft")).unwrap();
    edit(&scratch.fragment("f", 1), |bytes| bytes[4096 + 128] ^= 1);
    for position in [0, 5] {
        fs::remove_file(scratch.fragment("f", position)).unwrap();
    }
    assert!(scratch.decoded("f") == noise(BYTES));
    assert!(scratch.on("verify", "f", &[]).errors.contains("it is position 1, as"));
}

#[test]
fn parity_that_is_not_that_of_the_data_is_found_although_all_checksums_match() {
    let scratch = encoded();
    let other = Scratch::new(6);
    let file = other.path.join("f");
    fs::write(&file, noise(BYTES + 1).split_off(1)).unwrap();
    other.encode(&file, "rs:4+2", &["--block-bytes", "4096"]).good();
    // A block of other data under this object's record header, sealed again by hand.
    let foreign = fs::read(other.fragment("f", 2)).unwrap();
    edit(&scratch.fragment("f", 2), |bytes| {
        bytes[4096 + 128..4096 + RECORD].copy_from_slice(&foreign[4096 + 128..4096 + RECORD]);
        let checksum = gf::checksum::crc64(&bytes[4096 + 128..4096 + RECORD]);
        bytes[4096 + 64..4096 + 72].copy_from_slice(&checksum.to_le_bytes());
        bytes[4096 + 56..4096 + 64].fill(0);
        let seal = gf::checksum::crc64(&bytes[4096..4096 + 128]);
        bytes[4096 + 56..4096 + 64].copy_from_slice(&seal.to_le_bytes());
    });
    let verified = scratch.on("verify", "f", &["--json"]);
    assert_eq!((verified.status, &verified.json()["inconsistent_stripes"]), (1, &1.into()));
    // With a loss, repair would spread it, so it refuses.
    fs::remove_file(scratch.fragment("f", 0)).unwrap();
    assert!(scratch.on("repair", "f", &[]).failed(1).contains("nothing was changed"));
    assert_eq!(scratch.files().len(), 5);
}

#[test]
fn a_replacement_that_was_interrupted_between_two_renames_is_whole() {
    let scratch = encoded();
    let old: Vec<Vec<u8>> = (0..6).map(|p| fs::read(scratch.fragment("f", p)).unwrap()).collect();
    let file = scratch.file("f", BYTES + 1);
    scratch.encode(&file, "rs:4+2", &["--force", "--block-bytes", "4096"]).good();
    // Three were renamed; the others still have the names under which they were written.
    for position in [0, 4, 5] {
        let temporary = scratch.disks[position].join(format!(".f.{position:03}.weft.tmp-4194304-{position}"));
        fs::rename(scratch.fragment("f", position), temporary).unwrap();
        fs::write(scratch.fragment("f", position), &old[position]).unwrap();
    }
    assert!(scratch.decoded("f") == noise(BYTES + 1));
    scratch.on("repair", "f", &[]).good();
    scratch.on("verify", "f", &[]).good();
    assert_eq!(scratch.files().len(), 6);

    // Before the first rename, the old object is the one.
    for (position, old) in old.iter().enumerate() {
        let temporary = scratch.disks[position].join(format!(".f.{position:03}.weft.tmp-4194304-{position}"));
        fs::rename(scratch.fragment("f", position), temporary).unwrap();
        fs::write(scratch.fragment("f", position), old).unwrap();
    }
    assert!(scratch.decoded("f") == noise(BYTES));
}

#[test]
fn noise_in_the_fragments_never_gives_wrong_bytes() {
    let mut random = fastrand::Rng::with_seed(3);
    let scratch = encoded();
    let good: Vec<Vec<u8>> = (0..6).map(|p| fs::read(scratch.fragment("f", p)).unwrap()).collect();
    for _ in 0..60 {
        for (position, good) in good.iter().enumerate() {
            let mut bytes = good.clone();
            for _ in 0..random.usize(0..4) {
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(..);
            }
            fs::write(scratch.fragment("f", position), bytes).unwrap();
        }
        let decoded = scratch.decode("f", &["--force"]);
        match decoded.status {
            0 => assert!(fs::read(scratch.out()).unwrap() == noise(BYTES)),
            1 => _ = decoded.failed(1),
            _ => panic!("{decoded:?}"),
        }
    }
}
