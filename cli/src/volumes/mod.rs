//! Commands on volumes. Each takes a volume directory, or `VOLUME:/path` for files in it.
//!
//! A volume is open in one process. While that is a mount, commands are sent to it through a socket
//! in the volume directory, so that an operator can look after a volume that is in use.

mod address;
pub mod archive;
mod bench_lab;
pub mod channels_bench;
pub mod console;
pub mod create;
pub mod demo;
pub mod directories_bench;
pub mod files;
pub mod fsck;
pub mod group;
pub mod helper;
mod hosted;
pub mod job_progress;
mod joining;
pub mod meta;
mod meta_host;
pub mod metrics;
pub mod mount;
mod mount_directory;
mod mounts;
mod notify;
mod open;
pub mod overlap_bench;
mod paths;
pub mod placement;
pub mod placement_bench;
pub mod processes;
pub mod rebalance;
pub mod remote;
mod respond;
pub mod restore;
pub mod runtime;
pub mod s3;
mod s3_keys;
pub mod seat;
pub mod serve;
mod server;
pub mod status;
pub mod target;
pub mod upgrade;
pub mod verify;
pub mod write_cost;

pub use address::{Address, server_of};
pub use hosted::{served, serves_others};
pub use open::{Open, Writing, allow_possibly_old, open, open_own, open_with, open_within, options, patiently, places};
pub use paths::{new_target, plain};
