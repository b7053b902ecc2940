//! Cold starts: how caches are dropped before something is measured without them.

use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::io;

const DROP: &str = "/proc/sys/vm/drop_caches";

/// How caches are dropped here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cold {
    /// Everything that the kernel caches: pages, directory entries and inodes.
    Kernel,
    /// The pages of one file; directory entries and inodes stay.
    File,
}

impl Cold {
    /// What this process is allowed to do.
    pub fn available() -> Self {
        if std::fs::write(DROP, "1").is_ok() { Self::Kernel } else { Self::File }
    }

    /// In words, for the report.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Kernel => "/proc/sys/vm/drop_caches (pages, directory entries and inodes)",
            Self::File => "posix_fadvise(POSIX_FADV_DONTNEED) on the file, for want of root; cold stat is left out",
        }
    }

    /// Makes the next read of a file that was synchronised come from below the kernel's cache.
    pub fn drop_pages(self, file: &File) -> io::Result<()> {
        match self {
            Self::Kernel => std::fs::write(DROP, "3"),
            Self::File => Ok(fadvise(file, 0, None, Advice::DontNeed)?),
        }
    }

    /// Makes the kernel forget names and inodes, or says that it cannot.
    pub fn drop_names(self) -> io::Result<bool> {
        match self {
            Self::Kernel => std::fs::write(DROP, "2").map(|()| true),
            Self::File => Ok(false),
        }
    }
}
