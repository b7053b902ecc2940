//! Errors, grouped by what the caller can do about them. Every message is one line that names the
//! place.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// An error of this crate.
#[derive(Debug)]
pub enum Error {
    /// The requested item does not exist.
    NotFound(String),
    /// Something exists that must not be replaced without an explicit request.
    Conflict {
        /// The path that exists.
        path: PathBuf,
        /// Why it is not replaced, and what to do next.
        what: String,
    },
    /// Too few blocks are left to reconstruct the data.
    TooDegraded {
        /// The degraded item: an object, or a stripe of it.
        what: String,
        /// The reason: how many blocks are available and how many are needed.
        why: ec::Unrecoverable,
    },
    /// Bytes that must not be used.
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong with the file.
        what: String,
    },
    /// An invalid argument; the message says what is allowed.
    Invalid(String),
    /// The target has no free space.
    NoSpace(PathBuf),
    /// Any other failed operation on a file.
    Io {
        /// The failed operation, in words that fit after "cannot".
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The caller cancelled the work; nothing of the work remains.
    Interrupted,
}

impl Error {
    /// Returns a function that converts the error of a failed operation on `path`.
    pub fn io<E: Into<io::Error>>(operation: &'static str, path: &Path) -> impl FnOnce(E) -> Self {
        let path = path.to_path_buf();
        move |source| {
            let source = source.into();
            match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoSpace(path),
                io::ErrorKind::AlreadyExists => Self::exists(&path),
                _ => Self::Io { operation, path, source },
            }
        }
    }

    /// The error for a path that exists and that only an explicit request replaces.
    pub(crate) fn exists(path: &Path) -> Self {
        Self::Conflict { path: path.to_path_buf(), what: "exists".into() }
    }

    /// Whether the process or the system reached its limit of open files.
    pub(crate) fn is_of_open_files(&self) -> bool {
        use rustix::io::Errno;
        let limits = [Errno::MFILE, Errno::NFILE].map(|limit| Some(limit.raw_os_error()));
        matches!(self, Self::Io { source, .. } if limits.contains(&source.raw_os_error()))
    }

    /// A stable word for the kind of error, for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::NotFound(_) => "not-found",
            Self::Conflict { .. } => "conflict",
            Self::TooDegraded { .. } => "too-degraded",
            Self::Corrupt { .. } => "corrupt",
            Self::Invalid(_) => "invalid",
            Self::NoSpace(_) => "no-space",
            Self::Io { .. } => "io",
            Self::Interrupted => "interrupted",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound(what) | Self::Invalid(what) => f.write_str(what),
            Self::TooDegraded { what, why } => write!(f, "{what}: {why}"),
            Self::Conflict { path, what } => write!(f, "{} {what}", Shown(path)),
            Self::Corrupt { path, what } => write!(f, "{}: {what}", Shown(path)),
            Self::NoSpace(path) => {
                write!(f, "{}: no space is left there; free some or choose another directory", Shown(path))
            }
            Self::Io { operation, path, source } if self.is_of_open_files() => {
                write!(f, "cannot {operation} {}: {source}; raise the limit of open files (ulimit -n)", Shown(path))
            }
            Self::Io { operation, path, source } => write!(f, "cannot {operation} {}: {source}", Shown(path)),
            Self::Interrupted => f.write_str("interrupted"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// A path on one line: control characters and bytes that are not UTF-8 are escaped.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a>(pub &'a Path);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.as_os_str().as_bytes().utf8_chunks() {
            for c in chunk.valid().chars() {
                if c.is_control() { write!(f, "{}", c.escape_default())? } else { write!(f, "{c}")? }
            }
            chunk.invalid().iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))?;
        }
        Ok(())
    }
}

/// The same for a path, or a name, that is known as bytes.
pub fn shown(path: &[u8]) -> String {
    Shown(Path::new(OsStr::from_bytes(path))).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_shown_on_one_line() {
        assert_eq!(shown(b"d/a\nb \xc3\xa4\xff"), "d/a\\nb ä\\xff");
    }
}
