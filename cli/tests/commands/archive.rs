//! Archives: trees that go into a volume and come back, jobs that are killed, plans, checks.

use crate::scratch::{Ended, edit, name, noise, run, run_with_input, weft};
use crate::volumes::Volume;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// A tree of small files, large ones, holes, links and odd names.
fn grow(root: &Path, small: usize) {
    for n in 0..small {
        let directory = root.join(format!("d{}", n % 7));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(format!("f{n}")), noise(n * 13 % 6000)).unwrap();
    }
    fs::write(root.join("large"), noise(3_500_000)).unwrap();
    let sparse = fs::File::create(root.join("sparse")).unwrap();
    sparse.write_all_at(b"data", 5 << 20).unwrap();
    sparse.set_len(6 << 20).unwrap();
    fs::write(root.join(name(b"new\nline \xFF")), b"odd").unwrap();
    fs::write(root.join("n".repeat(255)), b"long").unwrap();
    fs::hard_link(root.join("large"), root.join("d1/large too")).unwrap();
    symlink("/absent", root.join("link")).unwrap();
    let _ = xattr::set(root.join("large"), "user.colour", b"blue");
    fs::set_permissions(root.join("d2"), PermissionsExt::from_mode(0o750)).unwrap();
    fs::File::open(root.join("d3")).unwrap().set_modified(std::time::UNIX_EPOCH + Duration::new(1, 5)).unwrap();
}

/// What there is of each path of a tree: content and attributes, and the first of its names.
fn seen(root: &Path) -> BTreeMap<PathBuf, String> {
    fn look(root: &Path, path: &Path, all: &mut BTreeMap<PathBuf, String>, first: &mut BTreeMap<u64, PathBuf>) {
        let below = path.strip_prefix(root).unwrap().to_path_buf();
        let about = path.symlink_metadata().unwrap();
        let content = if about.is_file() { fs::read(path).unwrap() } else { Vec::new() };
        let sum = gf::checksum::crc64(&content);
        let link = fs::read_link(path).ok();
        let colour = if about.is_file() { xattr::get(path, "user.colour").ok().flatten() } else { None };
        let (size, same) = match about.is_dir() {
            true => (0, below.clone()),
            false => (about.size(), first.entry(about.ino()).or_insert(below.clone()).clone()),
        };
        let (mode, owner, time) = (about.mode(), (about.uid(), about.gid()), (about.mtime(), about.mtime_nsec()));
        all.insert(below, format!("{mode:o} {owner:?} {time:?} {size} {sum} {link:?} {colour:?} {same:?}"));
        if about.is_dir() {
            let mut entries: Vec<PathBuf> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
            entries.sort();
            entries.iter().for_each(|entry| look(root, entry, all, first));
        }
    }
    let mut all = BTreeMap::new();
    look(root, root, &mut all, &mut BTreeMap::new());
    all
}

/// The last line of JSON that a job printed.
#[track_caller]
fn facts(ended: &Ended) -> serde_json::Value {
    let text = String::from_utf8_lossy(&ended.output);
    let last = text.lines().last().unwrap_or_else(|| panic!("{}", ended.errors));
    // Each line names its type, and has its content under that key.
    for line in text.lines() {
        let line = serde_json::from_str::<serde_json::Value>(line).unwrap();
        let kind = line["type"].as_str().unwrap();
        assert!(["progress", "problem", "facts"].contains(&kind) && line[kind].is_object(), "{line}");
    }
    serde_json::from_str::<serde_json::Value>(last).unwrap()["facts"].clone()
}

/// What is in a directory.
fn content_of(directory: &Path) -> PathBuf {
    directory.join("")
}

#[test]
fn a_job_that_is_killed_again_and_again_comes_to_its_end() {
    let volume = Volume::new("rs:4+2", 6);
    let from = volume.scratch.path.join("from");
    grow(&from, 1500);
    let command = |workers: u32, more: &[&str]| {
        let mut command = weft();
        command.arg("archive").args(["--part-bytes", "1MiB", "--workers", &workers.to_string()]).args(more);
        command.arg(content_of(&from)).arg(volume.at("kept/tree"));
        command
    };
    for round in 0..10 {
        // Slow enough to be hit in the middle.
        let mut job = command(1 + round % 4, &["--limit", "8MiB"]).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(60 + 30 * u64::from(round)));
        job.kill().unwrap();
        job.wait().unwrap();
    }
    let done = run(command(3, &[]).arg("--json"));
    assert_eq!(done.status, 0, "{}", done.errors);
    let (done, again) = (facts(&done), run(&mut command(2, &["--json"])));
    let files = |facts: &serde_json::Value, what: &str| facts[what].as_u64().unwrap();
    // 1500 small files, large, sparse and two odd names; the other name of large is one more when
    // it was there before.
    let all = files(&done, "files") + files(&done, "unchanged_files");
    assert!((1504..=1505).contains(&all), "{done:#}");
    let again = facts(&again);
    assert_eq!(files(&again, "files"), 0, "nothing is left to do");

    for disk in [1, 4] {
        fs::remove_dir_all(&volume.scratch.disks[disk]).unwrap();
    }
    let to = volume.scratch.path.join("to");
    run(weft().arg("restore").arg(volume.at("kept/tree")).arg(&to)).good();
    assert_eq!(seen(&to), seen(&from));
    // Nothing of the jobs is left beside the archive but its manifest.
    let listed = run(weft().arg("ls").arg(volume.at("kept"))).good();
    assert_eq!(String::from_utf8_lossy(&listed), "tree\ntree.b3sums\n");
    assert!(!to.join(".weft-restore").exists());
}

/// Each read of a restore finds targets missing, whichever two they are.
#[test]
fn a_restore_does_without_any_two_targets() {
    let volume = Volume::new("rs:4+2", 6);
    let from = volume.scratch.path.join("from");
    grow(&from, 300);
    run(weft().args(["archive", "--part-bytes", "1MiB"]).arg(content_of(&from)).arg(volume.at("kept"))).good();
    let away = |disk: usize| volume.scratch.path.join(format!("away{disk}"));
    for pair in [[0, 1], [2, 5], [3, 4]] {
        pair.iter().for_each(|&disk| fs::rename(&volume.scratch.disks[disk], away(disk)).unwrap());
        let to = volume.scratch.path.join(format!("to{}", pair[0]));
        run(weft().arg("restore").arg(volume.at("kept")).arg(&to)).good();
        assert_eq!(seen(&to), seen(&from), "without {pair:?}");
        pair.iter().for_each(|&disk| fs::rename(away(disk), &volume.scratch.disks[disk]).unwrap());
    }
}

#[test]
fn chunks_alone_give_the_files_of_an_archive() {
    let volume = Volume::new("rs:4+2", 6);
    let from = volume.scratch.path.join("from");
    fs::create_dir(&from).unwrap();
    for n in 0..200usize {
        fs::write(from.join(format!("f{n}")), noise(1 + n * 37 % 5000)).unwrap();
    }
    fs::write(from.join("large"), noise(3_000_000)).unwrap();
    let archive = ["archive", "--part-bytes", "1MiB"];
    run(weft().args(archive).arg(&from).arg(volume.at("a"))).good();
    // The files say what they are, where the file system lets them.
    let chunk = volume.chunks(2).pop().unwrap();
    let tag = |name: &str| xattr::get(&chunk, name).unwrap().map(|value| String::from_utf8(value).unwrap());
    if xattr::set(&from, "user.probe", b"1").is_ok() {
        assert_eq!(tag("user.weft.code").as_deref(), Some("rs:4+2"));
        assert_eq!((tag("user.weft.k").as_deref(), tag("user.weft.m").as_deref()), (Some("4"), Some("2")));
        let position: u32 = tag("user.weft.position").unwrap().parse().unwrap();
        assert!(chunk.to_string_lossy().contains(&format!(".{position:03}.")), "{chunk:?}");
    }
    for disk in &volume.scratch.disks {
        for below in ["journal", "snapshots"] {
            for entry in fs::read_dir(disk.join(below)).unwrap() {
                fs::remove_file(entry.unwrap().path()).unwrap();
            }
        }
    }
    volume.on(&["fsck", "--rebuild"]).good();
    let to = volume.scratch.path.join("to");
    run(weft().arg("restore").arg(volume.at("a/from")).arg(&to)).good();
    for entry in fs::read_dir(&from).unwrap() {
        let name = entry.unwrap().file_name();
        assert!(fs::read(to.join(&name)).unwrap() == fs::read(from.join(&name)).unwrap(), "{name:?}");
    }
}

#[test]
fn a_plan_is_carried_out_as_it_is() {
    let volume = Volume::new("rs:2+1", 3);
    let from = volume.scratch.path.join("from");
    grow(&from, 50);
    fs::create_dir(from.join("empty")).unwrap();
    let plan = volume.scratch.path.join("plan");
    let mut dry = weft();
    dry.arg("archive").args(["--dry-run", "--json", "--plan"]).arg(&plan).arg(content_of(&from)).arg(volume.at("a"));
    let planned = run(&mut dry);
    let line = String::from_utf8(planned.output.clone()).unwrap();
    let planned: serde_json::Value = serde_json::from_str(line.lines().last().unwrap()).unwrap();
    assert_eq!(planned["plan"]["files"], 55, "each name of a file is one: {line}");
    assert!(planned["plan"]["estimated_seconds"].is_null());
    assert_eq!(String::from_utf8_lossy(&run(weft().arg("ls").arg(volume.at(""))).good()), "", "nothing was made");
    let mut names = fs::read_dir(&volume.scratch.path).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(names.all(|name| !name.as_encoded_bytes().starts_with(b".weft-plan")));
    // A run that was killed leaves its file empty; one that fails removes it.
    let part = volume.scratch.path.join("part");
    fs::write(&part, "").unwrap();
    assert!(run(weft().args(["archive", "--execute"]).arg(&part)).failed(1).contains("this is not a plan"));
    let mut refused = weft();
    refused.arg("archive").args(["--dry-run", "--plan"]).arg(volume.scratch.path.join("none"));
    assert_ne!(run(refused.arg(content_of(&from.join("absent"))).arg(volume.at("a"))).status, 0);
    assert!(!volume.scratch.path.join("none").exists());
    // What is new or was changed since is not in it.
    fs::write(from.join("d0/f7"), b"changed").unwrap();
    fs::write(from.join("new"), b"new").unwrap();
    let done = run(weft().args(["archive", "--execute"]).arg(&plan));
    assert_eq!(done.status, 1);
    assert!(done.errors.contains("d0/f7: it is not what it was when the plan was made"), "{}", done.errors);
    let to = volume.scratch.path.join("to");
    run(weft().arg("restore").arg(volume.at("a")).arg(&to)).good();
    let (mut wanted, found) = (seen(&from), seen(&to));
    for gone in ["d0/f7", "new"] {
        assert!(wanted.remove(Path::new(gone)).is_some() && !to.join(gone).exists());
    }
    // The directories were changed since, too.
    let files = |seen: &BTreeMap<PathBuf, String>| {
        seen.iter()
            .filter(|(_, what)| !what.starts_with('4'))
            .map(|(path, what)| (path.clone(), what.clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(files(&found), files(&wanted));
    assert!(to.join("empty").is_dir());
    // Now there is a pace to go by.
    fs::remove_file(&plan).unwrap();
    let again = run(weft().args(["archive", "--dry-run", "--json"]).arg(content_of(&from)).arg(volume.at("a")));
    let text = String::from_utf8_lossy(&again.output).into_owned();
    let again: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(again["plan"]["files"], 2, "{text}");
    assert!(again["plan"]["estimated_seconds"].as_f64().is_some());
}

#[test]
fn lists_and_globs_choose() {
    let volume = Volume::new("rs:2+1", 3);
    let from = volume.scratch.path.join("from");
    grow(&from, 30);
    let list = b"d1/f1\0new\nline \xFF\0d2\0absent\0../outside\0";
    let mut listed = weft();
    listed.args(["archive", "--files-from", "-", "--null"]).arg(&from).arg(volume.at("listed"));
    let ended = run_with_input(&mut listed, list);
    assert_eq!(ended.status, 1);
    assert!(ended.errors.contains("absent: No such file") && ended.errors.contains(".. in it"), "{}", ended.errors);
    // Names that are not UTF-8 are in JSON, too.
    let shown = run(weft().args(["ls", "--json"]).arg(volume.at("listed"))).json();
    let odd = shown.as_array().unwrap().iter().find(|entry| entry.get("name_hex").is_some()).unwrap().clone();
    assert_eq!((&odd["name"], &odd["name_hex"]), (&"new\nline \u{fffd}".into(), &"6e65770a6c696e6520ff".into()));
    let to = volume.scratch.path.join("listed");
    run(weft().arg("restore").arg(volume.at("listed")).arg(&to)).good();
    let paths: Vec<PathBuf> = seen(&to).into_keys().collect();
    let wanted: Vec<PathBuf> = ["", "d1", "d1/f1", "d2"]
        .map(PathBuf::from)
        .into_iter()
        .chain([PathBuf::from(name(b"new\nline \xFF"))])
        .collect();
    assert_eq!(paths, wanted);

    let globs = ["archive", "--include", "f*", "--include", "large", "--exclude", "/d1", "--exclude", "f?"];
    run(weft().args(globs).arg(content_of(&from)).arg(volume.at("globs"))).good();
    let to = volume.scratch.path.join("globs");
    run(weft().args(["restore", "--exclude", "f2*"]).arg(volume.at("globs")).arg(&to)).good();
    let files: Vec<PathBuf> = seen(&to).into_keys().filter(|path| to.join(path).is_file()).collect();
    let wanted: Vec<PathBuf> = (0..30)
        .filter(|n| n % 7 != 1 && *n >= 10 && !(20..30).contains(n))
        .map(|n| PathBuf::from(format!("d{}/f{n}", n % 7)))
        .chain([PathBuf::from("large")])
        .collect();
    assert_eq!(files.into_iter().collect::<std::collections::BTreeSet<_>>(), wanted.into_iter().collect());
}

#[test]
fn archives_are_checked_against_what_was_read() {
    let volume = Volume::new("rs:2+1", 3);
    let from = volume.scratch.path.join("from");
    grow(&from, 40);
    let page = volume.scratch.path.join("page.html");
    let verify = ["archive", "--verify", "--energy", "--report"];
    let archived = run(weft().args(verify).arg(&page).arg(content_of(&from)).arg(volume.at("a")));
    assert_eq!(archived.status, 0, "{}", archived.errors);
    let again = run(weft().args(verify).arg(&page).arg(content_of(&from)).arg(volume.at("a")));
    assert!(again.failed(1).contains("page.html exists; give --force to replace it"));
    let phases = ["explore", "encode", "commit", "verify"].map(|phase| format!("<th scope=\"row\">{phase}</th>"));
    let page = fs::read_to_string(page).unwrap();
    assert!(phases.iter().all(|phase| page.contains(phase)), "{page}");
    run(weft().args(["verify", "--manifest"]).arg(volume.at("a"))).good();
    run(weft().args(["verify", "--manifest"]).arg(volume.at("a")).arg(&from)).good();
    // As b3sum prints it.
    let manifest = String::from_utf8_lossy(&run(weft().arg("cat").arg(volume.at("a.b3sums"))).good()).into_owned();
    assert_eq!(manifest.lines().count(), 45);
    // A change that neither size nor time shows.
    let file = from.join("d4/f11");
    let time = fs::metadata(&file).unwrap().modified().unwrap();
    edit(&file, |bytes| bytes[0] ^= 1);
    fs::File::open(&file).unwrap().set_modified(time).unwrap();
    let found = run(weft().args(["verify", "--manifest"]).arg(volume.at("a")).arg(&from));
    assert_eq!(found.status, 1);
    assert!(found.errors.contains("d4/f11: its content is not what was archived"), "{}", found.errors);

    let stripes = |ended: Ended| ended.json()["stripes"].as_u64().unwrap();
    assert!(stripes(volume.on(&["verify", "--json"])) > 0);
    assert_eq!(stripes(volume.on(&["verify", "--new", "--json"])), 0);
    volume.put(volume.scratch.file("more", 300_000), "more").good();
    assert_eq!(stripes(volume.on(&["verify", "--new", "--json"])), 1);
}

#[test]
fn a_restore_stays_where_it_was_sent() {
    let volume = Volume::new("rs:2+1", 3);
    let from = volume.scratch.path.join("from");
    fs::create_dir_all(from.join("sub")).unwrap();
    fs::write(from.join("sub/file"), b"archived").unwrap();
    fs::write(from.join("other"), b"archived").unwrap();
    run(weft().arg("archive").arg(content_of(&from)).arg(volume.at("a"))).good();
    let (to, outside) = (volume.scratch.path.join("to"), volume.scratch.path.join("outside"));
    fs::create_dir_all(&to).unwrap();
    fs::create_dir_all(&outside).unwrap();
    symlink(&outside, to.join("sub")).unwrap();
    symlink(outside.join("other"), to.join("other")).unwrap();
    for force in [&[][..], &["--force"]] {
        let ended = run(weft().arg("restore").args(force).arg(volume.at("a")).arg(&to));
        assert_eq!(ended.status, 1);
        assert!(ended.errors.contains("a/sub"), "{}", ended.errors);
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    }
    // With force the link itself was replaced, not what it leads to.
    assert_eq!(fs::read(to.join("other")).unwrap(), b"archived");
    assert!(to.join("sub").is_symlink());
}

#[test]
fn mistakes_are_named() {
    let volume = Volume::new("rs:2+1", 3);
    let file = volume.scratch.file("f", 10);
    let said = |arguments: &[&std::ffi::OsStr], status| run(weft().arg("archive").args(arguments)).failed(status);
    assert!(said(&[file.as_os_str(), file.as_os_str()], 2).contains("is not a file of a volume"));
    let address = volume.at("a");
    assert!(said(&["..".as_ref(), &address], 2).contains("has no name"));
    assert!(said(&["--include".as_ref(), "[".as_ref(), file.as_os_str(), &address], 2).contains("is not a pattern"));
    assert!(said(&["absent/".as_ref(), &address], 1).contains("absent: No such file"));
    assert!(said(&["--execute".as_ref(), file.as_os_str()], 1).contains("this is not a plan"));
    let gone = run(weft().arg("restore").arg(volume.at("nothing")).arg(volume.scratch.path.join("to"))).failed(1);
    assert!(gone.contains("/nothing: no such file"), "{gone}");
}
