//! Errors of the file system as `OSError` with an errno, of which Python makes the subclasses:
//! `FileNotFoundError`, `FileExistsError`, `IsADirectoryError` and others.

use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// What went wrong, until the interpreter is there to raise it.
#[derive(Debug)]
pub enum Failure {
    /// An error of the file system.
    Fs(fs::Error),
    /// An error that only this crate finds.
    Errno(Errno, &'static str),
    /// Something was closed.
    Closed(&'static str),
    /// This process was forked from the one that opened a volume.
    Forked,
}

/// The result of what has no interpreter.
pub type Result<T> = std::result::Result<T, Failure>;

const FORKED: &str = "a volume that was opened before the process forked cannot be used in the child, nor another one \
    opened there: its threads are in the parent. Start workers with \"spawn\" or \"forkserver\" \
    (multiprocessing.get_context, DataLoader(multiprocessing_context=\"spawn\")), or open no volume before they fork";

impl From<fs::Error> for Failure {
    fn from(error: fs::Error) -> Self {
        Self::Fs(error)
    }
}

impl Failure {
    /// The error to raise, about a file.
    pub fn about(self, path: &[u8]) -> PyErr {
        let raised = |errno: i32, message: String| match path {
            [] => PyOSError::new_err((errno, message)),
            path => PyOSError::new_err((errno, message, OsStr::from_bytes(path).to_owned())),
        };
        match self {
            Self::Fs(error) => raised(error.errno(), error.to_string()),
            Self::Errno(errno, message) => raised(errno.raw_os_error(), message.to_owned()),
            Self::Closed(what) => PyValueError::new_err(format!("the {what} is closed")),
            Self::Forked => PyRuntimeError::new_err(FORKED),
        }
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        failure.about(b"")
    }
}
