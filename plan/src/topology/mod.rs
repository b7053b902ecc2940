//! How the servers of a cluster are connected: in a tree of three [`layers`], in each of which a
//! prime node collects for the others (paper 003, ECFS), or in a [`torus`] (paper 000,
//! ExSTorus-FS), in which the targets of a volume have [`places`].

pub mod layers;
pub mod places;
pub mod summary;
pub mod torus;

pub use layers::{Layers, Primes};
pub use places::{Near, Network, Placed, Places};
pub use summary::{CabinetSummary, Queue, SubNetworkSummary};
pub use torus::{Coordinates, Torus};
