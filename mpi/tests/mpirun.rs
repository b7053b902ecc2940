//! `weft-mpi` under `mpirun`, as a user runs it. Needs Open MPI: `cargo xtask test` runs it if that
//! is installed.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A directory of a test, removed in the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weft-mpi-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// `weft`, which lies beside `weft-mpi`: `cargo xtask test` builds both.
fn weft(words: &[&str]) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_weft-mpi")).with_file_name("weft");
    let output = Command::new(&program).args(words).output().expect("weft was built beside weft-mpi");
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn mpirun(ranks: u32, words: &[&str]) -> Command {
    let mut command = Command::new("mpirun");
    command.args(["--oversubscribe", "-n", &ranks.to_string(), env!("CARGO_BIN_EXE_weft-mpi")]).args(words);
    // Tests run as root where there is no other user.
    command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn text(output: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn volume(place: &Place, name: &str) -> String {
    let directory = place.at(name).to_str().unwrap().to_owned();
    let targets: Vec<String> = (0..6).map(|number| format!("{directory}-{number}")).collect();
    let targets = targets.iter().map(String::as_str);
    weft(&["create", &directory, "--code", "rs:4+2"].into_iter().chain(targets).collect::<Vec<_>>());
    directory
}

/// A tree of many small files, some large ones, and what else there is.
fn tree(place: &Place, files: usize, large_bytes: usize) -> String {
    let root = place.at("tree");
    let mut random = fastrand::Rng::with_seed(7);
    let mut content = |length: usize| std::iter::repeat_with(|| random.u8(..)).take(length).collect::<Vec<_>>();
    for number in 0..files {
        let directory = root.join(format!("d{}", number % 7));
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join(format!("file {number}")), content(number * 37 % 9000)).unwrap();
    }
    for number in 0..3 {
        std::fs::write(root.join(format!("large-{number}")), content(large_bytes + number)).unwrap();
    }
    std::fs::hard_link(root.join("large-0"), root.join("d0/another name")).unwrap();
    std::os::unix::fs::symlink("large-1", root.join("link")).unwrap();
    std::fs::create_dir(root.join("empty")).unwrap();
    root.to_str().unwrap().to_owned()
}

/// What a tree has, but for times of access.
fn listing(root: &Path) -> String {
    use std::os::unix::fs::MetadataExt;
    let mut out = String::new();
    let mut left = vec![root.to_path_buf()];
    while let Some(directory) = left.pop() {
        let mut entries: Vec<_> = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
        entries.sort();
        for path in entries {
            let found = std::fs::symlink_metadata(&path).unwrap();
            let name = path.strip_prefix(root).unwrap().display();
            let (mode, links, changed) = (found.mode(), found.nlink(), (found.mtime(), found.mtime_nsec()));
            let content = match found.is_file() {
                true => std::fs::read(&path)
                    .unwrap()
                    .into_iter()
                    .fold(0u64, |sum, byte| sum.wrapping_mul(0x0100_0000_01b3) ^ u64::from(byte)),
                false => 0,
            };
            writeln!(out, "{name} {mode:o} {links} {changed:?} {content:x} {:?}", std::fs::read_link(&path).ok())
                .unwrap();
            if found.is_dir() {
                left.push(path);
            }
        }
    }
    out
}

fn restored(place: &Place, volume: &str, name: &str) -> String {
    let to = place.at(name);
    weft(&["restore", &format!("{volume}:/a"), to.to_str().unwrap()]);
    listing(&to)
}

#[test]
fn ranks_make_what_threads_make() {
    let place = Place::new("same");
    let tree = tree(&place, 300, 3 << 20);
    let expected = listing(Path::new(&tree));
    let (by_threads, from) = (volume(&place, "threads"), format!("{tree}/"));
    weft(&["archive", &from, &format!("{by_threads}:/a")]);
    assert_eq!(restored(&place, &by_threads, "back"), expected);
    for ranks in [1, 2, 4, 6] {
        let by_ranks = volume(&place, &format!("ranks{ranks}"));
        let to = format!("{by_ranks}:/a");
        let words = ["archive", &from, &to, "--part-bytes", "1MiB", "--json"];
        let output = mpirun(ranks, &words).output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        let report = String::from_utf8_lossy(&output.stdout).lines().last().unwrap_or_default().to_owned();
        let working = ranks.saturating_sub(3).max(1);
        assert!(report.contains(&format!("rank {} on ", ranks - 1)), "{report}");
        let idle = (0..ranks - working).find(|rank| report.contains(&format!("rank {rank} on ")));
        assert_eq!(idle, None, "only those that work are workers: {report}");
        assert_eq!(restored(&place, &by_ranks, &format!("back{ranks}")), expected, "{ranks} ranks");
        // Nothing is left to do; which program finds that does not matter.
        let again = weft(&["archive", &from, &to, "--json"]);
        assert!(again.contains("\"files\":0"), "{again}");
        let back = place.at(&format!("by-ranks{ranks}"));
        for words in [vec!["restore", &to, back.to_str().unwrap()], vec!["verify", &to]] {
            let output = mpirun(ranks, &words).output().unwrap();
            assert!(output.status.success(), "{words:?}: {}", text(&output));
        }
        assert_eq!(listing(&back), expected, "{ranks} ranks");
    }
}

/// The processes of a job, but for `mpirun`, by their rank.
fn ranks_of(command_line_has: &str) -> Vec<(u32, u32)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let read = |name: &str| std::fs::read(entry.path().join(name)).unwrap_or_default();
        let (line, environment) = (read("cmdline"), read("environ"));
        let line = String::from_utf8_lossy(&line).into_owned();
        let rank = environment.split(|&byte| byte == 0).find_map(|variable| {
            String::from_utf8_lossy(variable).strip_prefix("OMPI_COMM_WORLD_RANK=").and_then(|rank| rank.parse().ok())
        });
        if let (true, Some(rank)) = (line.contains(command_line_has), rank) {
            found.push((rank, process));
        }
    }
    found
}

fn signal(name: &str, process: u32) {
    assert!(Command::new("kill").args([name, &process.to_string()]).status().unwrap().success());
}

/// Begins a slow job, does something to it when it has begun to write, and returns how it ended.
fn disturbed(place: &Place, from: &str, volume: &str, disturb: impl Fn(u32, &[(u32, u32)])) -> Output {
    let to = format!("{volume}:/a");
    let job = mpirun(5, &["archive", from, &to, "--limit", "4MiB", "--part-bytes", "1MiB"]).spawn().unwrap();
    let begun = Instant::now();
    let mut ranks = Vec::new();
    while ranks.len() < 5 || begun.elapsed() < Duration::from_secs(60) && chunks(place, volume) < (2 << 20) {
        assert!(begun.elapsed() < Duration::from_secs(60), "the job does not begin");
        std::thread::sleep(Duration::from_millis(100));
        ranks = ranks_of(&to);
    }
    disturb(job.id(), &ranks);
    job.wait_with_output().unwrap()
}

/// Bytes of the chunks on the first target.
fn chunks(place: &Place, volume: &str) -> u64 {
    let name = Path::new(volume).file_name().unwrap().to_str().unwrap();
    let mut left = vec![place.at(&format!("{name}-0")).join("chunks")];
    let mut bytes = 0;
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(found) if found.is_dir() => left.push(entry.path()),
                found => bytes += found.map_or(0, |found| found.len()),
            }
        }
    }
    bytes
}

#[test]
fn a_rank_that_dies_ends_the_job_and_the_next_one_goes_on() {
    let place = Place::new("kill");
    let tree = tree(&place, 50, 16 << 20);
    let (volume, from) = (volume(&place, "volume"), format!("{tree}/"));
    let killed = disturbed(&place, &from, &volume, |_, ranks| {
        let worker = ranks.iter().find(|(rank, _)| *rank == 4).expect("there are five ranks");
        signal("-KILL", worker.1);
    });
    assert!(!killed.status.success(), "{}", text(&killed));
    assert!(text(&killed).contains("rank 4"), "{}", text(&killed));
    let stopped = disturbed(&place, &from, &volume, |mpirun, _| signal("-TERM", mpirun));
    assert!(!stopped.status.success(), "{}", text(&stopped));
    let rest = mpirun(4, &["archive", &from, &format!("{volume}:/a")]).output().unwrap();
    assert!(rest.status.success(), "{}", text(&rest));
    assert_eq!(restored(&place, &volume, "back"), listing(Path::new(&tree)));
}

#[test]
fn mistakes_are_told_once() {
    let place = Place::new("wrong");
    let volume = volume(&place, "volume");
    let nowhere = place.at("nowhere").to_str().unwrap().to_owned();
    for (words, what) in [
        (vec!["archive", &nowhere, "/no/such/volume:/a"], "/no/such/volume"),
        (vec!["archive", &format!("{nowhere}/"), &format!("{volume}:/a")], "nowhere"),
        (vec!["archive", "--workers", "0", "/tmp", &format!("{volume}:/a")], "--workers"),
    ] {
        let output = mpirun(4, &words).output().unwrap();
        assert!(!output.status.success());
        let lines = text(&output);
        let errors = lines.lines().filter(|line| line.contains("weft: ") || line.contains("error: ")).count();
        assert!(errors == 1 && lines.contains(what), "{lines}");
    }
}
