//! A cluster of processes on this machine for benches: stores, a metadata server and perhaps a
//! mount ([`stage`]), on loopback or each on a machine of a [`network`] of namespaces with limited
//! links, or held to a part of the processors or of a disk of their own ([`own_disk`]) by control
//! groups ([`groups`]). What a killed bench leaves, the next one removes ([`left`]).

mod commands;
mod common;
mod figures;
mod groups;
mod left;
mod network;
mod own_disk;
mod stage;
mod streams;
mod tool;

pub use common::Common;
pub use figures::{median, spread};
pub use groups::{Groups, Limited};
pub use left::{PLACEMENT, Run, WRITE_COST};
pub use network::{Lab, STORES};
pub use stage::{Front, Setup, Stage, inside};
pub use streams::{RECORD_BYTES, write_streams};

use crate::show;
use std::time::SystemTime;

/// The time now, for a result.
pub fn now() -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("{} UTC", show::date(since.as_secs() as i64))
}

/// This machine, for a result.
pub fn machine() -> String {
    let name = volume::machine::processor().unwrap_or_else(|| std::env::consts::ARCH.into());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{name}, {}", show::count(cores, "core"))
}
