//! Which worker does what next (parEC, section III): the queue of work and its two policies, how
//! large objects are cut, and what that gives when the time of each object is known.
//!
//! Nothing here knows what the work is.

mod parts;
mod queue;
mod simulate;

pub use parts::{MAX_PARTS, Parts};
pub use queue::{Policy, Queue, QueueLimits};
pub use simulate::{Object, finishes};
