//! Servers and clients in a simulation: every one of them is a host of `turmoil`, which moves all by one thread, by a clock of its own and over a network of its
//! own. Chance is one seed's: the same seed gives the same run.
//!
//! What runs is real: connections, calls and servers of `wire`, the storage server, the metadata server with its replay of requests, and how clients ask both
//! again. What is simulated: the network, the time, how long disks take, when processes die and what of their disks survives. Disks are in memory.
//!
//! What is not here, since it waits on threads of its own and by the machine's clock: how a client waits for stores that are late (`volume::Targets`), the client of a
//! file system with its buffers and commits, leases of sessions, and Masters. Real processes are stopped, killed and cut off for those (`cli/tests/cluster`).
//!
//! `WEFT_SIM_SEED` is the first seed and `WEFT_SIM_SEEDS` how many are tried from there on; with the first alone it is that one. With `WEFT_SIM_TRACE`
//! all that happens is printed.

mod faults;
mod network;
mod record;
mod slow;

pub use faults::{Faults, Hosts};
pub use network::{Network, serve};
pub use record::Record;
pub use slow::Slow;

use std::time::Duration;

/// Where every server listens.
pub const PORT: u16 = 7000;
/// Time goes on by this between two looks at the network.
const TICK: Duration = Duration::from_millis(10);
/// What a message takes, when nothing is wrong.
const LATENCY: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));

/// Runs `simulate` for every seed that is asked for. It panics when something is wrong; then the seed is printed.
pub fn for_seeds(default: u64, simulate: impl Fn(u64)) {
    struct Says(u64);
    impl Drop for Says {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("the simulation failed; again: WEFT_SIM_SEED={}", self.0);
            }
        }
    }
    let number = |name: &str| Some(std::env::var(name).ok()?.parse::<u64>().expect("a number"));
    let first = number("WEFT_SIM_SEED");
    let count = number("WEFT_SIM_SEEDS").unwrap_or(if first.is_some() { 1 } else { default });
    for seed in first.unwrap_or(1)..first.unwrap_or(1) + count {
        let _says = Says(seed);
        simulate(seed);
    }
}

/// A world without hosts. Everything in it that is left to chance is the seed's.
pub fn world<'a>(seed: u64) -> turmoil::Sim<'a> {
    // What connections wait before they are made again, and the numbers of clients.
    fastrand::seed(seed);
    turmoil::Builder::new()
        .rng_seed(seed)
        .tick_duration(TICK)
        .min_message_latency(LATENCY.0)
        .max_message_latency(LATENCY.1)
        .simulation_duration(Duration::from_secs(3600))
        .tcp_capacity(4096)
        .build()
}
