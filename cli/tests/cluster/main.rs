//! A cluster of real processes: what its users rely on, also when processes are killed, stopped and
//! started again at any moment.

mod archives;
mod capabilities;
mod coding;
mod console;
mod ending;
mod expiry;
mod failover;
#[path = "../commands/forest.rs"]
mod forest;
mod growth;
#[path = "../commands/handles.rs"]
mod handles;
mod hostile;
mod joining;
mod lab;
mod locks;
mod meta;
mod metrics;
mod mounts;
mod names;
mod network;
mod partition;
mod placement;
mod placement_bench;
mod privileges;
#[path = "../commands/promptly.rs"]
mod promptly;
#[path = "../commands/scratch.rs"]
#[allow(dead_code, reason = "the other tests use the rest")]
mod scratch;
mod shared_disks;
mod soak;
mod starter;
mod starting;
mod stores;
mod write_cost;
