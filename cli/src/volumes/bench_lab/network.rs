//! A network between the processes of a run: network namespaces of this machine, and limits of
//! their links. It takes root, and the programs `ip` and `tc`.

use super::commands::{self, Limit, Step};
use super::left::Run;
use super::tool::tool;
use crate::failure::Failure;
use crate::model::speed::Speed;
use plan::cost::measured::Network;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use volume::lock;

/// The machine of the mount; that of the metadata server; the first of a store.
pub const CLIENT: usize = 0;
pub const META: usize = 1;
pub const STORES: usize = 2;
/// The port of every server: each has a machine of its own.
pub const PORT: u16 = 7700;
/// How much of a limit a plain connection has to reach: headers take 4 to 5 %.
const REACHED: f64 = 0.9;
/// Bursts that are tried, in microseconds of the link's time: the shorter, the more a record waits
/// as on a real link, but a timer that is late by more loses speed.
const BURSTS: [u64; 4] = [20, 50, 100, 200];
/// How long a connection is not measured, as it becomes faster, and how long it is.
const BEGINNING: Duration = Duration::from_millis(150);
const MEASURED: Duration = Duration::from_millis(400);

/// What limits the links now. A cluster on them goes on meanwhile.
#[derive(Default)]
struct Limits {
    /// The machines with a limited link.
    limited: Vec<usize>,
    /// Whether all links have a latency.
    delayed: bool,
}

/// Machines, joined by a network.
pub struct Lab {
    machines: usize,
    limits: Mutex<Limits>,
    latency: Duration,
    /// Without a limit.
    plain: f64,
    run: Run,
}

impl Lab {
    /// A machine for the client, the metadata server and each store, for the option of that name.
    pub fn build(parent: &Path, stores: u32, latency: Duration, option: &str) -> Result<Self, Failure> {
        if !rustix::process::geteuid().is_root() {
            return Err(Failure::Other(format!("{option} takes root: it makes network namespaces")));
        }
        for program in ["ip", "tc"] {
            if let Err(why) = Command::new(program).arg("-V").output() {
                return Err(Failure::Other(format!("{option} takes the program {program} (iproute2): {why}")));
            }
        }
        let impossible =
            |why| Failure::Other(format!("{option} needs network namespaces, and this is not possible here: {why}"));
        let run = Run::begin(parent).map_err(impossible)?;
        let mut lab = Self { machines: STORES + stores as usize, limits: Mutex::default(), latency, plain: 0.0, run };
        lab.take(commands::build(lab.run.number, lab.machines)).map_err(impossible)?;
        lab.plain = lab.carried().map_err(impossible)?;
        Ok(lab)
    }

    /// Limits all links, and measures what a connection carries then.
    pub fn limit(&self, speed: Speed) -> Result<Network, Failure> {
        self.unlimit()?;
        let mut network = Network {
            name: speed.0.map_or_else(|| "none".into(), |_| speed.words()),
            bits_per_second: speed.0,
            burst_bytes: 0,
            latency_seconds: self.latency.as_secs_f64(),
            plain_bits_per_second: self.plain,
            reached_bits_per_second: self.plain,
            reachable: true,
        };
        let Some(bits) = speed.0 else {
            self.delay()?;
            return Ok(network);
        };
        if bits * REACHED > self.plain {
            network.reachable = false;
            return Ok(network);
        }
        network.reached_bits_per_second = 0.0;
        for burst in BURSTS {
            let limit = Limit::of(bits, burst);
            self.apply(limit)?;
            let carried = self.carried()?;
            if carried > network.reached_bits_per_second {
                (network.reached_bits_per_second, network.burst_bytes) = (carried, limit.burst_bytes);
            }
            if carried >= bits * REACHED {
                // Once more, without what still waits at the links.
                self.apply(limit)?;
                return Ok(network);
            }
        }
        network.reachable = false;
        Ok(network)
    }

    /// The same limit as before.
    pub fn limit_again(&self, network: &Network) -> Result<(), Failure> {
        match network.bits_per_second {
            Some(bits) => self.apply(Limit { burst_bytes: network.burst_bytes, ..Limit::of(bits, 0) }),
            None => self.unlimit().and_then(|()| self.delay()),
        }
    }

    /// Limits the link of each store to so many bits a second. The machines of clients and of the
    /// metadata server have no limit.
    pub fn limit_stores(&self, bits_per_second: &[f64]) -> Result<(), Failure> {
        let limits = (STORES..self.machines).zip(bits_per_second);
        self.apply_each(limits.map(|(machine, &bits)| (machine, Limit::switched(bits))).collect())
    }

    fn apply(&self, limit: Limit) -> Result<(), Failure> {
        self.apply_each((0..self.machines).map(|machine| (machine, limit)).collect())
    }

    fn apply_each(&self, limits: Vec<(usize, Limit)>) -> Result<(), Failure> {
        self.unlimit()?;
        self.delay()?;
        let mut now = lock(&self.limits);
        now.limited = limits.iter().map(|(machine, _)| *machine).collect();
        self.take(commands::limit(self.run.number, limits, now.delayed))
            .map_err(|why| Failure::Other(format!("the links cannot be limited here (tbf): {why}")))
    }

    /// Ends all limits and latencies, and drops what waits.
    pub fn unlimit(&self) -> Result<(), Failure> {
        let Limits { limited, delayed } = std::mem::take(&mut *lock(&self.limits));
        if delayed || !limited.is_empty() {
            self.take(commands::unlimit(self.run.number, self.machines, &limited, delayed))?;
        }
        Ok(())
    }

    fn delay(&self) -> Result<(), Failure> {
        if self.latency.is_zero() {
            return Ok(());
        }
        self.take(commands::delay(self.run.number, self.machines, self.latency.as_micros()))
            .map_err(|why| Failure::Other(format!("--latency takes netem, which this kernel does not have: {why}")))?;
        lock(&self.limits).delayed = true;
        Ok(())
    }

    /// Where a server of a machine listens.
    pub fn address(machine: usize) -> SocketAddr {
        (commands::address(machine), PORT).into()
    }

    /// Does something on a machine: sockets and processes that it makes are there.
    pub fn inside<T: Send>(
        &self,
        machine: usize,
        work: impl FnOnce() -> Result<T, Failure> + Send,
    ) -> Result<T, Failure> {
        inside(&commands::machine(self.run.number, machine), work)
    }

    fn take(&self, steps: Vec<Step>) -> Result<(), Failure> {
        for step in steps {
            match step {
                Step::Run(words) => _ = tool(&words.iter().map(String::as_str).collect::<Vec<_>>())?,
                Step::Set { namespace, file, value } => inside(&namespace, || {
                    std::fs::write(file, value).map_err(|why| Failure::Other(format!("{file}: {why}")))
                })?,
            }
        }
        Ok(())
    }

    /// What one plain connection from the client to a store carries, in bits a second.
    fn carried(&self) -> Result<f64, Failure> {
        let failed = |why: std::io::Error| Failure::Other(format!("a connection over the network: {why}"));
        let to = Self::address(STORES);
        let listener = self.inside(STORES, || TcpListener::bind(to).map_err(failed))?;
        let mut from =
            self.inside(CLIENT, || TcpStream::connect_timeout(&to, Duration::from_secs(10)).map_err(failed))?;
        let mut at = listener.accept().map_err(failed)?.0;
        // It ends when nobody reads any more.
        let sender = std::thread::spawn(move || while from.write_all(&[0; 64 << 10]).is_ok() {});
        let mut buffer = vec![0; 256 << 10];
        let mut bytes = 0;
        let (mut begun, mut last) = (Instant::now(), Instant::now());
        let (opened, mut beginning) = (begun, true);
        while beginning || last - begun < MEASURED {
            bytes += at.read(&mut buffer).map_err(failed)?;
            last = Instant::now();
            if beginning && last - opened >= BEGINNING {
                (begun, bytes, beginning) = (last, 0, false);
            }
        }
        drop(at);
        let _ = sender.join();
        Ok(bytes as f64 * 8.0 / (last - begun).as_secs_f64())
    }
}

/// Does something in a network namespace, in a thread of its own that ends with it.
fn inside<T: Send>(namespace: &str, work: impl FnOnce() -> Result<T, Failure> + Send) -> Result<T, Failure> {
    let enter = || {
        let place = File::open(format!("/run/netns/{namespace}"))?;
        move_into_link_name_space(place.as_fd(), Some(LinkNameSpaceType::Network)).map_err(std::io::Error::from)
    };
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            enter().map_err(|why| Failure::Other(format!("{namespace}: {why}")))?;
            work()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
