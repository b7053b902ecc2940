//! What is to be done of a file, from what it is at the source and what is in the archive under its name.

use crate::message::Stat;
use fs::{Attributes, Kind};

/// What is to be done of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is not in the archive.
    New,
    /// It is in the archive as it is.
    Unchanged,
    /// Its content is in the archive, its attributes have changed.
    Attributes,
    /// Something else is in the archive under its name.
    Differs,
    /// A directory is in the archive under its name.
    Directory,
}

/// Decides. Two versions of a file differ in their size or in the time of the last change of content, as `rsync` has it. `link` says whether
/// the targets of two symbolic links are the same.
pub fn decide(stat: &Stat, there: Option<&Attributes>, link: impl FnOnce(&Attributes) -> bool) -> Decision {
    let Some(there) = there else { return Decision::New };
    if there.kind == Kind::Directory {
        return Decision::Directory;
    }
    let same = there.kind == stat.kind
        && match stat.kind {
            Kind::File => (there.size, there.modified) == (stat.size, stat.modified),
            Kind::Symlink => link(there),
            _ => there.device == stat.device,
        };
    match () {
        () if !same => Decision::Differs,
        () if (there.mode, there.uid, there.gid) != (stat.mode, stat.uid, stat.gid) => Decision::Attributes,
        // More names, or attributes that only reading them shows.
        () if there.changed != stat.changed => Decision::Attributes,
        () => Decision::Unchanged,
    }
}
