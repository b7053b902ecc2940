//! `weft-csi`: persistent volumes of Kubernetes on a Weft volume, by the Container Storage
//! Interface 1.13 over gRPC. It runs `weft mount`, and everything else is operations on files.

mod controller;
mod driver;
mod identity;
mod messages;
mod mounts;
mod node;
mod rpc;
mod volumes;

use clap::Parser;
use driver::Driver;
use mounts::WeftMount;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::UnixListener;
use tokio::sync::oneshot;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

/// How long a container's other processes have to end. Its manifest gives it 60 seconds.
const ENDS_WITHIN: Duration = Duration::from_secs(40);
/// How long calls have to end.
const CALLS_END_WITHIN: Duration = Duration::from_secs(10);

/// Serve persistent volumes of Kubernetes (CSI 1.13): each is a directory of a Weft volume
#[derive(Parser)]
#[command(
    name = "weft-csi",
    version,
    after_help = "Examples:
  weft-csi --endpoint unix:///csi/csi.sock --node worker1 \\
      --volume weft://10.0.0.1:7600,10.0.0.2:7600/films

Environment variables are passed on to weft mount: WEFT_IDENTITY, WEFT_OPTIONS and others configure it. \
docs/kubernetes.md has manifests, and says what happens to mounts when the driver's pod ends."
)]
struct Arguments {
    /// The socket to serve
    #[arg(long, env = "CSI_ENDPOINT", value_name = "unix://PATH")]
    endpoint: String,
    /// What Kubernetes calls this machine
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    node: String,
    /// The Weft volume
    #[arg(long, env = "WEFT_VOLUME", value_name = "VOLUME")]
    volume: OsString,
    /// The directory in it for persistent volumes
    #[arg(long, env = "WEFT_ROOT", value_name = "PATH", default_value = "/kubernetes")]
    root: String,
    /// Where to mount it
    #[arg(long, value_name = "DIR", default_value = "/var/lib/weft-csi/mount")]
    mount: PathBuf,
    /// The program weft
    #[arg(long, value_name = "PROGRAM", default_value = "weft")]
    weft: PathBuf,
    /// The name of the driver
    #[arg(long, value_name = "NAME", default_value = "csi.weft")]
    name: String,
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("weft-csi: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<(), String> {
    let Some(socket) = arguments.endpoint.strip_prefix("unix:").map(|path| path.trim_start_matches("//")) else {
        return Err(format!("--endpoint {}: give it as unix://PATH", arguments.endpoint));
    };
    let parts = || arguments.root.split('/').filter(|part| !part.is_empty());
    if parts().next().is_none() || parts().any(|part| part.starts_with('.')) {
        return Err(format!("--root {}: the path of a directory in the volume, without dots", arguments.root));
    }
    let mount = WeftMount::new(arguments.weft, arguments.volume, arguments.mount);
    let (removals, asked) = channel();
    let driver = Arc::new(Driver::new(arguments.name, arguments.node, mount, &arguments.root, removals));
    let remover = driver.clone();
    std::thread::spawn(move || remover.remove_what_is_deleted(&asked));
    match fs::remove_file(socket) {
        Err(why) if why.kind() != ErrorKind::NotFound => return Err(format!("{socket}: {why}")),
        _ => {}
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|why| why.to_string())?;
    let (stop, stopped) = oneshot::channel();
    let stop = Mutex::new(Some(stop));
    let on_signal = move || {
        if let Some(stop) = stop.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = stop.send(());
            // Calls may wait for a volume that does not answer.
            std::thread::spawn(|| {
                std::thread::sleep(CALLS_END_WITHIN);
                end();
                std::process::exit(0);
            });
        }
    };
    ctrlc::set_handler(on_signal).map_err(|why| why.to_string())?;
    runtime.block_on(async {
        let listener = UnixListener::bind(socket).map_err(|why| format!("{socket}: {why}"))?;
        println!("weft-csi serves {} on {socket}", driver.name);
        let services = Server::builder()
            .add_service(rpc::Identity(driver.clone()))
            .add_service(rpc::Controller(driver.clone()))
            .add_service(rpc::Node(driver));
        let incoming = UnixListenerStream::new(listener);
        let served = services.serve_with_incoming_shutdown(incoming, async { _ = stopped.await }).await;
        served.map_err(|why| why.to_string())
    })?;
    let _ = fs::remove_file(socket);
    end();
    runtime.shutdown_background();
    Ok(())
}

/// Ends the other processes of a container, which ends with its first one: a mount commits what it
/// has. Outside of a container the mount stays, as pods use it.
fn end() {
    if std::process::id() != 1 {
        return;
    }
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    for other in processes.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)) {
        if !other.is_init() {
            let _ = kill_process(other, Signal::TERM);
        }
    }
    let begun = Instant::now();
    while begun.elapsed() < ENDS_WITHIN && !matches!(wait(WaitOptions::NOHANG), Err(Errno::CHILD)) {
        std::thread::sleep(Duration::from_millis(50));
    }
}
