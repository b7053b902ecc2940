//! `weft mount` and `weft unmount`.

use super::{SERVED, open, remote};
use crate::failure::{Failure, Outcome};
use crate::show;
use clap::Args;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use volume::Shown;

/// Mount a volume: its files appear under a directory
#[derive(Args)]
#[command(after_help = "Examples:
  weft mount /srv/films /mnt
  weft mount /srv/films /mnt -o ro
  weft mount /srv/films /mnt --foreground

It goes on in the background, and writes what goes wrong to mount.log in the volume directory, until weft unmount, umount or SIGTERM,
which commit everything first.")]
pub struct MountArguments {
    /// The volume
    volume: PathBuf,
    /// An empty directory
    mountpoint: PathBuf,
    /// Options, separated by commas: ro, allow_other, noallow_other, nosuid, nodev, noexec, sync, ...
    #[arg(short, value_name = "OPTIONS")]
    options: Vec<String>,
    /// Stay in the foreground
    #[arg(long)]
    foreground: bool,
    /// Tell the process that waits in front that the mount is there
    #[arg(long, hide = true)]
    tell: bool,
}

/// What a mount in the background says when it is there.
const READY: &str = "mounted";

pub fn mount(arguments: &MountArguments, as_json: bool) -> Outcome {
    if arguments.foreground { in_foreground(arguments) } else { in_background(arguments, as_json) }
}

fn in_foreground(arguments: &MountArguments) -> Outcome {
    let mut options = fuse::parse_options(&arguments.options.join(",")).map_err(Failure::Usage)?;
    options.fs_name = arguments.volume.to_string_lossy().into_owned();
    let opened = open(&arguments.volume, options.read_only)?;
    let fs = opened.fs.clone();
    // Handlers of signals come first, so that none ends the process between the mount and them.
    let (signal, signalled) = std::sync::mpsc::channel();
    ctrlc::set_handler(move || _ = signal.send(()))
        .map_err(|why| Failure::Other(format!("cannot handle signals: {why}")))?;
    let mounted = std::sync::Arc::new(
        fuse::mount(fs.clone(), &arguments.mountpoint, &options).map_err(|why| Failure::Other(why.to_string()))?,
    );
    let _ = SERVED.set(fs.clone());
    let socket = remote::serve(&arguments.volume);
    if arguments.tell {
        println!("{READY}");
        let _ = std::io::stdout().flush();
    }
    let unmounter = mounted.clone();
    std::thread::spawn(move || {
        while signalled.recv().is_ok() {
            // Programs may still use it: then it goes from the tree now, and ends when they do.
            if let Err(why) = unmounter.unmount(false) {
                show::warning(format_args!("{why}; files are still open, so it ends when they are closed"));
                let _ = unmounter.unmount(true);
            }
        }
    });
    let waited = mounted.wait().map_err(|why| Failure::Other(why.to_string()));
    drop(socket);
    let closed = fs.close_volume();
    waited?;
    Ok(closed?)
}

/// Starts this program again in the foreground of a session of its own, and waits until it says that the mount is there.
fn in_background(arguments: &MountArguments, as_json: bool) -> Outcome {
    let failed = |what: &str, why: &dyn std::fmt::Display| Failure::Other(format!("cannot {what}: {why}"));
    fuse::parse_options(&arguments.options.join(",")).map_err(Failure::Usage)?;
    // A volume that is none is refused before there is a log in it.
    fs::label::Label::read_pointer(&arguments.volume)?;
    let log_path = arguments.volume.join("mount.log");
    let log = std::fs::OpenOptions::new().create(true).append(true).open(&log_path);
    let log = log.map_err(|why| failed(&format!("write to {}", Shown(&log_path)), &why))?;
    let begin = log.metadata().map_or(0, |log| log.len());
    let program = std::env::current_exe().map_err(|why| failed("find this program", &why))?;
    let mut command = Command::new(program);
    command.args(["mount", "--foreground", "--tell"]).args(arguments.options.iter().flat_map(|o| ["-o", o]));
    command.arg("--").arg(&arguments.volume).arg(&arguments.mountpoint);
    // A group of its own, so that Ctrl-C in the terminal does not reach it.
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).process_group(0);
    let mut child = command.spawn().map_err(|why| failed("start the mount", &why))?;
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        let _ = BufReader::new(output).read_line(&mut line);
    }
    if line.trim() != READY {
        let _ = child.wait();
        let log = std::fs::read(&log_path).unwrap_or_default();
        let said = String::from_utf8_lossy(log.get(begin as usize..).unwrap_or_default()).into_owned();
        let last = said.lines().last().unwrap_or("the mount ended without a word");
        return Err(Failure::Other(last.trim_start_matches("weft: ").to_string()));
    }
    if as_json {
        return show::json(&serde_json::json!({
            "volume": show::path(&arguments.volume),
            "mountpoint": show::path(&arguments.mountpoint),
            "process": child.id(),
        }));
    }
    show::text(format_args!("{} is mounted on {}", Shown(&arguments.volume), Shown(&arguments.mountpoint)))
}

/// Unmount a volume; everything is committed first
#[derive(Args)]
#[command(after_help = "Examples:
  weft unmount /mnt
  weft unmount /mnt --lazy")]
pub struct UnmountArguments {
    /// Where it is mounted
    mountpoint: PathBuf,
    /// Take it from the tree now, though files in it are open; it ends when they are closed
    #[arg(long)]
    lazy: bool,
}

pub fn unmount(arguments: &UnmountArguments) -> Outcome {
    let source = mounted_volume(&arguments.mountpoint);
    fuse::unmount(&arguments.mountpoint, arguments.lazy).map_err(|why| Failure::Other(why.to_string()))?;
    // The process of the mount commits and closes the volume before it ends; then its lock is free.
    if let Some(volume) = source.filter(|_| !arguments.lazy) {
        fs::wait_until_closed(&volume);
    }
    Ok(())
}

/// The volume directory that is mounted there, as the mount says.
fn mounted_volume(mountpoint: &std::path::Path) -> Option<PathBuf> {
    let mountpoint = mountpoint.canonicalize().ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    let line = mounts.lines().rfind(|line| {
        let mut words = line.split(' ').skip(1);
        words.next().is_some_and(|at| std::path::Path::new(at) == mountpoint)
            && words.next().is_some_and(|kind| kind == "fuse.weft")
    })?;
    line.split(' ').next().map(PathBuf::from)
}
