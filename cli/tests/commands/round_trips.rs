//! An encoded file comes back, whatever its size, code, name and attributes, also after losses.

use crate::scratch::{Scratch, name, noise, run, run_with_input, weft};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::{Duration, UNIX_EPOCH};

/// Codes with the number of data blocks, of losses that they survive, and a small block length.
const CODES: &[(&str, usize, usize, usize)] = &[
    ("rs:4+2", 4, 2, 4096),
    ("rs:1+1", 1, 1, 4097),
    ("gluster:4+2", 4, 2, 4096),
    ("lrc:4+2+2", 4, 3, 4096),
    ("crs:10+4", 10, 4, 4096),
    ("cauchy-good:8+3,packet=64", 8, 3, 4096),
    ("raid6:4+2", 4, 2, 4096),
    ("liberation:5+2,packet=64", 5, 2, 4480),
    ("xor:3+1", 3, 1, 4096),
    ("replica:1+2", 1, 2, 4096),
    ("none:3", 3, 0, 4096),
];

#[test]
fn every_size_comes_back_after_all_losses_that_the_code_survives() {
    let mut random = fastrand::Rng::with_seed(1);
    for &(code, k, losses, block) in CODES {
        let scratch = Scratch::new(3);
        let tolerates = ec::parse(code).unwrap().tolerates();
        assert!(tolerates >= losses.min(tolerates), "{code}");
        let blocks = ec::parse(code).unwrap().shape().blocks();
        let stripe = k * block;
        for size in [0, 1, k - 1, k, k + 1, 4095, 4096, stripe - 1, stripe, stripe + 1, 5 * stripe + 4711] {
            let file = scratch.file("f", size);
            scratch.encode(&file, code, &["--force", "--block-bytes", &block.to_string()]).good();
            let mut positions: Vec<usize> = (0..blocks).collect();
            random.shuffle(&mut positions);
            for &position in &positions[..tolerates] {
                fs::remove_file(scratch.fragment("f", position)).unwrap();
            }
            assert!(
                scratch.decoded("f") == noise(size),
                "{code} with {size} bytes without {:?}",
                &positions[..tolerates]
            );
        }
    }
}

#[test]
fn a_wide_code_comes_back() {
    let scratch = Scratch::new(24);
    let file = scratch.file("wide", 12_345_678);
    scratch.encode(&file, "rs:160+80", &[]).good();
    for position in (0..240).step_by(3) {
        fs::remove_file(scratch.fragment("wide", position)).unwrap();
    }
    assert!(scratch.decoded("wide") == noise(12_345_678));
    scratch.on("repair", "wide", &[]).good();
    scratch.on("verify", "wide", &[]).good();
    assert_eq!(scratch.files().len(), 240);
}

#[test]
fn many_stripes_on_many_threads_are_in_order() {
    let scratch = Scratch::new(6);
    let file = scratch.file("f", 3_000_000);
    scratch.encode(&file, "rs:4+2", &["--block-bytes", "512", "--threads", "7"]).good();
    fs::remove_file(scratch.fragment("f", 1)).unwrap();
    for out in ["-", "file"] {
        let bytes = if out == "-" {
            let decode = ["decode", "f", "--out", "-", "--threads", "7", "--from"];
            run(weft().args(decode).args(&scratch.disks)).good()
        } else {
            scratch.decoded("f")
        };
        assert!(bytes == noise(3_000_000), "{out}");
    }
}

#[test]
fn standard_input_and_output() {
    for size in [0, 1, 65_536, 1_048_576, 1_048_577, 7_654_321] {
        let scratch = Scratch::new(6);
        let mut encode = weft();
        encode.args(["encode", "-", "--name", "stream", "--code", "crs:4+2", "--to"]).args(&scratch.disks);
        run_with_input(&mut encode, &noise(size)).good();
        let decode = run(weft().args(["decode", "stream", "--out", "-", "--from"]).args(&scratch.disks));
        assert!(decode.good() == noise(size), "{size}");
        let document = scratch.on("verify", "stream", &["--json"]).json();
        assert_eq!(document["bytes"], size);
    }
}

#[test]
fn a_file_and_the_same_stream_have_the_same_blocks() {
    let scratch = Scratch::new(1);
    let file = scratch.file("f", 300_000);
    scratch.encode(&file, "rs:4+2", &["--block-bytes", "4096"]).good();
    let mut encode = weft();
    encode
        .args(["encode", "-", "--name", "s", "--code", "rs:4+2", "--block-bytes", "4096", "--to"])
        .args(&scratch.disks);
    run_with_input(&mut encode, &noise(300_000)).good();
    let blocks = |name: &str, position| {
        // Behind the file header, records of a 128-byte header and the block.
        let bytes = fs::read(scratch.fragment(name, position)).unwrap();
        bytes[4096..].chunks(128 + 4096).flat_map(|record| record[128..].to_vec()).collect::<Vec<u8>>()
    };
    assert!((0..6).all(|position| blocks("f", position) == blocks("s", position)));
    assert_eq!(&blocks("f", 0)[..4096], &noise(300_000)[..4096]);
}

#[test]
fn mode_and_times_are_kept_but_not_set_user_id() {
    let scratch = Scratch::new(6);
    let file = scratch.file("script", 1000);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o4751)).unwrap();
    let time = UNIX_EPOCH + Duration::new(1_000_000_007, 123_456_789);
    let times = fs::FileTimes::new().set_modified(time).set_accessed(time + Duration::from_secs(5));
    fs::File::options().write(true).open(&file).unwrap().set_times(times).unwrap();
    scratch.encode(&file, "rs:4+2", &[]).good();
    scratch.decode("script", &[]).good();
    let found = fs::metadata(scratch.out()).unwrap();
    assert_eq!(found.mode() & 0o7777, 0o751);
    assert_eq!((found.mtime(), found.mtime_nsec()), (1_000_000_007, 123_456_789));
    assert_eq!(found.atime(), 1_000_000_012);
}

#[test]
fn any_name_that_a_file_can_have() {
    let long = [b'x'; 255];
    let names: [&[u8]; 8] = [
        b"with space",
        b"with\nnewline",
        "Grüße-日本語".as_bytes(),
        b"not\xff\xfeutf8",
        &long,
        b".hidden",
        b"a.000.weft",
        b"%s*?'\"$(x)",
    ];
    let scratch = Scratch::new(6);
    for bytes in names {
        let file = scratch.file(name(bytes), 10_000);
        scratch.encode(&file, "rs:4+2", &[]).good();
        assert!(scratch.decoded(name(bytes)) == noise(10_000));
        // Every line that is printed about it is one line.
        let output = scratch.on("verify", name(bytes), &[]).good();
        assert_eq!(output.iter().filter(|&&b| b == b'\n').count(), 7);
        // The output may have the longest name, too.
        let out = scratch.path.join("o").join(name(bytes));
        fs::create_dir_all(out.parent().unwrap()).unwrap();
        run(weft().arg("decode").arg(name(bytes)).arg("--out").arg(&out).arg("--from").args(&scratch.disks)).good();
        assert!(fs::read(out).unwrap() == noise(10_000));
    }
}

#[test]
fn a_sparse_file_comes_back_with_its_zeroes() {
    let scratch = Scratch::new(6);
    let file = scratch.path.join("sparse");
    fs::File::create(&file).unwrap().set_len(20_000_001).unwrap();
    scratch.encode(&file, "rs:4+2", &[]).good();
    assert!(scratch.decoded("sparse") == vec![0; 20_000_001]);
}

#[test]
fn a_file_that_the_kernel_makes_up_is_read_to_its_end() {
    let scratch = Scratch::new(6);
    scratch.encode("/proc/self/limits", "rs:4+2", &[]).good();
    assert!(scratch.decoded("limits").starts_with(b"Limit"));
}

#[test]
fn repaired_fragments_are_the_old_ones_to_the_byte() {
    for (code, block) in [("rs:4+2", "4096"), ("gluster:4+2", "4096"), ("lrc:4+2+2", "4096"), ("crs:4+2", "1024")] {
        let scratch = Scratch::new(6);
        let file = scratch.file("f", 123_456);
        scratch.encode(&file, code, &["--block-bytes", block]).good();
        let before: Vec<Vec<u8>> = scratch.files().iter().map(|path| fs::read(path).unwrap()).collect();
        fs::remove_file(scratch.fragment("f", 0)).unwrap();
        fs::remove_file(scratch.fragment("f", 5)).unwrap();
        let document = scratch.on("repair", "f", &["--json"]).json();
        assert_eq!(document["made"].as_array().unwrap().len(), 2, "{code}");
        let after: Vec<Vec<u8>> = scratch.files().iter().map(|path| fs::read(path).unwrap()).collect();
        assert!(before == after, "{code}");
    }
}

#[test]
fn repair_leaves_a_healthy_object_alone() {
    let scratch = Scratch::new(6);
    let file = scratch.file("f", 100_000);
    scratch.encode(&file, "rs:4+2", &[]).good();
    let inodes = |scratch: &Scratch| scratch.files().iter().map(|p| fs::metadata(p).unwrap().ino()).collect::<Vec<_>>();
    let before = inodes(&scratch);
    let said = String::from_utf8(scratch.on("repair", "f", &[]).good()).unwrap();
    assert!(said.contains("nothing to repair"), "{said}");
    assert_eq!(inodes(&scratch), before);
}

#[test]
fn repair_with_one_loss_checks_against_a_survivor() {
    let scratch = Scratch::new(6);
    let file = scratch.file("f", 100_000);
    scratch.encode(&file, "rs:4+2", &["--block-bytes", "4096"]).good();
    fs::remove_file(scratch.fragment("f", 3)).unwrap();
    let document = scratch.on("repair", "f", &["--json"]).json();
    assert_eq!((&document["witnessed_blocks"], &document["unwitnessed_blocks"]), (&7.into(), &0.into()));
    assert_eq!(document["survives"], 2);
}

#[test]
fn local_repairs_are_checked_against_a_survivor_too() {
    for lost in 0..8 {
        let scratch = Scratch::new(8);
        let file = scratch.file("f", 100_000);
        scratch.encode(&file, "lrc:4+2+2", &["--block-bytes", "4096"]).good();
        fs::remove_file(scratch.fragment("f", lost)).unwrap();
        let document = scratch.on("repair", "f", &["--json"]).json();
        assert_eq!((&document["witnessed_blocks"], &document["unwitnessed_blocks"]), (&7.into(), &0.into()), "{lost}");
        scratch.on("verify", "f", &[]).good();
    }
}

#[test]
fn what_others_may_not_read_they_cannot_read_in_fragments() {
    let scratch = Scratch::new(6);
    let file = scratch.file("secret", 1000);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    scratch.encode(&file, "rs:4+2", &[]).good();
    fs::remove_file(scratch.fragment("secret", 0)).unwrap();
    scratch.on("repair", "secret", &[]).good();
    assert!(scratch.files().iter().all(|path| fs::metadata(path).unwrap().mode() & 0o777 == 0o600));
}

#[test]
fn new_fragments_go_where_they_are_told() {
    let scratch = Scratch::new(6);
    let file = scratch.file("f", 100_000);
    scratch.encode(&file, "rs:4+2", &[]).good();
    fs::remove_dir_all(&scratch.disks[2]).unwrap();
    fs::create_dir(scratch.path.join("new")).unwrap();
    let new = scratch.path.join("new").into_os_string().into_string().unwrap();
    scratch.on("repair", "f", &["--to", &new]).good();
    assert!(scratch.path.join("new/f.002.weft").exists());
    assert!(!scratch.disks[2].exists());
}

#[test]
fn attributes_tell_administrators() {
    let scratch = Scratch::new(6);
    let file = scratch.file("f", 10);
    scratch.encode(&file, "rs:4+2", &[]).good();
    match xattr::get(scratch.fragment("f", 1), "user.weft.code") {
        Ok(Some(code)) => assert_eq!(code, b"rs:4+2"),
        other => eprintln!("skipped: this file system has no user attributes ({other:?})"),
    }
}
