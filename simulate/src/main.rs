//! One world: several clients with their buffers, commits, leases and locks, the metadata server
//! and the stores of one volume run in one process, by one seed. Network, disks, clocks and
//! processes fail. What the clients' programs do is recorded with its result and checked.
//!
//! These parts are real: `fs` on both sides of the session, `meta` with its journal, `volume` with
//! its threads and hedges, the replay of requests in `session`. These are simulated: the network,
//! disks, clocks, processes, and the way of messages (`network.rs`, `link.rs`, `store.rs`).
//!
//! `simulate --seed N` runs one seed; `--seeds A..B` runs each in a process of its own. With
//! `--failovers`, there are several metadata servers, and nothing but takeovers (`failovers/`).
#![forbid(unsafe_code)]

mod broken;
mod check;
mod client;
mod command;
mod crew;
mod failovers;
mod faults;
mod history;
mod index;
mod lab;
mod link;
mod network;
mod scenario;
mod server;
mod serving;
mod store;
mod view;
mod work;
mod worker;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: world::Preempting = world::Preempting;

fn main() -> ExitCode {
    command::main()
}
