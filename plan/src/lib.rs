//! What Weft decides, as functions of their arguments: no I/O, no clock, no hidden randomness.
//!
//! - [`energy`]: what a job's energy was spent on, and what it costs.
//! - [`cost`]: what a write costs, step by step, and what limits it.
//! - [`extent`]: where the bytes of a file are, and what a write, a truncation or a hole does to
//!   that.
//! - [`stripe`]: which blocks of a stripe hold which of its bytes.
//! - [`domain`], [`placement`]: what fails together, and on which targets a chunk set goes.
//! - [`membership`]: which targets are there.
//! - [`durability`]: how long a chunk set lives, by a Markov chain.
//! - [`repair`]: what is rebuilt first, and where it goes.
//! - [`coding`]: whether a client codes a stripe, or a store, and which.
//! - [`id`]: the numbers that things are called by.
//! - [`inline`]: when synced data moves from the metadata into stripes.
//! - [`masters`]: which store codes the next stripe.
//! - [`late`]: when to stop waiting for one of several that do the same.
//! - [`report`]: what a storage server tells of itself, and what that says of its load.
//! - [`processors`]: what the processors of a machine did.
//! - [`backoff`]: when to try again what failed.
//! - [`object_name`]: which names the parts of S3 keys have, and in what order they are listed.
//! - [`bucket`]: how long to wait, so that a rate is kept.
//! - [`sizes`]: how people write lengths in bytes.
//! - [`topology`]: the layers of a network and their prime nodes, and distances in a torus.
//! - [`voters`]: which targets vote about the newest state of a volume.
//! - [`words`]: how people read quantities.
//! - [`schedule`]: which worker of an archive job does what next, and how large files are cut.
#![forbid(unsafe_code)]

pub mod backoff;
pub mod bucket;
mod by_target;
pub mod coding;
pub mod cost;
pub mod domain;
pub mod durability;
pub mod energy;
pub mod extent;
pub mod id;
pub mod inline;
pub mod late;
pub mod masters;
pub mod membership;
pub mod object_name;
pub mod placement;
pub mod processors;
pub mod repair;
pub mod report;
pub mod schedule;
pub mod sizes;
pub mod stripe;
pub mod topology;
pub mod voters;
pub mod words;

pub use domain::Domain;
pub use extent::{Extent, ExtentMap, ExtentPlace};
pub use id::{Ino, Position, RecordOffset, SessionId, SetId, StripeSeq, TargetId, TxId};
pub use stripe::{Geometry, Span};
