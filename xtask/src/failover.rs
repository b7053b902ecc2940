//! How long clients wait when the metadata server that has a volume is killed, stopped, or gives
//! it away: a cluster of real processes with three metadata servers, writers on two mounts, and
//! many rounds. Every byte that was acknowledged as durable is checked.

pub mod clients;

use crate::NOT_HERE;
use crate::torture::process::Process;
use crate::torture::world::words;
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const STORES: usize = 6;
const SERVERS: usize = 3;
/// No round takes longer.
const ROUND_TIMEOUT: Duration = Duration::from_secs(120);
/// How long the server that has the volume is stopped: longer than its lease.
const STOP_TIME: Duration = Duration::from_secs(4);

/// What is done to the server that has the volume.
#[derive(Clone, Copy)]
enum Round {
    Kill,
    Stop,
    HandOver,
}

struct Options {
    folder: PathBuf,
    rounds: [(Round, &'static str, usize); 3],
    weft: Option<PathBuf>,
}

fn options(arguments: &[&str]) -> Result<Options, String> {
    let rounds = [(Round::Kill, "kill", 100), (Round::Stop, "stop", 10), (Round::HandOver, "handover", 20)];
    let mut options = Options { folder: PathBuf::new(), rounds, weft: None };
    let mut rest = arguments.iter();
    while let Some(&argument) = rest.next() {
        let mut value = || rest.next().copied().ok_or(format!("{argument} needs a value"));
        let mut number = || value()?.parse().map_err(|_| format!("{argument}: not a whole number"));
        match argument {
            "--kills" => options.rounds[0].2 = number()?,
            "--stops" => options.rounds[1].2 = number()?,
            "--handovers" => options.rounds[2].2 = number()?,
            "--weft" => options.weft = Some(value()?.into()),
            flag if flag.starts_with('-') => return Err(format!("{flag}: no such option; see cargo xtask help")),
            folder if options.folder.as_os_str().is_empty() => options.folder = folder.into(),
            more => return Err(format!("{more}: one directory is enough")),
        }
    }
    match options.folder.as_os_str().is_empty() {
        true => Err("failover needs a directory to work in".into()),
        false => Ok(options),
    }
}

/// Measures and prints.
///
/// # Errors
/// What was lost, or did not go on.
pub fn run(root: &Path, arguments: &[&str]) -> Result<(), String> {
    let options = options(arguments)?;
    crate::torture::possible()?;
    let folder = std::path::absolute(&options.folder).map_err(|why| format!("{}: {why}", options.folder.display()))?;
    let folder = folder.join("weft-failover");
    if folder.exists() {
        return Err(format!("{}: it is there already; remove it, or name another directory", folder.display()));
    }
    let weft = match options.weft {
        Some(weft) => weft,
        None => {
            crate::cargo(&["build", "--release", "-p", "cli"], &[])?;
            root.join("target/release/weft")
        }
    };
    fs::create_dir_all(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    let mut cluster = Cluster::start(&weft, &folder)?;
    println!("logs in {}", folder.display());
    for (round, name, count) in options.rounds {
        let mut waits = Vec::new();
        for number in 0..count {
            waits.push(cluster.round(round).map_err(|why| format!("{name} {}: {why}", number + 1))?);
            if waits.len().is_multiple_of(10) {
                println!("{name}: {} of {count}, the last wait {:.2} s", waits.len(), waits[number].as_secs_f64());
            }
        }
        if count > 0 {
            println!("{name}: {}", summary(&mut waits));
        }
    }
    println!("{}", cluster.check()?);
    drop(cluster);
    fs::remove_dir_all(&folder).map_err(|why| format!("{}: {why}", folder.display()))
}

/// The quantiles of the longest wait of any operation in each round.
fn summary(waits: &mut [Duration]) -> String {
    waits.sort();
    let at = |percent: usize| waits[(waits.len() * percent).div_ceil(100).max(1) - 1].as_secs_f64();
    let count = waits.len();
    format!(
        "{count} rounds, longest wait of an operation: median {:.2} s, 99th percentile {:.2} s, most {:.2} s",
        at(50),
        at(99),
        at(100)
    )
}

struct Cluster {
    clients: Clients,
    mounts: Vec<(Process, PathBuf)>,
    servers: Vec<Process>,
    _stores: Vec<Process>,
    url: String,
    weft: PathBuf,
}

fn free_ports(count: usize) -> Result<Vec<u16>, String> {
    let bound: Result<Vec<TcpListener>, _> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect();
    let ports = bound.and_then(|all| all.iter().map(|one| one.local_addr().map(|at| at.port())).collect());
    ports.map_err(|why| format!("a free port: {why}"))
}

impl Cluster {
    fn start(weft: &Path, folder: &Path) -> Result<Self, String> {
        let ports = free_ports(STORES + SERVERS)?;
        let (stores, metas) = ports.split_at(STORES);
        let mut create = words(&["volume", "create", "--code", "rs:4+2"]);
        create.push(folder.join("v0/films").into());
        let mut started = Vec::new();
        for (number, port) in stores.iter().enumerate() {
            let listen = format!("127.0.0.1:{port}");
            let disk = folder.join(format!("disk{number}"));
            fs::create_dir(&disk).map_err(|why| format!("{}: {why}", disk.display()))?;
            let mut arguments = words(&["--json", "serve", "store", "--listen", &listen]);
            arguments.push(disk.into());
            let store = Process::new(weft, format!("store{number}"), arguments, folder);
            store.start()?;
            started.push(store);
            create.push(format!("store://{listen}/disk{number}").into());
        }
        fs::create_dir(folder.join("v0")).map_err(|why| format!("v0: {why}"))?;
        command(weft, create)?;
        let url = |ports: &[u16]| {
            let all: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
            format!("weft://{}/films", all.join(","))
        };
        let mut servers = Vec::new();
        for (number, port) in metas.iter().enumerate() {
            let (listen, name) = (format!("127.0.0.1:{port}"), format!("meta{number}"));
            let mut arguments = words(&["--json", "serve", "meta", "--listen", &listen, "--name", &name]);
            if number > 0 {
                arguments.extend(words(&["--join", &url(&metas[..1])]));
            }
            arguments.push(folder.join(format!("v{number}/films")).into());
            let server = Process::new(weft, name, arguments, folder);
            server.start()?;
            servers.push(server);
        }
        let url = url(metas);
        let mut mounts = Vec::new();
        for number in 0..2 {
            let point = folder.join(format!("mount{number}"));
            fs::create_dir(&point).map_err(|why| format!("{}: {why}", point.display()))?;
            let mut arguments = words(&["mount", "--foreground", "--tell", &url]);
            arguments.push(point.clone().into());
            let mount = Process::new(weft, format!("mount{number}"), arguments, folder);
            mount.start()?;
            mounts.push((mount, point));
        }
        let clients = Clients::start(mounts.iter().map(|(_, point)| point))?;
        Ok(Self { clients, mounts, servers, _stores: started, url, weft: weft.into() })
    }

    /// The server that has the volume, once all the others stand by and know what it has.
    fn holder(&self) -> Result<usize, String> {
        let begun = Instant::now();
        loop {
            // It may be that something is to repair.
            let status = output(&self.weft, words(&["status", "--json", &self.url]))?;
            let document: Value = serde_json::from_slice(&status.stdout).unwrap_or_default();
            let all = document["servers"].as_array().cloned().unwrap_or_default();
            let is_ready =
                |server: &Value| server["up"] == true && server["transactions_behind"].as_u64().unwrap_or(0) < 1000;
            let holder = all.iter().find(|server| server["holder"] == true).and_then(|server| server["name"].as_str());
            let number = holder.and_then(|name| name.strip_prefix("meta")?.parse().ok());
            if let Some(number) = number.filter(|_| all.len() == SERVERS && all.iter().all(is_ready)) {
                return Ok(number);
            }
            if begun.elapsed() > ROUND_TIMEOUT {
                let why = String::from_utf8_lossy(&status.stderr);
                return Err(format!("the servers do not stand by: {why} {}", document["servers"]));
            }
            sleep(Duration::from_millis(100));
        }
    }

    /// Returns the longest wait of any operation.
    fn round(&mut self, round: Round) -> Result<Duration, String> {
        let holder = self.holder()?;
        self.clients.order("begin", "began")?;
        match round {
            Round::Kill => self.servers[holder].kill(),
            Round::Stop => self.servers[holder].signal("STOP"),
            Round::HandOver => {
                let to = format!("meta{}", (holder + 1) % SERVERS);
                command(&self.weft, words(&["meta", "handover", &self.url, &to]))?;
            }
        }
        let stopped = Instant::now();
        let wait = self.clients.order("wait", "waited")?;
        match round {
            Round::Kill => self.servers[holder].start()?,
            Round::Stop => {
                sleep(STOP_TIME.saturating_sub(stopped.elapsed()));
                self.servers[holder].signal("CONT");
            }
            Round::HandOver => {}
        }
        wait.parse().map(Duration::from_micros).map_err(|_| format!("the clients say {wait:?}"))
    }

    /// Reads everything, before and after the mounts are new.
    fn check(&mut self) -> Result<String, String> {
        self.clients.order("check", "checked")?;
        for (mount, point) in &self.mounts {
            command(&self.weft, vec!["unmount".into(), point.into()])?;
            mount.wait(ROUND_TIMEOUT)?;
            mount.start()?;
        }
        let checked = self.clients.order("check", "checked")?;
        command(&self.weft, words(&["volume", "verify", &self.url]))?;
        Ok(checked)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.clients.child.kill();
        let _ = self.clients.child.wait();
        for (mount, point) in &self.mounts {
            mount.kill();
            let _ = Command::new("umount").arg("-l").arg(point).status();
        }
    }
}

fn output(weft: &Path, arguments: Vec<OsString>) -> Result<Output, String> {
    let ended = Command::new(weft).args(arguments).stdin(Stdio::null()).output();
    ended.map_err(|why| format!("{}: {why}", weft.display()))
}

fn command(weft: &Path, arguments: Vec<OsString>) -> Result<(), String> {
    let name = arguments[0].to_string_lossy().into_owned();
    let ended = output(weft, arguments)?;
    match ended.status.success() {
        true => Ok(()),
        false => Err(format!("weft {name}: {}: {}", ended.status, String::from_utf8_lossy(&ended.stderr))),
    }
}

/// The process that uses the mounts: what it has open is not inherited by servers that start.
struct Clients {
    child: Child,
    orders: ChildStdin,
    said: Lines<BufReader<ChildStdout>>,
}

impl Clients {
    fn start<'a>(points: impl Iterator<Item = &'a PathBuf>) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|why| format!("{NOT_HERE}: {why}"))?;
        let mut command = Command::new(program);
        command.arg("failover-clients").args(points).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|why| format!("the clients: {why}"))?;
        let orders = child.stdin.take().expect("a pipe");
        let said = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        Ok(Self { child, orders, said })
    }

    /// Gives an order and waits for its answer; returns what follows the word of the answer.
    fn order(&mut self, order: &str, answer: &str) -> Result<String, String> {
        writeln!(self.orders, "{order}").map_err(|why| format!("the clients ended: {why}"))?;
        let said = self.said.next().ok_or("the clients ended")?.map_err(|why| format!("the clients: {why}"))?;
        match said.split_once(' ').unwrap_or((&said, "")) {
            (word, rest) if word == answer => Ok(rest.into()),
            _ => Err(said),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles() {
        let mut waits: Vec<Duration> = (1..=100).rev().map(Duration::from_secs).collect();
        let said = "100 rounds, longest wait of an operation: median 50.00 s, 99th percentile 99.00 s, most 100.00 s";
        assert_eq!(summary(&mut waits), said);
        assert!(summary(&mut waits[..1]).contains("1 rounds, longest wait of an operation: median 1.00 s"));
    }

    #[test]
    fn options_are_checked() {
        assert_eq!(options(&["d", "--kills", "3", "--stops", "0"]).unwrap().rounds.map(|round| round.2), [3, 0, 20]);
        for wrong in [&["--kills", "3"][..], &["d", "--kills"], &["d", "--kills", "x"], &["d", "--many"], &["d", "e"]] {
            assert!(options(wrong).is_err(), "{wrong:?}");
        }
    }
}
