//! What is left over goes: the parts of uploads that ended, uploads that nobody completed, and
//! whole objects that did not get their name because their writer was killed.

use crate::home::is_missing;
use crate::multipart::{drop_upload, entries};
use crate::place::{Objects, now};
use fs::{Attributes, FileKind, Ino};

/// A file without a name that is older than this belongs to no request, in seconds.
const UNNAMED_FOR: i64 = 24 * 3600;

/// Removes what is left over. `is_alone` says that nobody else writes objects into the volume; then
/// all files without a name that this process did not make are left over. Uploads that are older
/// than `expire` seconds are given up. What is left when the process ends stays for the next one.
///
/// # Errors
/// When the volume cannot be read or changed.
pub fn sweep(objects: &Objects, is_alone: bool, expire: Option<u64>) -> fs::Result<usize> {
    let (mut removed, at) = (0, now().seconds);
    let goes_on = |_: &(Vec<u8>, Attributes)| !objects.is_ending();
    for (name, file) in entries(objects, objects.home.temporary)?.into_iter().take_while(goes_on) {
        let is_old = file.changed.seconds < at - UNNAMED_FOR;
        if is_old || is_alone && !objects.may_be_own(&name) {
            removed += usize::from(objects.fs.unlink(objects.home.temporary, &name).is_ok());
        }
    }
    for (name, directory) in entries(objects, objects.home.uploads)?.into_iter().take_while(goes_on) {
        let is_old = expire.is_some_and(|expire| directory.created.seconds.saturating_add_unsigned(expire) < at);
        if let Ok(id) = String::from_utf8(name)
            && is_old
        {
            removed += usize::from(drop_upload(objects, &id).is_ok());
        }
    }
    Ok(removed + empty_trash(objects)?)
}

/// Removes the parts of uploads that ended.
///
/// # Errors
/// When the volume cannot be read.
pub fn empty_trash(objects: &Objects) -> fs::Result<usize> {
    let mut removed = 0;
    let goes_on = |_: &(Vec<u8>, Attributes)| !objects.is_ending();
    for (name, file) in entries(objects, objects.home.trash)?.into_iter().take_while(goes_on) {
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
