//! What a run leaves when it is killed, and how the next one removes it.
//!
//! A run has a file in `/run` with its number, which it holds locked; the kernel ends the lock with
//! the process, however that ends. So a file without a lock, and a namespace without a file, are
//! of a run that is over.

use super::commands::{PREFIX, run_of};
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
use std::time::{Duration, Instant};
use volume::Shown;

/// What the names of temporary directories begin with; then come the process and a number.
pub const DIRECTORY: &str = "weft-write-cost-";
/// Where the files of runs are.
const RUNS: &str = "/run/weft-bench";
/// How long a killed process may need to end.
const DYING: Duration = Duration::from_secs(10);

/// A run that goes on. When this goes, its namespaces, mounts and directories go, too.
pub struct Run {
    pub number: u32,
    parent: PathBuf,
    /// Locked.
    _file: File,
}

impl Run {
    /// Removes what earlier ones left, and begins one whose directories are in `parent`.
    pub fn begin(parent: &Path) -> Result<Self, Failure> {
        let failed = |why: std::io::Error| Failure::Other(format!("{RUNS}: {why}"));
        let parent = parent.canonicalize().map_err(|why| Failure::Other(format!("{}: {why}", Shown(parent))))?;
        fs::create_dir_all(RUNS).map_err(failed)?;
        remove_left()?;
        let number = std::process::id();
        // It is locked before others see it.
        let new = Path::new(RUNS).join(format!("{number}.new"));
        let mut file = File::create(&new).map_err(failed)?;
        file.write_all(parent.as_os_str().as_bytes()).map_err(failed)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|why| failed(why.into()))?;
        fs::rename(&new, place(number)).map_err(failed)?;
        Ok(Self { number, parent, _file: file })
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let removed = turn().and_then(|_turn| remove(self.number, Some(&self.parent), &namespaces()?));
        if let Err(why) = removed {
            eprintln!("weft: the network of the bench is not removed: {why}");
        }
    }
}

fn place(number: u32) -> PathBuf {
    Path::new(RUNS).join(number.to_string())
}

/// Waits until no other run removes anything; the lock ends with the file.
fn turn() -> Result<File, Failure> {
    let failed = |why: std::io::Error| Failure::Other(format!("{RUNS}: {why}"));
    let file = File::create(Path::new(RUNS).join("lock")).map_err(failed)?;
    flock(&file, FlockOperation::LockExclusive).map_err(|why| failed(why.into()))?;
    Ok(file)
}

/// All namespaces of benches.
fn namespaces() -> Result<Vec<String>, Failure> {
    let names = tool(&["ip", "netns", "list"])?;
    let names = names.lines().filter_map(|line| line.split_whitespace().next());
    Ok(names.filter(|name| name.starts_with(PREFIX)).map(str::to_owned).collect())
}

/// Removes what is of runs that are over.
fn remove_left() -> Result<(), Failure> {
    let _turn = turn()?;
    // The namespaces first: a run has its file before it has one.
    let all = namespaces()?;
    let mut runs: BTreeSet<u32> = all.iter().filter_map(|name| run_of(name)).collect();
    let files = fs::read_dir(RUNS).map_err(|why| Failure::Other(format!("{RUNS}: {why}")))?;
    runs.extend(files.filter_map(|file| file.ok()?.file_name().to_str()?.parse::<u32>().ok()));
    for run in runs {
        let mut parent = None;
        if let Ok(mut file) = File::open(place(run)) {
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
                continue;
            }
            let mut path = Vec::new();
            let read = file.read_to_end(&mut path);
            parent = read.is_ok().then(|| PathBuf::from(OsStr::from_bytes(&path)));
        }
        remove(run, parent.as_deref(), &all)?;
    }
    Ok(())
}

/// Ends the processes of a run, and removes all it has.
fn remove(run: u32, parent: Option<&Path>, namespaces: &[String]) -> Result<(), Failure> {
    let own: Vec<&String> = namespaces.iter().filter(|name| run_of(name) == Some(run)).collect();
    let begun = Instant::now();
    for name in &own {
        loop {
            let processes = tool(&["ip", "netns", "pids", name])?;
            let mut processes = processes.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)).peekable();
            if processes.peek().is_none() || begun.elapsed() > DYING {
                break;
            }
            processes.for_each(|process| _ = kill_process(process, Signal::KILL));
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let prefix = format!("{}{run}-", DIRECTORY);
    let entries = parent.and_then(|parent| fs::read_dir(parent).ok()).into_iter().flatten();
    for directory in entries.filter_map(Result::ok) {
        if !directory.file_name().to_string_lossy().starts_with(&prefix) {
            continue;
        }
        // What may still be mounted is left alone.
        let unmounted = unmount(directory.path().join("mountpoint"), UnmountFlags::DETACH);
        if matches!(unmounted, Ok(()) | Err(Errno::INVAL | Errno::NOENT)) {
            let _ = fs::remove_dir_all(directory.path());
        }
    }
    for name in own {
        tool(&["ip", "netns", "delete", name])?;
    }
    let _ = fs::remove_file(place(run));
    Ok(())
}
