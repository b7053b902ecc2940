//! `weft mount` and `weft unmount`.

use super::create::coded_by_servers;
use super::hosted::{Hosted, Serving};
use super::metrics::{metrics_address, tell};
use super::mount_directory::MountDirectory;
use super::mounts::{directory_of_mount, mounted_volume};
use super::{Writing, open_with, remote, respond, runtime, server_of};
use crate::failure::{Failure, Outcome};
use crate::show;
use clap::Args;
use cluster::metrics::MountMetrics;
use plan::sizes;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use volume::Shown;

/// Mount a volume at a directory
#[derive(Args)]
#[command(after_help = "Examples:
  weft mount /srv/films /mnt
  weft mount /srv/films /mnt -o ro
  weft mount /srv/films /mnt --foreground
  weft mount weft://127.0.0.1:7600/films /mnt
  weft mount --config /etc/weft/weft.toml
  weft mount weft://127.0.0.1:7600/films /mnt \\
      --coding server
  weft mount weft://127.0.0.1:7600/films /mnt \\
      -o coding=server,torus=1,0,3

The mount runs in the background until `weft unmount`, umount or SIGTERM; each of these commits everything first. It \
writes errors to mount.log in the volume directory; for a volume of a cluster, in a directory below /run/weft.

fsync makes a file durable at once. Other data is committed 5 seconds after the kernel has written its pages back.

Several machines can mount a volume that a server has, and see the same files. -o writeback lets the kernel keep \
written data; that is faster, and for one writer at a time.

While a volume is mounted, the mount carries out `weft status`, ls, stat, target, and volume verify, repair and fsck.")]
pub struct MountArguments {
    /// The volume
    volume: PathBuf,
    /// An empty directory
    mountpoint: PathBuf,
    /// Options, separated by commas, such as ro, allow_other, noallow_other, nosuid, nodev, noexec,
    /// sync, writeback and coding=server
    #[arg(short, long, value_name = "OPTIONS", env = "WEFT_OPTIONS")]
    options: Vec<String>,
    /// Who codes stripes: client, server (the storage servers) or auto; also -o coding=WHO
    /// [default: what the volume says]
    #[arg(long, value_name = "WHO", env = "WEFT_CODING")]
    coding: Option<fs::Coding>,
    /// User data of a stripe at most, on a volume of a cluster; also -o stripe_bytes=SIZE [default:
    /// about 4 MiB]
    #[arg(long, value_name = "SIZE", value_parser = sizes::length::<usize>, env = "WEFT_STRIPE_BYTES")]
    stripe_bytes: Option<usize>,
    /// Connections to each storage server that calls share; also -o channels=N [default: 4]
    #[arg(
        long, value_name = "N", env = "WEFT_CHANNELS",
        value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=64)
    )]
    channels: Option<usize>,
    /// With server coding, the store that codes all stripes it has a block of:
    /// store://HOST:PORT; also -o master=STORE [default: another one for each chunk set]
    #[arg(long, value_name = "STORE", env = "WEFT_MASTER")]
    master: Option<String>,
    /// Where this machine is in the volume's torus, so that near stores code more of its stripes;
    /// also -o torus=PLACE [default: only the ways between stores count]
    #[arg(long, value_name = "PLACE", env = "WEFT_TORUS")]
    torus: Option<fs::Coordinates>,
    /// Serve metrics over HTTP for Prometheus: /metrics, /health and /ready
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = metrics_address, env = "WEFT_METRICS")]
    metrics: Option<SocketAddr>,
    /// Wait this long for a metadata server that does not answer; then programs get an error, and
    /// an unmounted mount ends without it
    #[arg(
        long,
        default_value_t = 300,
        value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(1..=86400),
        env = "WEFT_PATIENCE"
    )]
    patience: u64,
    /// Stay in the foreground
    #[arg(long, env = "WEFT_FOREGROUND")]
    foreground: bool,
    /// Tell the process that waits in front that the mount is there
    #[arg(long, hide = true)]
    tell: bool,
    /// The process in front took the directory for the log and the socket, and gave its lock on
    #[arg(long, hide = true)]
    held: bool,
    /// Say nothing when it is there
    #[arg(long, hide = true)]
    quiet: bool,
}

impl MountArguments {
    fn options(&self) -> Result<fuse::Options, Failure> {
        let mut options = fuse::parse_options(&self.options.join(",")).map_err(Failure::Usage)?;
        options.coding = self.coding.or(options.coding);
        options.stripe_bytes = self.stripe_bytes.or(options.stripe_bytes);
        options.channels = self.channels.or(options.channels);
        options.master = self.master.clone().or(options.master);
        options.torus = self.torus.clone().or(options.torus);
        Ok(options)
    }
}

/// What a mount in the background says when it is there.
const READY: &str = "mounted";

pub fn mount(arguments: &MountArguments, identity: Option<&Path>, as_json: bool) -> Outcome {
    if arguments.foreground { in_foreground(arguments) } else { in_background(arguments, identity, as_json) }
}

/// An error of a mount as a line.
fn failed(why: impl std::fmt::Display) -> Failure {
    Failure::Other(volume::shown(why.to_string().as_bytes()))
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|why| Failure::Other(format!("{}: {why}", Shown(path))))
}

/// Refuses what only clients of a metadata server can do, if the volume has no such server.
fn of_clients(options: &fuse::Options, volume: &Path) -> Outcome {
    if (options.stripe_bytes.is_some() || options.master.is_some()) && server_of(volume)?.is_none() {
        return Err(Failure::Usage("--stripe-bytes and --master are for a volume that a server has".into()));
    }
    Ok(())
}

/// A volume as it is named from everywhere on this machine.
fn named(volume: &Path) -> Result<PathBuf, Failure> {
    if server_of(volume)?.is_some() { Ok(volume.to_path_buf()) } else { absolute(volume) }
}

fn in_foreground(arguments: &MountArguments) -> Outcome {
    let mut options = arguments.options()?;
    let volume = named(&arguments.volume)?;
    if options.fs_name == fuse::Options::default().fs_name {
        options.fs_name = volume.to_string_lossy().into_owned();
    }
    cluster::set_server_timeout(Duration::from_secs(arguments.patience));
    let writing = Writing {
        coding: options.coding,
        stripe_bytes: options.stripe_bytes,
        master: options.master.clone().map(PathBuf::from),
        at: options.torus.clone(),
    };
    of_clients(&options, &volume)?;
    options.channels.into_iter().for_each(cluster::set_channels);
    let opened = open_with(&volume, options.read_only, &writing)?;
    let mountpoint = absolute(&arguments.mountpoint)?;
    // The directory for log and socket, if a server has the volume: others use that volume too, so
    // nothing in it is this mount's own.
    let mount_directory = match server_of(&volume)? {
        Some(_) if arguments.held => Some(MountDirectory::given(&mountpoint)?),
        Some(_) => Some(MountDirectory::take(&mountpoint)?),
        None => None,
    };
    let directory =
        mount_directory.as_ref().map_or_else(|| volume.clone(), |mount_directory| mount_directory.path.clone());
    let outcome = serve(arguments, &options, &opened.fs, &directory);
    if let Some(mount_directory) = mount_directory {
        // The error is in the log there, if a process waited in the foreground; otherwise it was
        // printed.
        mount_directory.end(outcome.is_ok() || !arguments.held);
    }
    outcome
}

/// Serves a mount to its end.
fn serve(arguments: &MountArguments, options: &fuse::Options, fs: &Arc<fs::FileSystem>, directory: &Path) -> Outcome {
    tell(arguments.metrics, || Arc::new(MountMetrics::new(fs.clone(), super::places().stores().clone())))?;
    // Handlers of signals come first, so that none ends the process between the mount and them.
    let (signal, signalled) = std::sync::mpsc::channel();
    ctrlc::set_handler(move || _ = signal.send(()))
        .map_err(|why| Failure::Other(format!("cannot handle signals: {why}")))?;
    let mounted = Arc::new(fuse::mount(fs.clone(), &arguments.mountpoint, options).map_err(failed)?);
    let hosted = Arc::<Hosted>::default();
    hosted.set_serving(Serving {
        fs: fs.clone(),
        place: format!("mounted on {}; use its files there, or unmount it first", Shown(mounted.path())),
        to_others: false,
    });
    fs.rebalance_by_itself();
    let watched = mounted.clone();
    let served = respond::serve(directory, hosted, move || watched.is_there());
    if arguments.tell {
        // Otherwise it would keep a file system from being unmounted.
        let _ = std::env::set_current_dir("/");
        println!("{READY}");
        let _ = std::io::stdout().flush();
    }
    show::begin_log();
    let unmounter = mounted.clone();
    let signalled_fs = fs.clone();
    std::thread::spawn(move || {
        while signalled.recv().is_ok() {
            // Programs may still use it: then it goes from the tree now, and ends when they do.
            let unmounted = unmounter.unmount(false);
            if let Err(why) = &unmounted {
                show::warning(format_args!("{}; it ends when it is no longer used", failed(why)));
                let _ = unmounter.unmount(true);
            }
            // What the programs have handed over until now need not wait for them. Bind mounts keep
            // a file system that was unmounted. Its end says itself what is lost.
            match signalled_fs.sync_written() {
                Err(why) if unmounted.is_err() => show::warning(why),
                _ => {}
            }
        }
    });
    let waited = mounted.wait().map_err(failed);
    if let Some(served) = &served {
        served.stop();
    }
    let closed = fs.close_volume().map_err(|why| match fs.uncommitted() {
        (0, _) => why.into(),
        (files, bytes) => {
            let files = show::count(files, "file");
            Failure::Other(format!("{bytes} bytes of {files} that nobody synced are lost: {why}"))
        }
    });
    let outcome = closed.and(waited);
    if let Some(served) = &served {
        served.ended(&outcome);
    }
    outcome
}

/// The end of the log of a mount: opened for appending, and where it ended before.
struct Log {
    path: PathBuf,
    file: File,
    begin: u64,
}

impl Log {
    /// In the volume directory; of a volume that cannot be written, in a file in the runtime
    /// directory that is removed as soon as the mount is there.
    fn open(volume: &Path) -> Result<Self, Failure> {
        let open = |path: PathBuf| -> std::io::Result<Self> {
            let file = runtime::append_to(&path)?;
            Ok(Self { begin: file.metadata()?.len(), path, file })
        };
        let failed = |path: &Path, why: std::io::Error| {
            Failure::Other(format!("cannot write to {} in {}: {why}", runtime::LOG, Shown(path)))
        };
        match open(volume.join(runtime::LOG)) {
            Err(why) if why.kind() == std::io::ErrorKind::ReadOnlyFilesystem => {
                let elsewhere = runtime::log_elsewhere()?;
                open(elsewhere.clone()).map_err(|why| failed(&elsewhere, why))
            }
            opened => opened.map_err(|why| failed(volume, why)),
        }
    }

    /// The last line that was written since.
    fn last(&self) -> Option<String> {
        let log = std::fs::read(&self.path).ok()?;
        let said = String::from_utf8_lossy(log.get(self.begin as usize..)?).into_owned();
        Some(said.lines().last()?.trim_start_matches("weft: ").to_string())
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if self.path.file_name() != Some(runtime::LOG.as_ref()) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Starts this program again in the foreground of a process group of its own, and waits until it
/// says that the mount is there.
fn in_background(arguments: &MountArguments, identity: Option<&Path>, as_json: bool) -> Outcome {
    let identity = identity.map(absolute).transpose()?;
    let failed = |what: &str, why: &dyn std::fmt::Display| Failure::Other(format!("cannot {what}: {why}"));
    let options = arguments.options()?;
    of_clients(&options, &arguments.volume)?;
    // A path that is not a volume is refused before a log is created in it.
    if server_of(&arguments.volume)?.is_none() {
        let label = fs::label::Label::read_pointer(&arguments.volume)?;
        if options.coding == Some(fs::Coding::Server) {
            coded_by_servers(label.members().map(|member| &member.path))?;
        }
    }
    let (volume, mountpoint) = (named(&arguments.volume)?, absolute(&arguments.mountpoint)?);
    let mount_directory = if server_of(&volume)?.is_some() { Some(MountDirectory::take(&mountpoint)?) } else { None };
    let log = Log::open(mount_directory.as_ref().map_or(&volume, |mount_directory| &mount_directory.path))?;
    let program = std::env::current_exe().map_err(|why| failed("find this program", &why))?;
    let mut command = Command::new(program);
    command
        .args(["mount", "--foreground", "--tell"])
        .args(identity.iter().flat_map(|place| ["--identity".as_ref(), place.as_os_str()]))
        .args(arguments.options.iter().flat_map(|o| ["-o", o]))
        .args(arguments.metrics.iter().flat_map(|address| ["--metrics".into(), address.to_string()]))
        .args(arguments.coding.iter().flat_map(|coding| ["--coding".into(), coding.to_string()]))
        .args(arguments.stripe_bytes.iter().flat_map(|bytes| ["--stripe-bytes".into(), bytes.to_string()]))
        .args(arguments.channels.iter().flat_map(|channels| ["--channels".into(), channels.to_string()]))
        .args(arguments.master.iter().flat_map(|master| ["--master", master]))
        .args(arguments.torus.iter().flat_map(|at| ["--torus".into(), at.to_string()]))
        .args(["--patience".into(), arguments.patience.to_string()])
        .args(mount_directory.iter().map(|_| "--held"));
    command.arg("--").arg(volume).arg(mountpoint);
    let errors = log.file.try_clone().map_err(|why| failed("write a log", &why))?;
    // A group of its own, so that Ctrl-C in the terminal does not reach it.
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors).process_group(0);
    if let Some(mount_directory) = &mount_directory {
        // Inherited, so that the directory is the mount's for as long as it lives.
        command.stdin(mount_directory.lock().map_err(|why| failed("hold the log's directory", &why))?);
    }
    let mut child = command.spawn().map_err(|why| failed("start the mount", &why))?;
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        let _ = BufReader::new(output).read_line(&mut line);
    }
    if line.trim() != READY {
        let _ = child.wait();
        let why = log.last().unwrap_or_else(|| "the mount ended without a word".into());
        if let Some(mount_directory) = mount_directory {
            // It is said here.
            mount_directory.end(true);
        }
        return Err(Failure::Other(why));
    }
    if as_json {
        return show::json(&serde_json::json!({
            "volume": show::path(&arguments.volume),
            "mountpoint": show::path(&arguments.mountpoint),
            "process": child.id(),
        }));
    }
    match arguments.quiet {
        true => Ok(()),
        false => {
            show::text(format_args!("{} is mounted on {}", Shown(&arguments.volume), Shown(&arguments.mountpoint)))
        }
    }
}

/// Unmount a volume, after everything is committed
#[derive(Args)]
#[command(after_help = "Examples:
  weft unmount /mnt
  weft unmount /mnt --lazy

It returns when everything is committed and the volume can be opened again. umount(8) and --lazy return earlier.")]
pub struct UnmountArguments {
    /// Where it is mounted
    mountpoint: PathBuf,
    /// Detach it now, even if files in it are open; it ends when they are closed
    #[arg(long)]
    lazy: bool,
}

pub fn unmount(arguments: &UnmountArguments, as_json: bool) -> Outcome {
    let mounted = mounted_volume(&arguments.mountpoint);
    let volume = mounted.and_then(|volume| directory_of_mount(volume, &arguments.mountpoint));
    let end = volume.as_deref().filter(|_| !arguments.lazy).and_then(remote::end_of);
    fuse::unmount(&arguments.mountpoint, arguments.lazy).map_err(|why| match why {
        fuse::Error::Busy(..) => failed(format_args!("{why}; --lazy detaches it at once")),
        why => failed(why),
    })?;
    // The process of the mount commits and closes the volume before it ends; then its lock is free.
    if let Some(end) = end {
        end.wait()?;
    }
    if let Some(volume) = volume.filter(|volume| !arguments.lazy && volume.is_dir()) {
        fs::wait_until_closed(&volume);
    }
    if as_json {
        show::json(&serde_json::json!({ "mountpoint": show::path(&arguments.mountpoint) }))?;
    }
    Ok(())
}
