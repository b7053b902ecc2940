//! A cluster of processes on this machine for benches: stores, a metadata server and perhaps a
//! mount ([`stage`]), on loopback or each on a machine of a [`network`] of namespaces with limited
//! links, or held to a part of the processors or the disk by control groups ([`groups`]). What a
//! killed bench leaves, the next one removes ([`left`]).

mod commands;
mod groups;
mod left;
mod network;
mod stage;
mod tool;

pub use groups::{Groups, Limited};
pub use left::{PLACEMENT, Run, WRITE_COST};
pub use network::{Lab, STORES};
pub use stage::{Front, Setup, Stage, inside};
