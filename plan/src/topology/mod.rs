//! How the servers of a cluster are connected: in a tree of three [`layers`], in each of which a
//! prime node collects for the others (paper 003, ECFS), or in a [`torus`] (paper 000,
//! ExSTorus-FS).

pub mod layers;
pub mod summary;
pub mod torus;

pub use layers::{Layers, Primes};
pub use summary::{CabinetSummary, Queue, SubNetworkSummary};
pub use torus::{Coordinates, Torus};
