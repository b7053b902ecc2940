//! A simulator of Weft: what `plan` decides, over ten to ten thousand virtual stores. It places
//! chunk sets, lets stores fail and repairs them over years, adds and empties stores, and lets
//! clients write.
//!
//! All decisions are those of the product: [`plan::placement`], its rebalancing, `plan::repair` and
//! `plan::membership`. What is modelled is around them: how fast disks, links and processors are,
//! and what fails when. The same file gives the same result, whatever the number of threads and the
//! machine: there is no clock, and all chance comes from the seed.
#![forbid(unsafe_code)]

mod chance;
mod check;
mod chooser;
mod cluster;
pub mod config;
mod fill;
mod flow;
mod growth;
mod hops;
mod near;
mod placing;
pub mod report;
mod run;
mod speeds;
pub mod study;
mod table;
mod torus;
mod watch;
mod writes;
mod years;

pub use chance::Estimate;
pub use config::Config;
pub use fill::Filled;
pub use growth::Grown;
pub use hops::{Hops, PolicyHops};
pub use report::Report;
pub use run::run;
pub use watch::{Phase, Watch};
pub use writes::Writes;
pub use years::{Level, Markov, Times, Years};

/// A file with every key, which is simulated in a few seconds.
pub const EXAMPLE: &str = include_str!("example.toml");
