//! Directories that only their user can access.

use std::fs::{DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;

/// In the root of a new ext file system.
pub(super) const LOST_AND_FOUND: &str = "lost+found";

/// Creates a directory that only this user can access, whatever the umask. An empty directory of
/// this user gets the same mode; any other existing one keeps its mode, because others may use it.
///
/// # Errors
/// When it cannot be created or changed.
pub fn make_private(path: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let found = std::fs::metadata(path)?;
    if found.mode() & 0o077 == 0 || found.uid() != rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    for entry in std::fs::read_dir(path)? {
        if entry?.file_name() != LOST_AND_FOUND {
            return Ok(());
        }
    }
    std::fs::set_permissions(path, Permissions::from_mode(0o700))
}
