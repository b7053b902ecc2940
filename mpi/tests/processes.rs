//! A job of many processes, played by threads: everything but MPI itself.

use archive::report::{Ending, Facts};
use fs::{Create, FileSystem, OpenOptions, ROOT};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use volume::Control;
use weft_mpi::command::Arguments;
use weft_mpi::process_message::ProcessMessage;
use weft_mpi::router::Router;
use weft_mpi::{follow, work};

struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weft-mpi-threads-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn volume(&self) -> PathBuf {
        let create = Create::new("volume", "rs:4+2", (0..6).map(|number| self.0.join(format!("t{number}"))).collect());
        create.run(&self.0.join("volume")).unwrap();
        self.0.join("volume")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Of an archive, where the words do not say what else.
fn arguments(words: &[&str]) -> Arguments {
    let task = if matches!(words[0], "restore" | "verify") { &[][..] } else { &["archive"] };
    let all = ["weft-mpi"].iter().chain(task).chain(words).map(OsString::from);
    Arguments::read(all).unwrap_or_else(|why| panic!("{why}"))
}

/// Carries out a job on hosts with these names. `harm` may do something to the control of any
/// process.
fn job(hosts: &'static [&'static str], words: &[&str], harm: impl Fn(&[Arc<Control>])) -> Result<Facts, String> {
    let controls: Vec<Arc<Control>> = hosts.iter().map(|_| Arc::default()).collect();
    let count = hosts.len() as u32;
    let made: Vec<_> = (0..).zip(&controls).map(|(me, control)| Router::new(me, count, control.clone())).collect();
    let routers: Vec<Arc<Router>> = made.iter().map(|(router, ..)| router.clone()).collect();
    harm(&controls);
    let mut followers = Vec::new();
    let mut leader = None;
    for ((me, host), (router, outgoing, mail)) in (0..).zip(hosts).zip(made) {
        let all = routers.clone();
        std::thread::spawn(move || {
            outgoing.into_iter().for_each(|(to, bytes)| all[to as usize].deliver(me, &bytes).unwrap())
        });
        let arguments = arguments(words);
        match me {
            0 => leader = Some((router, mail, arguments, *host)),
            _ => followers.push(std::thread::spawn(move || follow(&router, &mail, &arguments, host))),
        }
    }
    let (router, mail, arguments, host) = leader.unwrap();
    let done = work(&router, &mail, &arguments, host);
    router.send_all(&ProcessMessage::End);
    followers.into_iter().for_each(|follower| follower.join().unwrap());
    match done.map_err(|why| why.to_string())? {
        (facts, None) => Ok(facts),
        (_, Some(why)) => Err(why),
    }
}

fn tree(place: &Place) -> String {
    for number in 0..40u8 {
        let directory = place.0.join(format!("tree/d{}", number % 3));
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join(format!("f{number}")), vec![number; 500 * usize::from(number)]).unwrap();
    }
    std::fs::write(place.0.join("tree/large"), vec![9; 5 << 20]).unwrap();
    format!("{}/", place.0.join("tree").display())
}

fn content(volume: &Path, path: &str) -> Vec<u8> {
    let volume = FileSystem::open_volume(volume, OpenOptions { read_only: true, ..OpenOptions::default() }).unwrap();
    let mut at = volume.attributes(ROOT).unwrap();
    for name in path.split('/') {
        at = volume.lookup(at.ino, name.as_bytes()).unwrap();
    }
    let mut bytes = vec![0; at.size as usize];
    assert_eq!(volume.read(at.ino, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

#[test]
fn processes_archive_what_is_there_and_others_find_it_done() {
    let place = Place::new("all");
    let (volume, from) = (place.volume(), tree(&place));
    let to = format!("{}:/a", volume.display());
    let words = [from.as_str(), to.as_str(), "--part-bytes", "1MiB"];
    let facts = job(&["a", "a", "a", "a", "b"], &words, |_| ()).unwrap();
    assert_eq!((facts.ending, facts.files, facts.errors.count()), (Ending::Finished, 41, 0));
    assert_eq!(facts.transport, "MPI with 5 ranks on 2 nodes");
    let names: Vec<&str> = facts.workers.iter().map(|worker| worker.name.as_str()).collect();
    assert_eq!(names, ["rank 3 on a", "rank 4 on b"]);
    assert!(facts.written.bytes > facts.bytes && facts.written.chunk_sets > 0, "{:?}", facts.written);
    assert_eq!(content(&volume, "a/large"), vec![9; 5 << 20]);
    assert_eq!(content(&volume, "a/d1/f25"), vec![25; 12_500]);
    for hosts in [&["a"] as &'static [&'static str], &["a", "a"], &["a", "b", "a"]] {
        let again = job(hosts, &words, |_| ()).unwrap();
        assert_eq!((again.ending, again.files, again.unchanged_files), (Ending::Finished, 0, 41), "{hosts:?}");
    }
}

/// Files below a directory, with their content and modes.
fn listing(root: &Path) -> Vec<(PathBuf, u32, Vec<u8>)> {
    use std::os::unix::fs::PermissionsExt;
    let (mut left, mut out) = (vec![root.to_owned()], vec![]);
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(directory).unwrap().flatten() {
            let (path, found) = (entry.path(), entry.metadata().unwrap());
            let content = if found.is_dir() { vec![] } else { std::fs::read(&path).unwrap() };
            out.push((path.strip_prefix(root).unwrap().to_owned(), found.permissions().mode(), content));
            if found.is_dir() {
                left.push(path);
            }
        }
    }
    out.sort();
    out
}

#[test]
fn processes_restore_and_verify_what_they_archived() {
    let place = Place::new("back");
    let (volume, from) = (place.volume(), tree(&place));
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o711);
    std::fs::set_permissions(place.0.join("tree/d1"), mode).unwrap();
    let archive = format!("{}:/a", volume.display());
    job(&["a"; 4], &[&from, &archive, "--part-bytes", "1MiB"], |_| ()).unwrap();
    // With two targets gone, so that what is read is decoded.
    ["t1", "t4"]
        .iter()
        .for_each(|name| std::fs::rename(place.0.join(name), place.0.join(format!("{name}-away"))).unwrap());
    for (number, hosts) in [&["a"] as &'static [&'static str], &["a", "a"], &["a"; 5]].into_iter().enumerate() {
        let to = place.0.join(format!("back{number}"));
        let words = ["restore", &archive, to.to_str().unwrap()];
        let facts = job(hosts, &words, |_| ()).unwrap();
        assert_eq!((facts.ending, facts.files, facts.errors.count()), (Ending::Finished, 41, 0), "{hosts:?}");
        assert_eq!(listing(&to), listing(&place.0.join("tree")), "{hosts:?}");
        let again = job(hosts, &words, |_| ()).unwrap();
        assert_eq!((again.files, again.unchanged_files), (0, 41), "{hosts:?}");
    }
    ["t1", "t4"]
        .iter()
        .for_each(|name| std::fs::rename(place.0.join(format!("{name}-away")), place.0.join(name)).unwrap());
    let found = job(&["a"; 5], &["verify", &archive], |_| ()).unwrap();
    assert_eq!((found.ending, found.files, found.errors.count()), (Ending::Finished, 41, 0));
    std::fs::write(place.0.join("tree/d2/f20"), vec![21; 10_000]).unwrap();
    let source = place.0.join("tree");
    let found = job(&["a"; 4], &["verify", &archive, source.to_str().unwrap()], |_| ()).unwrap();
    assert_eq!((found.ending, found.errors.count()), (Ending::Finished, 1), "{:?}", found.errors);
}

#[test]
fn any_process_stops_the_job() {
    let place = Place::new("stop");
    let (volume, from) = (place.volume(), tree(&place));
    let to = format!("{}:/a", volume.display());
    let stopped = job(&["a"; 4], &[&from, &to], |controls| controls[0].cancel()).unwrap();
    assert_eq!(stopped.ending, Ending::Interrupted);
    let rest = job(&["a"; 4], &[&from, &to], |_| ()).unwrap();
    assert_eq!((rest.ending, rest.files + rest.unchanged_files), (Ending::Finished, 41));
}

#[test]
fn silence_and_nonsense_end_the_job() {
    let (leader, ..) = Router::new(0, 2, Arc::default());
    let now = std::time::Instant::now();
    for seconds in (6..200).step_by(6) {
        if let Err(why) = leader.tick(now + std::time::Duration::from_secs(seconds)) {
            assert!(seconds >= 120 && why.0.contains("rank 1 "), "{why}");
            assert!(leader.deliver(1, &[255; 9]).unwrap_err().0.contains("rank 1"));
            return;
        }
    }
    panic!("nobody missed rank 1");
}
