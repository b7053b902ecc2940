//! Getting an archive back: the explorer lists directories of the volume, workers write files, attributes and all.
//!
//! Nothing is written outside of the directory that was named: paths are opened a name at a time, and no link is followed on the way. What is there
//! stays, unless it is the same or `force` is given; a file appears under its name when it is complete, so that a restore that was stopped is started again.

mod attributes;
mod content;
mod job;
mod place;
mod restorer;
mod tree;

pub use content::read;
pub use job::{Options, restore, walk_of};
pub use place::{Root, open_below};
pub use restorer::{HIDDEN, Restorer, Restoring};
pub use tree::{VolumeTree, Walked, stat};
