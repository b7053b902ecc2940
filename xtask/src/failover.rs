//! How long clients wait when the metadata server that has a volume is killed, stopped, cut off,
//! has a full disk, or gives the volume away: a cluster of real processes with three metadata
//! servers, clients on two mounts or more, and many rounds. Every byte that was acknowledged as
//! durable is checked.
//!
//! A real process has the clock of its machine, so clocks that are wrong are left to `simulate`.

mod certificates;
pub mod clients;
mod disk;
mod filler;
mod network;

use crate::NOT_HERE;
use crate::torture::process::Process;
use crate::torture::world::words;
use certificates::Certificates;
use disk::Disk;
use network::{Cut, Network};
use serde_json::Value;
use std::ffi::OsString;
use std::fmt::Display;
use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::str::FromStr;
use std::thread::sleep;
use std::time::{Duration, Instant};

const STORES: usize = 6;
const CODE: &str = "rs:4+2";
const SERVERS: usize = 3;
/// No round takes longer, but for this many files a second that a server reads into its index.
const ROUND_TIMEOUT: Duration = Duration::from_secs(120);
const FILES_PER_SECOND: usize = 5_000;
/// How long the server that has the volume is stopped: longer than its lease.
const STOP_TIME: Duration = Duration::from_secs(4);
/// How long it is cut off: longer than its lease and than others listen to silence.
const CUT_TIME: Duration = Duration::from_secs(8);
/// How long its disk is full: it writes to it meanwhile.
const FULL_TIME: Duration = Duration::from_secs(8);

/// The longest rest of clients, in milliseconds: a round waits for two of them.
const MAX_PACE: u64 = 10_000;
/// Mounts, without an option and at most.
const MOUNTS: usize = 2;
const MAX_MOUNTS: usize = 64;
/// The most files that each mount keeps open.
const MAX_OPEN: usize = 10_000;
/// The most files that nobody uses.
const MAX_FILES: usize = 1_000_000_000;

/// What is done to the server that has the volume.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Round {
    Kill,
    Stop,
    HandOver,
    Cut(Cut),
    Full,
}

/// All rounds: what is done, the option that says how often, and how often without it.
const ROUNDS: [(Round, &str, usize); 7] = [
    (Round::Kill, "--kills", 100),
    (Round::Stop, "--stops", 10),
    (Round::HandOver, "--handovers", 20),
    (Round::Cut(Cut::Both), "--cuts", 10),
    (Round::Cut(Cut::Deaf), "--deaf", 10),
    (Round::Cut(Cut::Mute), "--mute", 10),
    (Round::Full, "--full", 10),
];

impl Round {
    /// For reports.
    fn name(self) -> &'static str {
        match self {
            Self::Kill => "killed",
            Self::Stop => "stopped",
            Self::HandOver => "handed over",
            Self::Cut(Cut::Both) => "cut off",
            Self::Cut(Cut::Deaf) => "cut off, and only its messages arrive",
            Self::Cut(Cut::Mute) => "cut off, and only messages to it arrive",
            Self::Full => "its disk full",
        }
    }
}

struct Options {
    folder: PathBuf,
    rounds: [(Round, &'static str, usize); ROUNDS.len()],
    weft: Option<PathBuf>,
    /// Whether all show certificates.
    tls: bool,
    load: Load,
}

/// What the clients are.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Load {
    /// Milliseconds for which each client rests between operations.
    pace: u64,
    mounts: usize,
    /// Files that each mount keeps open.
    open: usize,
    /// Empty files that nobody uses.
    files: usize,
}

fn options(arguments: &[&str]) -> Result<Options, String> {
    let load = Load { pace: 0, mounts: MOUNTS, open: 0, files: 0 };
    let mut options = Options { folder: PathBuf::new(), rounds: ROUNDS, weft: None, tls: false, load };
    let mut rest = arguments.iter();
    while let Some(&argument) = rest.next() {
        let mut value = || rest.next().copied().ok_or(format!("{argument} needs a value"));
        if let Some(round) = options.rounds.iter_mut().find(|round| round.1 == argument) {
            round.2 = value()?.parse().map_err(|_| format!("{argument}: not a whole number"))?;
            continue;
        }
        match argument {
            "--weft" => options.weft = Some(value()?.into()),
            "--tls" => options.tls = true,
            "--pace" => options.load.pace = within(argument, value()?, 0, MAX_PACE)?,
            "--mounts" => options.load.mounts = within(argument, value()?, 2, MAX_MOUNTS)?,
            "--open" => options.load.open = within(argument, value()?, 0, MAX_OPEN)?,
            "--files" => options.load.files = within(argument, value()?, 0, MAX_FILES)?,
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

/// A whole number from `least` to `most`.
fn within<N: FromStr + PartialOrd + Display>(option: &str, text: &str, least: N, most: N) -> Result<N, String> {
    let number = text.parse().ok().filter(|number| (&least..=&most).contains(&number));
    number.ok_or_else(|| format!("{option}: a whole number from {least} to {most}"))
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
    let cuts = options.rounds.iter().any(|(round, _, count)| matches!(round, Round::Cut(_)) && *count > 0);
    let (network, mut skipped) = match cuts.then(|| Network::new(SERVERS)) {
        None => (None, Vec::new()),
        Some(Ok(network)) => (Some(network), Vec::new()),
        Some(Err(why)) => (None, vec![format!("a holder that is cut off ({NOT_HERE}: {why})")]),
    };
    let separate = network.is_some();
    let certificates = options.tls.then(|| Certificates::new(&weft, &folder, (STORES, SERVERS), separate));
    let certificates = certificates.transpose()?;
    let machines = Machines { weft, network, certificates };
    let mut cluster = Cluster::start(machines, &folder, options.load)?;
    println!("logs in {}", folder.display());
    if let Some(why) = &cluster.no_disks {
        skipped.push(format!("a holder with a full disk ({NOT_HERE}: {why})"));
    }
    for (round, _, count) in options.rounds {
        let name = round.name();
        if !cluster.can(round) {
            continue;
        }
        let mut waits = Vec::new();
        for number in 0..count {
            waits.push(cluster.round(round).map_err(|why| format!("{name} {}: {why}", number + 1))?);
            if waits.len().is_multiple_of(10) {
                println!("{name}: {} of {count}, the last wait {:.2} s", waits.len(), waits[number].as_secs_f64());
            }
        }
        if count > 0 {
            println!("{name}: {}; {} times another server had the volume", summary(&mut waits), cluster.moved());
        }
    }
    skipped.iter().for_each(|what| println!("skipped: {what}"));
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
    stores: Vec<Process>,
    /// The disks of the servers, or why they have none of their own.
    disks: Vec<Disk>,
    no_disks: Option<String>,
    url: String,
    machines: Machines,
    /// How long a round may take.
    timeout: Duration,
    /// The server of the last round, and in how many rounds another one had the volume afterwards.
    before: Option<usize>,
    moves: usize,
}

/// Where processes are.
struct Machines {
    weft: PathBuf,
    /// Without one, everything is on this machine.
    network: Option<Network>,
    certificates: Option<Certificates>,
}

impl Machines {
    /// A process of `weft`.
    fn process(&self, server: Option<usize>, name: String, mut arguments: Vec<OsString>, folder: &Path) -> Process {
        if let Some(certificates) = &self.certificates {
            arguments.splice(..0, certificates.of(&name));
        }
        let (program, arguments) = self.inside(server, arguments);
        Process::new(&program, name, arguments, folder)
    }

    fn inside(&self, server: Option<usize>, arguments: Vec<OsString>) -> (PathBuf, Vec<OsString>) {
        match self.network {
            Some(_) => network::inside(server, &self.weft, arguments),
            None => (self.weft.clone(), arguments),
        }
    }

    fn output(&self, mut arguments: Vec<OsString>) -> Result<Output, String> {
        if let Some(certificates) = &self.certificates {
            arguments.splice(..0, certificates.of(certificates::OPERATOR));
        }
        let (program, arguments) = self.inside(None, arguments);
        let ended = Command::new(&program).args(arguments).stdin(Stdio::null()).output();
        ended.map_err(|why| format!("{}: {why}", program.display()))
    }

    fn command(&self, arguments: Vec<OsString>) -> Result<(), String> {
        let name = arguments[0].to_string_lossy().into_owned();
        let ended = self.output(arguments)?;
        match ended.status.success() {
            true => Ok(()),
            false => Err(format!("weft {name}: {}: {}", ended.status, String::from_utf8_lossy(&ended.stderr))),
        }
    }

    /// The address of the stores, and those of the servers.
    fn addresses(&self, ports: &[u16]) -> (String, Vec<String>) {
        let separate = self.network.is_some();
        let servers = ports.iter().enumerate();
        let servers = servers.map(|(number, port)| format!("{}:{port}", network::address(separate, number)));
        (network::home_address(separate).into(), servers.collect())
    }
}

fn free_ports(count: usize) -> Result<Vec<u16>, String> {
    let bound: Result<Vec<TcpListener>, _> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect();
    let ports = bound.and_then(|all| all.iter().map(|one| one.local_addr().map(|at| at.port())).collect());
    ports.map_err(|why| format!("a free port: {why}"))
}

impl Cluster {
    fn start(machines: Machines, folder: &Path, load: Load) -> Result<Self, String> {
        let ports = free_ports(STORES + SERVERS)?;
        let (stores, metas) = ports.split_at(STORES);
        let (home, metas) = machines.addresses(metas);
        let disks =
            (0..STORES).map(|number| make(folder.join(format!("disk{number}")))).collect::<Result<Vec<_>, _>>()?;
        let mut create = match load.files {
            0 => words(&["volume", "create", "--code", CODE]),
            files => {
                filler::fill(&machines, folder, &disks, files)?;
                words(&["volume", "open"])
            }
        };
        create.push(folder.join("v0/films").into());
        let mut started = Vec::new();
        for (number, port) in stores.iter().enumerate() {
            let listen = format!("{home}:{port}");
            let mut arguments = words(&["--json", "serve", "store", "--listen", &listen]);
            arguments.push(disks[number].clone().into());
            let store = machines.process(None, format!("store{number}"), arguments, folder);
            store.start()?;
            started.push(store);
            create.push(format!("store://{listen}/disk{number}").into());
        }
        let places =
            (0..SERVERS).map(|number| make(folder.join(format!("v{number}")))).collect::<Result<Vec<_>, _>>()?;
        let disks: Result<Vec<Disk>, String> = match load.files {
            0 => places.iter().map(|place| Disk::new(place)).collect(),
            _ => Err("a disk for a large index is not filled".into()),
        };
        let (disks, no_disks) = disks.map_or_else(|why| (Vec::new(), Some(why)), |disks| (disks, None));
        machines.command(create)?;
        let url = |metas: &[String]| format!("weft://{}/films", metas.join(","));
        let mut servers = Vec::new();
        for (number, listen) in metas.iter().enumerate() {
            let name = format!("meta{number}");
            let mut arguments = words(&["--json", "serve", "meta", "--listen", listen, "--name", &name]);
            if number > 0 {
                arguments.extend(words(&["--join", &url(&metas[..1])]));
            }
            arguments.push(places[number].join("films").into());
            let server = machines.process(Some(number), name, arguments, folder);
            server.start()?;
            servers.push(server);
        }
        let url = url(&metas);
        let mut mounts = Vec::new();
        for number in 0..load.mounts {
            let point = make(folder.join(format!("mount{number}")))?;
            let mut arguments = words(&["mount", "--foreground", "--tell", &url]);
            arguments.push(point.clone().into());
            let mount = machines.process(None, format!("mount{number}"), arguments, folder);
            mount.start()?;
            mounts.push((mount, point));
        }
        let clients = Clients::start(load, mounts.iter().map(|(_, point)| point))?;
        let timeout = ROUND_TIMEOUT + Duration::from_secs((load.files / FILES_PER_SECOND) as u64);
        let (before, moves) = (None, 0);
        Ok(Self { clients, mounts, servers, stores: started, disks, no_disks, url, machines, timeout, before, moves })
    }

    /// Whether this can be done here.
    fn can(&self, round: Round) -> bool {
        match round {
            Round::Cut(_) => self.machines.network.is_some(),
            Round::Full => self.no_disks.is_none(),
            _ => true,
        }
    }

    /// In how many rounds another server had the volume afterwards, of those since the last call.
    fn moved(&mut self) -> usize {
        // The last round is one of them.
        if let (Some(before), Ok(now)) = (self.before.take(), self.holder()) {
            self.moves += usize::from(before != now);
        }
        std::mem::take(&mut self.moves)
    }

    /// The server that has the volume, once all the others stand by and know what it has.
    fn holder(&self) -> Result<usize, String> {
        let begun = Instant::now();
        loop {
            // It may be that something is to repair.
            let status = self.machines.output(words(&["status", "--json", &self.url]))?;
            let document: Value = serde_json::from_slice(&status.stdout).unwrap_or_default();
            let all = document["servers"].as_array().cloned().unwrap_or_default();
            // One that has not opened its index says nothing of it.
            let behind = |server: &Value| server["transactions_behind"].as_u64();
            let is_ready = |server: &Value| {
                server["up"] == true && (server["holder"] == true || behind(server).is_some_and(|behind| behind < 1000))
            };
            let holder = all.iter().find(|server| server["holder"] == true).and_then(|server| server["name"].as_str());
            let number = holder.and_then(|name| name.strip_prefix("meta")?.parse().ok());
            if let Some(number) = number.filter(|_| all.len() == SERVERS && all.iter().all(is_ready)) {
                return Ok(number);
            }
            if begun.elapsed() > self.timeout {
                let why = String::from_utf8_lossy(&status.stderr);
                return Err(format!("the servers do not stand by: {why} {}", document["servers"]));
            }
            sleep(Duration::from_millis(100));
        }
    }

    /// Returns the longest wait of any operation.
    fn round(&mut self, round: Round) -> Result<Duration, String> {
        let holder = self.holder()?;
        if let Some(before) = self.before.replace(holder) {
            self.moves += usize::from(before != holder);
        }
        self.clients.order("begin", "began")?;
        let begun = Instant::now();
        self.begin(round, holder)?;
        if round == Round::Full {
            sleep(FULL_TIME);
        }
        let wait = self.clients.order("wait", "waited")?;
        self.end(round, holder, begun)?;
        wait.parse().map(Duration::from_micros).map_err(|_| format!("the clients say {wait:?}"))
    }

    fn begin(&self, round: Round, holder: usize) -> Result<(), String> {
        match round {
            Round::Kill => self.servers[holder].kill(),
            Round::Stop => self.servers[holder].signal("STOP"),
            Round::HandOver => {
                let to = format!("meta{}", (holder + 1) % SERVERS);
                self.machines.command(words(&["meta", "handover", &self.url, &to]))?;
            }
            Round::Cut(kind) => self.network().cut(holder, kind)?,
            Round::Full => self.disks[holder].fill()?,
        }
        Ok(())
    }

    fn end(&self, round: Round, holder: usize, begun: Instant) -> Result<(), String> {
        match round {
            Round::Kill => self.servers[holder].start()?,
            Round::Stop => {
                sleep(STOP_TIME.saturating_sub(begun.elapsed()));
                self.servers[holder].signal("CONT");
            }
            Round::HandOver => {}
            Round::Cut(kind) => {
                sleep(CUT_TIME.saturating_sub(begun.elapsed()));
                self.network().heal(holder, kind)?;
            }
            Round::Full => {
                self.disks[holder].empty()?;
                // It may have ended, as a service that is started again.
                if self.servers[holder].died().is_some() {
                    self.servers[holder].start()?;
                }
            }
        }
        Ok(())
    }

    fn network(&self) -> &Network {
        self.machines.network.as_ref().expect("this is not done without one")
    }

    /// Reads everything, before and after the mounts are new.
    fn check(&mut self) -> Result<String, String> {
        self.clients.order("check", "checked")?;
        for (mount, point) in &self.mounts {
            crate::peers::run(Command::new(&self.machines.weft).arg("unmount").arg(point))?;
            mount.wait(ROUND_TIMEOUT)?;
            mount.start()?;
        }
        let checked = self.clients.order("check", "checked")?;
        self.machines.command(words(&["volume", "verify", &self.url]))?;
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
        // What they are on goes after them.
        self.servers.iter().chain(&self.stores).for_each(Process::kill);
    }
}

/// A new directory.
fn make(path: PathBuf) -> Result<PathBuf, String> {
    fs::create_dir(&path).map_err(|why| format!("{}: {why}", path.display()))?;
    Ok(path)
}

/// The process that uses the mounts: what it has open is not inherited by servers that start.
struct Clients {
    child: Child,
    orders: ChildStdin,
    said: Lines<BufReader<ChildStdout>>,
}

impl Clients {
    fn start<'a>(load: Load, points: impl Iterator<Item = &'a PathBuf>) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|why| format!("{NOT_HERE}: {why}"))?;
        let mut command = Command::new(program);
        command
            .arg("failover-clients")
            .args([load.pace.to_string(), load.open.to_string()])
            .args(points)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
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
        let rounds = options(&["d", "--kills", "3", "--stops", "0", "--full", "7"]).unwrap().rounds;
        assert_eq!(rounds.map(|round| round.2), [3, 0, 20, 10, 10, 10, 7]);
        let paced = options(&["d", "--pace", "250", "--tls"]).unwrap();
        assert!(paced.tls && paced.load == Load { pace: 250, mounts: 2, open: 0, files: 0 });
        for wrong in [
            &["--kills", "3"][..],
            &["d", "--kills"],
            &["d", "--kills", "x"],
            &["d", "--many"],
            &["d", "e"],
            &["d", "--pace", "-1"],
            &["d", "--pace", "60000"],
            &["d", "--mounts", "1"],
            &["d", "--open", "x"],
        ] {
            assert!(options(wrong).is_err(), "{wrong:?}");
        }
    }
}
