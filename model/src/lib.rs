//! The metadata protocol as a model, checked in all its states at small bounds. What it is and what
//! it leaves out: `docs/design/011-model.md`.
//!
//! The checker is our own (`check.rs`). `stateright` 0.31 has the same idea and more, but also a
//! web server that no feature switches off (`tiny_http`), and eleven other direct dependencies.
//!
//! Invariant: in what is modelled, servers may do more than the built ones, never less, or a check
//! proves nothing of these.

mod bounds;
mod check;
mod membership;
mod openings;
mod protocol;
mod state;
mod step;
mod steps;
mod voters;

pub use bounds::{Bounds, Broken, Change};
pub use check::{Checked, Model, check};
pub use protocol::Protocol;
pub use state::State;
pub use step::Step;
