//! Decides what to do with a file, from its attributes at the source and from what the archive has
//! under its name.

use crate::message::Stat;
use fs::{Attributes, FileKind};

/// What to do with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The archive does not have the file.
    New,
    /// The archive has the file, and nothing has changed.
    Unchanged,
    /// The archive has the content, but the attributes have changed.
    Attributes,
    /// The archive has something else under this name.
    Differs,
    /// The archive has a directory under this name.
    Directory,
}

/// Decides what to do with a file. As for `rsync`, two versions of a file differ if their sizes or
/// their modification times differ. `link` tells whether the targets of two symbolic links are the
/// same.
pub fn decide(stat: &Stat, there: Option<&Attributes>, link: impl FnOnce(&Attributes) -> bool) -> Decision {
    let Some(there) = there else { return Decision::New };
    if there.kind == FileKind::Directory {
        return Decision::Directory;
    }
    let same = there.kind == stat.kind
        && match stat.kind {
            FileKind::File => (there.size, there.modified) == (stat.size, stat.modified),
            FileKind::Symlink => link(there),
            _ => there.device == stat.device,
        };
    match () {
        () if !same => Decision::Differs,
        () if (there.mode, there.uid, there.gid) != (stat.mode, stat.uid, stat.gid) => Decision::Attributes,
        // The number of names has changed, or attributes that only a read of them can show.
        () if there.changed != stat.changed => Decision::Attributes,
        () => Decision::Unchanged,
    }
}
