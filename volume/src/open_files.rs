//! Raises the limit of open files of this process.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the soft limit of open files to the hard limit, and returns the limit that now applies.
/// The default of a shell is too low for repairs of wide codes, which hold many files open, and for
/// servers, which hold many connections.
pub fn allow_many_open_files() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current < limit.maximum.or(Some(u64::MAX)) {
        limit.current = limit.maximum;
        // Ignore a failure: a limit that is too low shows up when a file cannot be opened.
        let _ = setrlimit(Resource::Nofile, limit);
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
