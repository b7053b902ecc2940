//! The faults of a simulation, chosen by its seed. A link has at most one fault at a time, and so
//! has a host. At the end everything works.

use super::{LATENCY, Network, Record};
use fastrand::Rng;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use turmoil::Sim;

/// The hosts of a simulation. Every client has a link to every server.
#[derive(Clone)]
pub struct Hosts {
    pub servers: Vec<String>,
    pub clients: Vec<String>,
    /// Maximum number of servers that are dead at the same time.
    pub dead: usize,
    /// Whether clients die, too.
    pub clients_die: bool,
}

/// A fault, or its end.
#[derive(Clone)]
enum Fault {
    Dies(String),
    Starts(String),
    /// A link loses all messages, or those in one direction.
    Cut(String, String),
    CutOneWay(String, String),
    /// A link delays all messages until it is released. A stopped host looks like this, too.
    Holds(String, String),
    Frees(String, String),
    Slow(String, String, Duration),
    Quick(String, String),
    Heals(String, String),
    Noisy(bool),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dies(host) => write!(f, "{host} dies"),
            Self::Starts(host) => write!(f, "{host} starts"),
            Self::Cut(a, b) => write!(f, "{a} and {b} are cut off"),
            Self::CutOneWay(a, b) => write!(f, "nothing comes from {a} to {b}"),
            Self::Holds(a, b) => write!(f, "messages between {a} and {b} are held"),
            Self::Frees(a, b) => write!(f, "messages between {a} and {b} are freed"),
            Self::Slow(a, b, latency) => write!(f, "{a} and {b} are {latency:?} apart"),
            Self::Quick(a, b) => write!(f, "{a} and {b} are near again"),
            Self::Heals(a, b) => write!(f, "{a} and {b} are together again"),
            Self::Noisy(noisy) => write!(f, "bits are flipped: {noisy}"),
        }
    }
}

/// All faults of a simulation, in order.
pub struct Faults {
    hosts: Hosts,
    all: Vec<(Duration, Fault)>,
}

impl Faults {
    /// The faults of a seed. All of them end within `length`.
    pub fn new(seed: u64, hosts: &Hosts, length: Duration) -> Self {
        let mut dice = Rng::with_seed(seed ^ 0x6661_756c);
        let mut all = Vec::new();
        let mut busy: BTreeMap<String, Duration> = BTreeMap::new();
        let mut now = Duration::from_millis(500);
        while now < length {
            let end = (now + lasts(&mut dice)).min(length);
            let (server, client) = (dice.choice(&hosts.servers), dice.choice(&hosts.clients));
            let (server, client) = (server.expect("servers").clone(), client.expect("clients").clone());
            let mut take = |key: String| {
                let free = busy.get(&key).is_none_or(|until| *until < now);
                if free {
                    busy.insert(key, end);
                }
                free
            };
            let link = format!("{client}-{server}");
            match dice.u32(..10) {
                0..=2 => {
                    let dead = all
                        .iter()
                        .filter(|(_, fault)| matches!(fault, Fault::Dies(host) if hosts.servers.contains(host)));
                    let back = all.iter().filter(|(at, fault)| {
                        matches!(fault, Fault::Starts(host) if hosts.servers.contains(host)) && *at < now
                    });
                    if dead.count() - back.count() < hosts.dead && take(server.clone()) {
                        all.extend([(now, Fault::Dies(server.clone())), (end, Fault::Starts(server))]);
                    }
                }
                3 if hosts.clients_die && take(client.clone()) => {
                    all.extend([(now, Fault::Dies(client.clone())), (end, Fault::Starts(client))]);
                }
                4 if take(link.clone()) => {
                    all.extend([
                        (now, Fault::Cut(client.clone(), server.clone())),
                        (end, Fault::Heals(client, server)),
                    ]);
                }
                5 if take(link.clone()) => {
                    let (from, to) = if dice.bool() { (&client, &server) } else { (&server, &client) };
                    all.push((now, Fault::CutOneWay(from.clone(), to.clone())));
                    all.push((end, Fault::Heals(client, server)));
                }
                6 if take(link.clone()) => {
                    all.push((now, Fault::Holds(client.clone(), server.clone())));
                    all.push((end, Fault::Frees(client, server)));
                }
                7 if take(link) => {
                    let latency = Duration::from_millis(dice.u64(50..1500));
                    all.push((now, Fault::Slow(client.clone(), server.clone(), latency)));
                    all.push((end, Fault::Quick(client, server)));
                }
                8 if take("noise".into()) => {
                    all.extend([(now, Fault::Noisy(true)), (end, Fault::Noisy(false))]);
                }
                _ => {
                    // A stopped server: no client receives anything from it.
                    for client in hosts.clients.iter().filter(|client| take(format!("{client}-{server}"))) {
                        all.push((now, Fault::Holds(client.clone(), server.clone())));
                        all.push((end, Fault::Frees(client.clone(), server.clone())));
                    }
                }
            }
            now += Duration::from_millis(dice.u64(100..2500));
        }
        all.sort_by_key(|(at, _)| *at);
        Self { hosts: hosts.clone(), all }
    }

    /// Runs the simulation until `end`, or until an error. It calls `dies` after a host has died
    /// and before the host starts again.
    pub fn run(
        &self,
        sim: &mut Sim<'_>,
        network: &Network,
        record: &Record,
        end: Duration,
        mut dies: impl FnMut(&str),
    ) -> turmoil::Result {
        let mut next = self.all.iter().peekable();
        while sim.elapsed() < end && !record.is_wrong() {
            while let Some((_, fault)) = next.next_if(|(at, _)| *at <= sim.elapsed()) {
                record.note(format_args!("{:9.3} {fault}", sim.elapsed().as_secs_f64()));
                match fault {
                    Fault::Dies(host) => {
                        self.kill(sim, host);
                        dies(host);
                    }
                    Fault::Starts(host) => sim.bounce(host.as_str()),
                    Fault::Cut(a, b) => sim.partition(a.as_str(), b.as_str()),
                    Fault::CutOneWay(a, b) => sim.partition_oneway(a.as_str(), b.as_str()),
                    Fault::Heals(a, b) => sim.repair(a.as_str(), b.as_str()),
                    Fault::Holds(a, b) => sim.hold(a.as_str(), b.as_str()),
                    Fault::Frees(a, b) => sim.release(a.as_str(), b.as_str()),
                    Fault::Slow(a, b, latency) => sim.set_link_latency(a.as_str(), b.as_str(), *latency),
                    Fault::Quick(a, b) => {
                        sim.set_link_latency(a.as_str(), b.as_str(), LATENCY.0);
                        sim.set_link_max_message_latency(a.as_str(), b.as_str(), LATENCY.1);
                    }
                    Fault::Noisy(noisy) => network.set_noisy(*noisy),
                }
            }
            if next.peek().is_none() {
                network.set_calm();
            }
            sim.step()?;
        }
        Ok(())
    }
}

impl Faults {
    /// Kills a host. Its links are cut first: otherwise its connections would close in an order
    /// that does not depend on the seed only.
    fn kill(&self, sim: &mut Sim<'_>, host: &str) {
        let others = || self.hosts.servers.iter().chain(&self.hosts.clients).filter(|other| *other != host);
        others().for_each(|other| sim.partition(host, other.as_str()));
        sim.crash(host);
        others().for_each(|other| sim.repair(host, other.as_str()));
    }
}

/// Mostly short, sometimes longer than a silent connection is kept.
fn lasts(dice: &mut Rng) -> Duration {
    Duration::from_millis(match dice.u32(..4) {
        0 => dice.u64(20..300),
        1 | 2 => dice.u64(300..4000),
        _ => dice.u64(4000..14_000),
    })
}
