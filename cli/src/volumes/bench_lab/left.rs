//! What a run leaves when it is killed, and how the next one removes it.
//!
//! A run has a file with its number in `/run`, or in the user's own place where that is not to be
//! written to. It holds the file locked; the kernel ends the lock with the process, however that
//! ends. So a file without a lock, and a namespace without a file, are of a run that is over. Its
//! processes are those in its namespaces, and those that work in its directories.

use super::commands::{PREFIX, run_of};
use super::groups;
use super::own_disk;
use super::tool::tool;
use crate::failure::Failure;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use volume::Shown;

/// What the names of the temporary directories of each bench begin with; then come the process and
/// a number.
pub const WRITE_COST: &str = "weft-write-cost-";
pub const PLACEMENT: &str = "weft-placement-";
/// How long a killed process may need to end.
const DYING: Duration = Duration::from_secs(10);

/// A run that goes on. When this goes, its namespaces, mounts and directories go, too.
pub struct Run {
    pub number: u32,
    parent: PathBuf,
    /// Where the files of runs are.
    runs: PathBuf,
    /// Locked.
    _file: File,
}

impl Run {
    /// Removes what earlier ones left, and begins one whose directories are in `parent`.
    pub fn begin(parent: &Path) -> Result<Self, Failure> {
        let runs = runs();
        let failed = |why: std::io::Error| cannot(&runs, &why);
        let parent = parent.canonicalize().map_err(|why| cannot(parent, &why))?;
        fs::create_dir_all(&runs).map_err(failed)?;
        remove_left(&runs)?;
        let number = std::process::id();
        // It is locked before others see it.
        let new = runs.join(format!("{number}.new"));
        let mut file = File::create(&new).map_err(failed)?;
        file.write_all(parent.as_os_str().as_bytes()).map_err(failed)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|why| failed(why.into()))?;
        fs::rename(&new, runs.join(number.to_string())).map_err(failed)?;
        Ok(Self { number, parent, runs, _file: file })
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let removed =
            turn(&self.runs).and_then(|_turn| remove(&self.runs, self.number, Some(&self.parent), &namespaces()?));
        if let Err(why) = removed {
            eprintln!("weft: what the bench made is not removed: {why}");
        }
    }
}

fn cannot(path: &Path, why: &std::io::Error) -> Failure {
    Failure::Other(format!("{}: {why}", Shown(path)))
}

/// Where the files of runs are: for root in a place that all its processes share, since so are the
/// namespaces.
fn runs() -> PathBuf {
    match rustix::process::geteuid() {
        user if user.is_root() => "/run/weft-bench".into(),
        user => std::env::temp_dir().join(format!("weft-bench-{}", user.as_raw())),
    }
}

/// Waits until no other run removes anything; the lock ends with the file.
fn turn(runs: &Path) -> Result<File, Failure> {
    let failed = |why: std::io::Error| cannot(runs, &why);
    let file = File::create(runs.join("lock")).map_err(failed)?;
    flock(&file, FlockOperation::LockExclusive).map_err(|why| failed(why.into()))?;
    Ok(file)
}

/// All namespaces of benches; none for somebody who cannot have any.
fn namespaces() -> Result<Vec<String>, Failure> {
    if !rustix::process::geteuid().is_root() || Command::new("ip").arg("-V").output().is_err() {
        return Ok(Vec::new());
    }
    let names = tool(&["ip", "netns", "list"])?;
    let names = names.lines().filter_map(|line| line.split_whitespace().next());
    Ok(names.filter(|name| name.starts_with(PREFIX)).map(str::to_owned).collect())
}

/// Removes what is of runs that are over.
fn remove_left(place: &Path) -> Result<(), Failure> {
    let _turn = turn(place)?;
    // The namespaces first: a run has its file before it has one.
    let all = namespaces()?;
    let mut runs: BTreeSet<u32> = all.iter().filter_map(|name| run_of(name)).collect();
    let files = fs::read_dir(place).map_err(|why| cannot(place, &why))?;
    runs.extend(files.filter_map(|file| file.ok()?.file_name().to_str()?.parse::<u32>().ok()));
    for run in runs {
        let mut parent = None;
        if let Ok(mut file) = File::open(place.join(run.to_string())) {
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
                continue;
            }
            let mut path = Vec::new();
            let read = file.read_to_end(&mut path);
            parent = read.is_ok().then(|| PathBuf::from(OsStr::from_bytes(&path)));
        }
        remove(place, run, parent.as_deref(), &all)?;
    }
    Ok(())
}

/// Ends the processes of a run, and removes all it has.
fn remove(runs: &Path, run: u32, parent: Option<&Path>, namespaces: &[String]) -> Result<(), Failure> {
    let own: Vec<&String> = namespaces.iter().filter(|name| run_of(name) == Some(run)).collect();
    for name in &own {
        end(|| {
            let processes = tool(&["ip", "netns", "pids", name])?;
            Ok(processes.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)).collect())
        })?;
    }
    let is_own = |name: &str| [WRITE_COST, PLACEMENT].iter().any(|of| name.starts_with(&format!("{of}{run}-")));
    let entries = parent.and_then(|parent| fs::read_dir(parent).ok()).into_iter().flatten();
    for directory in entries.filter_map(Result::ok) {
        if !is_own(&directory.file_name().to_string_lossy()) {
            continue;
        }
        end(|| Ok(working_in(&directory.path())))?;
        own_disk::remove_all(&directory.path());
        // What may still be mounted is left alone.
        let unmounted = unmount(directory.path().join("mountpoint"), UnmountFlags::DETACH);
        if matches!(unmounted, Ok(()) | Err(Errno::INVAL | Errno::NOENT | Errno::PERM)) {
            let _ = fs::remove_dir_all(directory.path());
        }
    }
    groups::remove(run);
    for name in own {
        tool(&["ip", "netns", "delete", name])?;
    }
    let _ = fs::remove_file(runs.join(run.to_string()));
    Ok(())
}

/// Kills processes until there are none.
fn end(processes: impl Fn() -> Result<Vec<Pid>, Failure>) -> Result<(), Failure> {
    let begun = Instant::now();
    loop {
        let left = processes()?;
        if left.is_empty() || begun.elapsed() > DYING {
            return Ok(());
        }
        left.into_iter().for_each(|process| _ = kill_process(process, Signal::KILL));
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The processes that work in a directory. A process that ends has none.
fn working_in(directory: &Path) -> Vec<Pid> {
    let process = |entry: fs::DirEntry| {
        let process = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
        (fs::read_link(entry.path().join("cwd")).ok()? == directory).then_some(process)
    };
    fs::read_dir("/proc").into_iter().flatten().filter_map(|entry| process(entry.ok()?)).collect()
}
