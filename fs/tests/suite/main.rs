//! One program for most tests: each of its own would compile the lab, and link all of it again.

#[path = "../lab/mod.rs"]
mod lab;

mod alone;
mod clients;
mod directories;
mod edits;
mod extents;
mod fencing;
mod full;
mod golden;
mod grace;
mod hard_cases;
mod interrupted;
mod lacking;
mod loads;
mod locks;
mod members;
mod membership;
mod modes;
mod one_history;
mod rebalance;
mod recover;
mod rejoining;
mod removed;
mod restarts;
mod sharing;
mod space;
mod stripe_size;
mod superseded;
mod takeover;
mod votes;
mod write_cost;
