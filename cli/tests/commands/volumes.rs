//! Volumes that are not mounted: made, filled, read, damaged, repaired, grown and found again.

use crate::scratch::{Ended, Scratch, edit, name, noise, run, run_with_input, weft};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// A volume on the disks of a scratch directory.
pub struct Volume {
    pub scratch: Scratch,
    pub path: PathBuf,
}

impl Volume {
    pub fn new(code: &str, disks: usize) -> Self {
        let scratch = Scratch::new(disks);
        let path = scratch.path.join("a volume");
        run(weft().arg("create").arg(&path).args(["--code", code]).args(&scratch.disks)).good();
        Self { scratch, path }
    }

    /// The address of a path in it.
    pub fn at(&self, path: impl AsRef<OsStr>) -> OsString {
        let mut address = self.path.clone().into_os_string();
        address.push(":/");
        address.push(path);
        address
    }

    /// A command on the volume itself.
    pub fn on(&self, command: &[&str]) -> Ended {
        run(weft().args(command).arg(&self.path))
    }

    pub fn target(&self, command: &str, targets: &[&Path]) -> Ended {
        run(weft().args(["target", command]).arg(&self.path).args(targets))
    }

    pub fn put(&self, file: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> Ended {
        run(weft().args(["cp", "-r"]).arg(file).arg(self.at(to)))
    }

    /// The same over what is there.
    pub fn replace(&self, file: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> Ended {
        run(weft().args(["cp", "-rf"]).arg(file).arg(self.at(to)))
    }

    pub fn cat(&self, path: impl AsRef<OsStr>) -> Ended {
        run(weft().arg("cat").arg(self.at(path)))
    }

    /// Repairs until nothing needs attention: on a busy machine a target is late for a moment, and
    /// lacks what was written meanwhile.
    #[track_caller]
    pub fn becomes_healthy(&self) {
        let begun = std::time::Instant::now();
        loop {
            let status = self.on(&["status", "--json"]);
            if status.status == 0 {
                return;
            }
            let repaired = self.on(&["repair"]);
            let late = begun.elapsed() > std::time::Duration::from_secs(300);
            assert!(!late, "{}{}", repaired.errors, String::from_utf8_lossy(&status.output));
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }

    /// All blocks are as they were written.
    #[track_caller]
    pub fn is_healthy(&self) {
        self.becomes_healthy();
        self.on(&["verify"]).good();
        self.on(&["fsck"]).good();
    }

    /// The chunks on a disk.
    pub fn chunks(&self, disk: usize) -> Vec<PathBuf> {
        let below = fs::read_dir(self.scratch.disks[disk].join("chunks")).unwrap();
        let below = below.flat_map(|below| fs::read_dir(below.unwrap().path()).unwrap());
        below.map(|entry| entry.unwrap().path()).collect()
    }
}

fn text(ended: Ended) -> String {
    String::from_utf8(ended.good()).unwrap()
}

#[test]
fn files_go_in_and_come_out() {
    let volume = Volume::new("rs:4+2", 6);
    let scratch = &volume.scratch;
    let (big, small) = (scratch.file("big", 5_000_000), scratch.file("small", 10));
    let copied = run(weft().args(["cp", "--json"]).args([&big, &small]).arg(volume.at(""))).json();
    assert_eq!((&copied["files"], &copied["bytes"]), (&2.into(), &5_000_010.into()));
    assert!(volume.cat("big").good() == noise(5_000_000));
    assert!(volume.cat("small").good() == noise(10));
    assert_eq!(text(run(weft().arg("ls").arg(volume.at("")))), "big\nsmall\n");
    let stat = run(weft().args(["stat", "--json"]).arg(volume.at("big"))).json();
    assert_eq!((&stat["size"], &stat["kind"]), (&5_000_000.into(), &"file".into()));
    assert_eq!(stat["modified"]["seconds"], fs::metadata(&big).unwrap().mtime());
    // Over what is there: replaced, and times and holes as they were.
    let holes = scratch.path.join("holes");
    fs::File::create(&holes).unwrap().set_len(50 << 20).unwrap();
    let said = volume.put(&holes, "big").failed(1);
    assert!(said.contains("there is a file of that name in the volume; give --force to replace it"), "{said}");
    assert!(volume.cat("big").good() == noise(5_000_000));
    volume.replace(&holes, "big").good();
    let stat = run(weft().args(["stat", "--json"]).arg(volume.at("big"))).json();
    assert_eq!((&stat["size"], &stat["allocated"]), (&(50 << 20).into(), &0.into()));
    let said = run(weft().arg("cp").arg(volume.at("big")).arg(&small)).failed(1);
    assert!(said.ends_with("small exists; give --force to replace it"), "{said}");
    assert!(fs::read(&small).unwrap() == noise(10));
    run(weft().args(["cp", "--force"]).arg(volume.at("big")).arg(&small)).good();
    let back = fs::metadata(&small).unwrap();
    assert_eq!((back.len(), back.mtime()), (50 << 20, fs::metadata(&holes).unwrap().mtime()));
    assert!(back.blocks() < 1000, "{}", back.blocks());
    run(weft().arg("rm").args([volume.at("big"), volume.at("small")])).good();
    assert_eq!(text(run(weft().arg("ls").arg(volume.at("")))), "");
    volume.is_healthy();
}

#[test]
fn files_are_renamed_and_their_space_is_told() {
    let volume = Volume::new("rs:2+1", 3);
    let scratch = &volume.scratch;
    let on =
        |command: &[&str], paths: &[&str]| run(weft().args(command).args(paths.iter().map(|path| volume.at(path))));
    assert!(on(&["mkdir"], &["a/b/c"]).failed(1).contains(":/a/b: no such file"));
    assert_eq!(on(&["mkdir", "-p", "--json"], &["a/b/c", "a/d"]).json()["made"], 4);
    on(&["mkdir", "-p"], &["a/b"]).good();
    assert!(on(&["mkdir"], &["a/b"]).failed(1).contains(":/a/b: "));
    let mode = run(weft().args(["stat", "--json"]).arg(volume.at("a/b"))).json()["mode"].clone();
    volume.put(scratch.file("big", 3_000_000), "a/b/c").good();
    volume.put(scratch.file("small", 10), "a").good();
    let plain = scratch.path.join("plain");
    fs::create_dir(&plain).unwrap();
    assert_eq!(mode, format!("{:04o}", fs::metadata(&plain).unwrap().mode() & 0o7777));

    let told = on(&["du", "--json"], &["a"]).json();
    let told: Vec<_> =
        told.as_array().unwrap().iter().map(|it| (&it["size"], &it["files"], &it["directories"])).collect();
    let [b, d, small, all] = told[..] else { panic!("{told:?}") };
    assert_eq!((b, d), ((&3_000_000.into(), &1.into(), &2.into()), (&0.into(), &0.into(), &1.into())));
    assert_eq!((small, all), ((&10.into(), &1.into(), &0.into()), (&3_000_010.into(), &2.into(), &4.into())));
    let told = text(on(&["du", "-s"], &["a", "a/small"]));
    assert!(told.lines().nth(1).unwrap().ends_with("a volume:/a"), "{told}");
    assert_eq!(told.lines().nth(2).unwrap().split_whitespace().take(3).collect::<Vec<_>>(), ["10", "B", "1"], "{told}");

    on(&["mv"], &["a/small", "one"]).good();
    on(&["mv"], &["one", "a/b/c/big", "a/d"]).good();
    assert!(volume.cat("a/d/one").good() == noise(10) && volume.cat("a/d/big").good() == noise(3_000_000));
    assert!(on(&["mv"], &["a/d/one", "a/d/big"]).failed(1).contains(":/a/d/big exists; give --force to replace it"));
    on(&["mv", "--force"], &["a/d/one", "a/d/big"]).good();
    assert!(volume.cat("a/d/big").good() == noise(10));
    for (paths, status, says) in [
        (&["x", "y"][..], 1, ":/x: no such file"),
        (&["", "y"], 2, "the root of a volume cannot be renamed"),
        (&["a", "a/b/c"], 1, "itself"),
        (&["a/b", "a/d", "a/d/big"], 2, ":/a/d/big is not a directory"),
    ] {
        let said = on(&["mv"], paths).failed(status);
        assert!(said.contains(says), "{paths:?}: {said}");
    }
    let said = run(weft().arg("mv").arg(volume.at("a")).arg("other:/a")).failed(2);
    assert!(said.contains("two volumes"), "{said}");
    volume.is_healthy();
}

#[test]
fn trees_and_names_of_any_bytes_come_back() {
    let volume = Volume::new("rs:2+1", 3);
    let tree = volume.scratch.path.join("tree");
    let below = tree.join(name(b"with blank\nand newline")).join(name("ünïcödé".as_bytes()));
    fs::create_dir_all(&below).unwrap();
    for name in [&[b'x'; 255][..], b"-r", b"not utf-8 \xff", b":", b"a:"] {
        fs::write(below.join(OsStr::from_bytes(name)), name).unwrap();
    }
    symlink("nowhere", below.join("link")).unwrap();
    fs::create_dir(tree.join("empty")).unwrap();
    fs::set_permissions(below.join("-r"), fs::Permissions::from_mode(0o640)).unwrap();
    // Twice: the second time onto what is there.
    volume.put(&tree, "").good();
    volume.put(&tree, "").failed(1);
    volume.replace(&tree, "").good();
    // The first time under a new name, then into what is there, then onto it.
    let out = volume.scratch.path.join("out");
    for copy in [out.clone(), out.join("tree"), out.join("tree")] {
        run(weft().args(["cp", "-rf"]).arg(volume.at("tree")).arg(&out)).good();
        let ended =
            run(std::process::Command::new("diff").args(["-r", "--no-dereference", "-x", "tree"]).args([&tree, &copy]));
        assert_eq!(ended.status, 0, "{}", String::from_utf8_lossy(&ended.output));
    }
    // What is shown stays on one line.
    let listed = text(run(weft().args(["ls", "-l"]).arg(volume.at("tree"))));
    assert_eq!(listed.lines().count(), 2, "{listed}");
    assert!(listed.contains("with blank\\nand newline"), "{listed}");
    let said = volume.cat("tree/a\nb").failed(1);
    assert!(said.contains("a\\nb: no such file"), "{said}");
    run(weft().args(["rm", "-r"]).arg(volume.at("tree"))).good();
    volume.is_healthy();
}

#[test]
fn what_cannot_be_is_refused_in_one_line() {
    let volume = Volume::new("rs:2+1", 3);
    let scratch = &volume.scratch;
    let file = scratch.file("f", 10);
    let disk = |number: usize| scratch.disks[number].as_os_str();
    let (new, full) = (scratch.path.join("new"), scratch.path.join("full"));
    fs::create_dir(&full).unwrap();
    fs::write(full.join("mine"), "mine").unwrap();
    let create = |volume: &Path, rest: &[&OsStr]| run(weft().arg("create").arg(volume).args(rest));
    let path = |name: &str| scratch.path.join(name).into_os_string();
    let [a, b, c] = [path("a"), path("b"), path("c")];
    let code = [OsStr::new("--code"), OsStr::new("rs:2+1")];
    let with = |rest: &[&OsStr]| [&code[..], rest].concat().into_iter().map(OsStr::to_os_string).collect::<Vec<_>>();
    for (volume, rest, status, says) in [
        (&new, with(&[&a, &b]), 1, "needs 3 directories"),
        (&new, with(&[&a, &b, &a]), 2, "one directory"),
        (&new, with(&[&a, &b, full.as_os_str()]), 1, "full is not empty"),
        (&new, with(&[&a, &b, disk(0)]), 1, "is a target of a volume already"),
        (&volume.path, with(&[&a, &b, &c]), 1, "is a volume already"),
        (&new, [with(&[&a, &b, &c]), vec!["--durability".into(), "1".into()]].concat(), 1, "between 2 and 3"),
        (&new, [with(&[&a, &b, &c]), vec!["--chunk-bytes".into(), "9".into()]].concat(), 1, "a chunk can have"),
        (&new, vec!["--code".into(), "no:2+1".into(), a.clone()], 2, "no code is called"),
    ] {
        let rest: Vec<&OsStr> = rest.iter().map(OsString::as_os_str).collect();
        let said = create(volume, &rest).failed(status);
        assert!(said.contains(says), "{said}");
        assert!(!new.exists() && !Path::new(&a).exists(), "{says} left something behind");
    }
    let address = |path: &str| volume.at(path);
    volume.put(&file, "f").good();
    for (arguments, status, says) in [
        (vec!["ls".into(), volume.path.clone().into_os_string()], 2, "VOLUME:/path"),
        (vec!["ls".into(), "nowhere:/".into()], 1, "nowhere is not a volume"),
        (vec!["status".into(), file.clone().into_os_string()], 1, "is not a volume"),
        (vec!["ls".into(), address("x")], 1, "no such file"),
        (vec!["cat".into(), address("")], 1, "is a directory"),
        (vec!["stat".into(), address("f/x")], 1, "not a directory"),
        (vec!["rm".into(), address("")], 2, "the root"),
        (vec!["rm".into(), address("x")], 1, "no such file"),
        (vec!["cp".into(), path("absent"), address("")], 1, "absent: No such file"),
        (vec!["cp".into(), file.clone().into_os_string(), address("x/y")], 1, ":/x: no such file"),
        (vec!["cp".into(), file.clone().into_os_string(), address("f/y")], 1, ":/f is not a directory"),
        (vec!["cp".into(), full.clone().into_os_string(), address("")], 2, "give -r"),
        (vec!["cp".into(), address("f"), address("g")], 2, "one of both"),
        (vec!["cp".into(), address("f"), path("absent/f")], 1, "absent/f: No such file"),
        (vec!["unmount".into(), full.clone().into_os_string()], 1, "no Weft volume is mounted here"),
        (vec!["mount".into(), path("absent"), full.clone().into_os_string()], 1, "is not a volume"),
        (vec!["target".into(), "drain".into(), volume.path.clone().into(), path("absent")], 1, "is not a target"),
        (vec!["target".into(), "drain".into(), volume.path.clone().into(), disk(0).into()], 1, "add one first"),
        (vec!["target".into(), "add".into(), volume.path.clone().into(), full.clone().into()], 1, "is not empty"),
        (vec!["fsck".into(), "--rebuild".into(), volume.path.clone().into()], 1, "--force"),
    ] {
        let ended = run(weft().args(&arguments));
        let said = ended.failed(status);
        assert!(said.contains(says), "{arguments:?}: {said}");
        let ended = run(weft().args(&arguments).arg("--json"));
        let says = if arguments[0] == "cat" { "leave out --json" } else { says };
        assert!(ended.json()["error"]["message"].as_str().unwrap().contains(says), "{arguments:?}");
    }
    // Nothing of all that is left.
    assert_eq!(text(run(weft().arg("ls").arg(volume.at("")))), "f\n");
    volume.is_healthy();
}

#[test]
fn a_copy_that_fails_leaves_what_was_there() {
    let volume = Volume::new("rs:2+1", 3);
    let file = volume.scratch.file("f", 3_000_000);
    volume.put(&file, "f").good();
    let ended = run(weft().args(["cp", "-f"]).arg(volume.scratch.path.join("absent")).arg(volume.at("f")));
    ended.failed(1);
    assert!(volume.cat("f").good() == noise(3_000_000));
    // The second of two fails: the first stays.
    let absent = volume.scratch.path.join("absent");
    let ended = run(weft().args(["cp", "-f"]).args([&file, &absent]).arg(volume.at("")));
    ended.failed(1);
    let said = run_with_input(weft().arg("cp").arg(&volume.path).arg(volume.at("d")), b"").failed(2);
    assert!(said.contains("give -r"), "{said}");
    assert_eq!(text(run(weft().arg("ls").arg(volume.at("")))), "f\n");
    // Out: too much is lost, and the file that is there stays.
    let out = volume.scratch.file("out", 7);
    for disk in &volume.scratch.disks[..2] {
        fs::remove_dir_all(disk.join("chunks")).unwrap();
    }
    let said = run(weft().args(["cp", "-f"]).arg(volume.at("f")).arg(&out)).failed(1);
    assert!(said.contains(":/f: "), "{said}");
    assert!(fs::read(&out).unwrap() == noise(7));
    assert_eq!(fs::read_dir(&volume.scratch.path).unwrap().count(), 3 + 3, "nothing is left of the attempt");
}

#[test]
fn a_closed_pipe_is_no_error_to_speak_of() {
    let volume = Volume::new("rs:2+1", 3);
    volume.put(volume.scratch.file("f", 4 << 20), "f").good();
    let script = "\"$0\" cat \"$1\" | head -c 3; echo \" ${PIPESTATUS[0]}\"";
    let mut shell = std::process::Command::new("bash");
    let ended = run(shell.args(["-c", script]).arg(env!("CARGO_BIN_EXE_weft")).arg(volume.at("f")));
    assert_eq!(&ended.output[..3], &noise(4 << 20)[..3]);
    assert_eq!((&ended.output[3..], &ended.errors[..]), (&b" 1\n"[..], ""));
}

#[test]
fn m_targets_are_lost_and_replaced() {
    let volume = Volume::new("rs:4+2", 6);
    let disks = &volume.scratch.disks;
    volume.put(volume.scratch.file("big", 9_000_000), "").good();
    volume.put(volume.scratch.file("small", 100), "").good();
    for disk in [1, 4] {
        fs::remove_dir_all(&disks[disk]).unwrap();
    }
    assert!(volume.cat("big").good() == noise(9_000_000));
    assert!(volume.cat("small").good() == noise(100));
    let status = volume.on(&["status", "--json"]);
    assert_eq!((status.status, &status.json()["healthy"]), (1, &false.into()));
    let missing = format!("target {} is missing", disks[1].display());
    assert!(status.errors.contains(&missing), "{}", status.errors);
    let at_risk = volume.on(&["status", "--at-risk", "--json"]).json();
    assert_eq!((&at_risk[0]["path"], &at_risk[0]["survives"]), (&"big".into(), &0.into()));
    assert_eq!(volume.on(&["verify"]).status, 1);
    // Writing goes on.
    volume.put(volume.scratch.file("later", 2_000_000), "").good();
    for disk in [1, 4] {
        let new = volume.scratch.path.join(format!("new{disk}"));
        volume.target("replace", &[&disks[disk], &new]).good();
    }
    volume.on(&["repair"]).good();
    volume.is_healthy();
    // The new ones can carry it.
    fs::remove_dir_all(&disks[0]).unwrap();
    fs::remove_dir_all(&disks[2]).unwrap();
    assert!(volume.cat("big").good() == noise(9_000_000));
    assert!(volume.cat("later").good() == noise(2_000_000));
}

#[test]
fn flipped_and_cut_chunks_are_found_and_repaired() {
    let volume = Volume::new("rs:4+2", 6);
    volume.put(volume.scratch.file("f", 9_000_000), "").good();
    for chunk in volume.chunks(0) {
        edit(&chunk, |bytes| (4096..bytes.len()).step_by(50_000).for_each(|at| bytes[at] ^= 4));
    }
    for chunk in volume.chunks(3) {
        edit(&chunk, |bytes| bytes.truncate(bytes.len() / 3));
    }
    assert!(volume.cat("f").good() == noise(9_000_000));
    let found = volume.on(&["verify", "--json"]);
    assert_eq!((found.status, &found.json()["sound"]), (1, &false.into()));
    assert_eq!(found.json()["lost_stripes"], 0);
    let repaired = volume.on(&["repair", "--json"]);
    assert!(repaired.json()["chunks"].as_u64().unwrap() > 0);
    assert_eq!(repaired.status, 0, "{}", repaired.errors);
    volume.is_healthy();
    assert!(volume.cat("f").good() == noise(9_000_000));
}

#[test]
fn more_than_m_losses_are_told_and_harm_only_what_they_must() {
    let volume = Volume::new("rs:2+1", 3);
    volume.put(volume.scratch.file("f", 1_000_000), "").good();
    for disk in [0, 1] {
        volume.chunks(disk).iter().for_each(|chunk| fs::remove_file(chunk).unwrap());
    }
    let said = volume.cat("f").failed(1);
    assert!(said.contains(":/f: "), "{said}");
    let found = volume.on(&["verify"]);
    assert_eq!(found.status, 1);
    assert!(String::from_utf8_lossy(&found.output).contains("LOST"));
    volume.put(volume.scratch.file("g", 1_000_000), "").good();
    assert!(volume.cat("g").good() == noise(1_000_000));
    // And with more than m targets gone altogether it says so.
    for disk in &volume.scratch.disks[..2] {
        fs::remove_dir_all(disk).unwrap();
    }
    assert!(volume.on(&["status"]).failed(3).contains("1 of 3 targets"));
}

/// A slip of an operator is refused before anything is changed, and draining can be undone.
#[test]
fn operators_slips_do_no_harm() {
    let volume = Volume::new("rs:2+1", 4);
    let disks = &volume.scratch.disks;
    volume.put(volume.scratch.file("f", 3_000_000), "").good();
    let link = volume.scratch.path.join("link");
    symlink(&disks[1], &link).unwrap();
    for new in [&disks[0], &disks[1], &link] {
        let said = volume.target("replace", &[&disks[0], new]).failed(1);
        assert!(said.contains("is a target of this volume"), "{said}");
    }
    volume.is_healthy();
    assert!(volume.target("undrain", &[&disks[0]]).failed(1).contains("is not being emptied"));
    // With fewer it would be too few: the second has nowhere to go.
    volume.target("drain", &[&disks[0]]).good();
    assert!(volume.target("undrain", &[&disks[0]]).failed(1).contains("is not a target"));
    volume.is_healthy();
}

/// Each target that is away is reported once.
#[test]
fn targets_that_are_away_are_counted() {
    let volume = Volume::new("rs:4+3", 7);
    volume.put(volume.scratch.file("f", 20_000_000), "").good();
    volume.scratch.disks[..3].iter().for_each(|disk| fs::rename(disk, disk.with_extension("away")).unwrap());
    let found = volume.on(&["verify", "--json"]);
    let warned: Vec<&str> = found.errors.lines().collect();
    let missing = format!("3 targets are missing: target {} is missing", volume.scratch.disks[0].display());
    assert!(warned.len() == 1 && warned[0].contains(&missing), "{warned:?}");
    let document = found.json();
    let away = document["targets_away"].as_array().unwrap();
    assert_eq!((found.status, away.len(), &document["problems"]), (1, 3, &serde_json::json!([])), "{document}");
    assert!(away.iter().all(|target| target["blocks"] == document["stripes"]), "{document}");
    assert_eq!(volume.on(&["status"]).status, 1);
    volume.scratch.disks[..3].iter().for_each(|disk| fs::rename(disk.with_extension("away"), disk).unwrap());
    // It waits for the mirrors of the metadata that were away.
    volume.is_healthy();
}

/// Nobody else on the machine may look into a volume past its permissions.
#[test]
fn what_a_volume_consists_of_is_its_owners_alone() {
    fn assert_private(path: &Path) {
        let about = fs::symlink_metadata(path).unwrap();
        let others = about.permissions().mode() & 0o077;
        assert_eq!(others, 0, "{} is open to others: {others:o}", path.display());
        let below = if about.is_dir() { fs::read_dir(path).unwrap().collect() } else { Vec::new() };
        below.into_iter().for_each(|entry| assert_private(&entry.unwrap().path()));
    }
    let volume = Volume::new("rs:2+1", 3);
    volume.put(volume.scratch.file("f", 3_000_000), "").good();
    assert_private(&volume.path);
    // The directories of the disks were there before.
    for disk in &volume.scratch.disks[..3] {
        fs::read_dir(disk).unwrap().for_each(|entry| assert_private(&entry.unwrap().path()));
    }
}

/// A target that is away may have what nothing else has.
#[test]
fn a_rebuild_without_a_target_says_so() {
    let volume = Volume::new("rs:2+1", 4);
    volume.put(volume.scratch.file("f", 3_000_000), "").good();
    fs::remove_dir_all(&volume.scratch.disks[3]).unwrap();
    let made = volume.on(&["fsck", "--rebuild", "--force"]);
    let text = String::from_utf8(made.output).unwrap();
    assert!(made.status == 1 && text.contains("what is only there cannot be brought back"), "{text}");
    assert!(volume.cat("f").good() == noise(3_000_000));
}

/// What a rebuild cannot bring back is an exit status, too.
#[test]
fn a_rebuild_that_lacks_something_says_so() {
    let volume = Volume::new("rs:2+1", 3);
    volume.put(volume.scratch.file("f", 3_000_000), "").good();
    (0..2).for_each(|disk| volume.chunks(disk).iter().for_each(|chunk| fs::remove_file(chunk).unwrap()));
    let made = volume.on(&["fsck", "--rebuild", "--force", "--json"]);
    assert_eq!((made.status, made.json()["problems"].as_array().map(Vec::len)), (1, Some(1)), "{}", made.errors);
    let made = volume.on(&["fsck", "--rebuild", "--force"]);
    let text = String::from_utf8(made.output).unwrap();
    assert!(made.status == 1 && text.contains("NOT ALL could be brought back"), "{text}");
}

#[test]
fn a_volume_grows_and_shrinks() {
    let volume = Volume::new("rs:2+1", 3);
    volume.put(volume.scratch.file("f", 3_000_000), "").good();
    // Relative, and through `..`, from another directory than that of the volume.
    let below = volume.scratch.path.join("below");
    fs::create_dir(&below).unwrap();
    let target = |arguments: &[&str]| run(weft().current_dir(&below).args(["target"]).args(arguments));
    target(&["add", "../a volume", "../more"]).good();
    let drained = target(&["drain", "../a volume", "../disk1"]).good();
    assert!(String::from_utf8_lossy(&drained).contains("no longer a target"));
    fs::remove_dir_all(&volume.scratch.disks[1]).unwrap();
    volume.is_healthy();
    assert!(volume.cat("f").good() == noise(3_000_000));
    let targets = volume.on(&["status", "--json"]).json()["targets"].clone();
    let paths: Vec<&str> = targets.as_array().unwrap().iter().map(|target| target["path"].as_str().unwrap()).collect();
    assert_eq!(paths.len(), 3);
    assert!(paths.iter().all(|path| !path.contains("..") && !path.ends_with("disk1")), "{paths:?}");
}

#[test]
fn a_lost_volume_directory_is_created_again() {
    let volume = Volume::new("rs:4+2", 6);
    let disks = &volume.scratch.disks;
    volume.put(volume.scratch.file("f", 3_000_000), "").good();
    fs::remove_dir_all(&volume.path).unwrap();
    assert!(volume.cat("f").failed(1).contains("weft volume open"));
    // Moved, and two of them gone.
    fs::remove_dir_all(&disks[5]).unwrap();
    fs::remove_dir_all(&disks[2]).unwrap();
    let moved = volume.scratch.path.join("moved");
    fs::rename(&disks[0], &moved).unwrap();
    let said = run(weft().arg("reopen").arg(&volume.path).arg(&volume.scratch.path)).failed(1);
    assert!(said.contains("not a target"), "{said}");
    run(weft().arg("reopen").arg(&volume.path).arg(&moved).args([&disks[1], &disks[3], &disks[4]])).good();
    assert!(volume.cat("f").good() == noise(3_000_000));
    assert!(run(weft().arg("reopen").arg(&volume.path).arg(&moved)).failed(1).contains("is a volume already"));
}

#[test]
fn metadata_is_rebuilt_from_chunks() {
    let volume = Volume::new("rs:4+2", 6);
    let tree = volume.scratch.path.join("tree");
    fs::create_dir_all(tree.join("a/b")).unwrap();
    for number in 0..20 {
        fs::write(tree.join("a/b").join(format!("f{number}")), noise(40_000 + number)).unwrap();
    }
    volume.put(&tree, "").good();
    for disk in &volume.scratch.disks {
        for below in ["journal", "snapshots"] {
            for entry in fs::read_dir(disk.join(below)).unwrap() {
                fs::remove_file(entry.unwrap().path()).unwrap();
            }
        }
    }
    volume.on(&["status"]).failed(1);
    let made = volume.on(&["fsck", "--rebuild", "--json"]);
    assert_eq!((made.status, &made.json()["files"]), (0, &20.into()), "{}", made.errors);
    run(weft().args(["cp", "-r"]).arg(volume.at("tree")).arg(volume.scratch.path.join("out"))).good();
    for number in 0..20 {
        let path = format!("a/b/f{number}");
        assert!(fs::read(volume.scratch.path.join("out").join(path)).unwrap() == noise(40_000 + number));
    }
    volume.is_healthy();
}

#[test]
fn a_newer_format_and_foreign_directories_are_refused() {
    let volume = Volume::new("rs:2+1", 3);
    edit(&volume.path.join("volume.json"), |bytes| {
        *bytes = String::from_utf8_lossy(bytes).replace("\"format\": 2", "\"format\": 4").into_bytes();
    });
    assert!(volume.on(&["status"]).failed(1).contains("of format 4"));
    fs::write(volume.path.join("volume.json"), "{").unwrap();
    assert!(volume.on(&["status"]).failed(1).contains("is not a label"));
    fs::remove_file(volume.path.join("volume.json")).unwrap();
    assert!(volume.on(&["status"]).failed(1).contains("is not a volume"));
}
