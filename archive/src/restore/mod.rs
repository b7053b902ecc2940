//! Restores an archive: explorers list directories of the volume, workers write files with all
//! their attributes.
//!
//! Nothing is written outside of the named directory: paths are opened one name at a time, and no
//! link is followed on the way. An existing file stays unless it is the same or `force` is given. A
//! file gets its name only when it is complete, so that a stopped restore can be started again.

mod attributes;
mod content;
mod job;
mod place;
mod restorer;
mod tree;

pub use content::read;
pub use job::{Options, Restore, restore, walk_of};
pub use place::{Root, open_below};
pub use restorer::{HIDDEN, Restorer, Restoring};
pub use tree::{VolumeTree, Walked, stat};
