//! Simulations of servers and clients. Each of them is a host of `turmoil`, which runs all hosts on
//! one thread, with a simulated clock and a simulated network. All chance comes from one seed: the
//! same seed gives the same run.
//!
//! These parts are real: connections, calls and servers of `wire`, the storage server, the metadata
//! server with its replay of requests, and the way clients repeat requests to both. These parts are
//! simulated: the network, the time, how long disks take, when processes die and what of their
//! disks survives. Disks are in memory.
//!
//! The simulations do not cover parts that wait on threads of their own by the machine's clock:
//! waiting for late stores (`volume::Targets`), the client of a file system with its buffers and
//! commits, leases of sessions, and Masters. Tests with real processes stop, kill and cut off
//! processes for those (`cli/tests/cluster`).
//!
//! `WEFT_SIM_SEED` sets the first seed, and `WEFT_SIM_SEEDS` the number of seeds to run from there
//! on. Without the latter only the first seed runs. `WEFT_SIM_TRACE` prints all events.

mod faults;
mod network;
mod record;
mod slow;

pub use faults::{Faults, Hosts};
pub use network::{Network, serve};
pub use record::Record;
pub use slow::Slow;

use std::time::Duration;

/// The port of every server.
pub const PORT: u16 = 7000;
/// The step of the simulated clock.
const CLOCK_STEP: Duration = Duration::from_millis(10);
/// Delay of a message without faults: minimum and maximum.
const LATENCY: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));

/// Runs `simulate` for every requested seed. It panics on an error and prints the seed.
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

/// A simulation without hosts. The seed decides everything that is left to chance.
pub fn world<'a>(seed: u64) -> turmoil::Sim<'a> {
    // For the pauses before connections are opened again, and for the numbers of clients.
    fastrand::seed(seed);
    turmoil::Builder::new()
        .rng_seed(seed)
        .tick_duration(CLOCK_STEP)
        .min_message_latency(LATENCY.0)
        .max_message_latency(LATENCY.1)
        .simulation_duration(Duration::from_secs(3600))
        .tcp_capacity(4096)
        .build()
}
