//! What is left over goes: the parts of uploads that ended, uploads that nobody completed, and
//! whole objects that did not get their name because a gateway was killed.

use crate::home::is_missing;
use crate::multipart::{drop_upload, entries};
use crate::objects::{Objects, now};
use fs::{FileKind, Ino};

/// A file without a name that is older than this belongs to no request, in seconds.
const UNNAMED_FOR: i64 = 24 * 3600;

/// Removes what is left over. `is_alone` says that no other gateway has the volume; then all files
/// without a name that this process did not make are left over. Uploads that are older than
/// `expire` seconds are given up.
///
/// # Errors
/// When the volume cannot be read or changed.
pub fn sweep(objects: &Objects, is_alone: bool, expire: Option<u64>) -> fs::Result<usize> {
    let (mut removed, at) = (0, now().seconds);
    for (name, file) in entries(objects, objects.home.temporary)? {
        let is_old = file.changed.seconds < at - UNNAMED_FOR;
        if is_old || is_alone && !objects.may_be_own(&name) {
            removed += usize::from(objects.fs.unlink(objects.home.temporary, &name).is_ok());
        }
    }
    for (name, directory) in entries(objects, objects.home.uploads)? {
        let is_old = expire.is_some_and(|expire| directory.created.seconds.saturating_add_unsigned(expire) < at);
        if let Ok(id) = String::from_utf8(name)
            && is_old
        {
            removed += usize::from(drop_upload(objects, &id).is_ok());
        }
    }
    for (name, file) in entries(objects, objects.home.trash)? {
        removed += usize::from(drop_tree(objects, objects.home.trash, &name, file.kind, file.ino).is_ok());
    }
    Ok(removed)
}

/// Removes a directory with its files; others may do the same.
fn drop_tree(objects: &Objects, parent: Ino, name: &[u8], kind: FileKind, ino: Ino) -> fs::Result<()> {
    let done = if kind == FileKind::Directory {
        for (inside, file) in entries(objects, ino)? {
            drop_tree(objects, ino, &inside, file.kind, file.ino)?;
        }
        objects.fs.remove_directory(parent, name)
    } else {
        objects.fs.unlink(parent, name)
    };
    done.or_else(|error| if is_missing(&error) { Ok(()) } else { Err(error) })
}
