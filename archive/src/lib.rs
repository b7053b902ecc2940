//! The parallel archive encoder (parEC): many files of many trees into a volume, by many workers.

pub mod check;
pub mod clock;
pub mod crew;
pub mod dry;
pub mod encode;
pub mod energy;
pub mod job;
pub mod limit;
mod lock;
pub mod message;
mod pace;
pub mod report;
pub mod restore;
pub mod roles;
mod spill;
pub mod threads;
pub mod transport;
pub mod walk;
