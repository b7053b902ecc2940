//! How many files this process may have open.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Allows as many as the system does: repairs of wide codes hold more files open than a shell allows by default, servers more connections. Returns how many that
/// are.
pub fn allow_many_open_files() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current < limit.maximum.or(Some(u64::MAX)) {
        limit.current = limit.maximum;
        // A lower limit shows when a file cannot be opened.
        let _ = setrlimit(Resource::Nofile, limit);
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
