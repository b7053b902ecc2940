//! Machines that become a cluster without files that are copied by hand: `weft cluster init
//! --address`, `token`, `join`, `forget`, `volume` and `standby`, and the desk that they talk to,
//! `weft serve join`.

pub mod desk;
mod files;
pub mod first;
pub mod forget;
pub mod join;
mod machine;
pub mod standby;
pub mod token;
pub mod volume;

pub use machine::DIRECTORY;
