//! Walks trees of the machine: lists their content, filters it, and creates their directories in
//! the volume.

mod directory;
mod extended;
mod filter;
mod list;
mod stat;
mod tree;

pub use directory::{open_directory, open_file};
pub use extended::{Extended, OWN, path_of, read_attributes, read_attributes_at};
pub use filter::Filter;
pub use list::plan_line;
pub use list::{Expected, List, Listed};
pub use stat::{stat_at, stat_of};
pub use tree::{SourceTree, Walking, root_stat, sync_attributes, sync_directory, whole};
