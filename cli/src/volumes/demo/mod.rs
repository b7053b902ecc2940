//! The parts of `weft demo` that are about volumes.

pub mod cluster;
pub mod embedded;
mod scene;

pub use scene::{Load, same};
