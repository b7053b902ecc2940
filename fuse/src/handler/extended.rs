//! Extended attributes.

use super::Handler;
use crate::files::Files;
use fs::Ino;
use fuser::{Errno, ReplyXattr};

/// Refuses names of other namespaces than these, such as those of access control lists
/// (`system.posix_acl_access`).
fn check(name: &[u8]) -> Result<(), Errno> {
    let is_known = [&b"user."[..], b"trusted.", b"security."].iter().any(|space| name.starts_with(space));
    if is_known { Ok(()) } else { Err(Errno::EOPNOTSUPP) }
}

impl<F: Files> Handler<F> {
    pub(super) fn attribute(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>, Errno> {
        check(name)?;
        self.caller.call("reading an attribute of", ino, |files| files.attribute(ino, name))
    }

    /// The names, each with a zero byte behind it. Only root sees those of `trusted`.
    pub(super) fn attribute_names(&self, ino: Ino, user: u32) -> Result<Vec<u8>, Errno> {
        let names = self.caller.call("listing attributes of", ino, |files| files.attribute_names(ino))?;
        let shown = names.iter().filter(|name| user == 0 || !name.starts_with(b"trusted."));
        Ok(shown.flat_map(|name| name.iter().copied().chain([0])).collect())
    }

    pub(super) fn set_attribute(&self, ino: Ino, name: &[u8], value: &[u8], flags: i32) -> Result<(), Errno> {
        check(name)?;
        let must_exist = match flags {
            0 => None,
            libc::XATTR_CREATE => Some(false),
            libc::XATTR_REPLACE => Some(true),
            _ => return Err(Errno::EINVAL),
        };
        self.caller.call("setting an attribute of", ino, |files| files.set_attribute(ino, name, value, must_exist))
    }

    pub(super) fn remove_attribute(&self, ino: Ino, name: &[u8]) -> Result<(), Errno> {
        check(name)?;
        self.caller.call("removing an attribute of", ino, |files| files.remove_attribute(ino, name))
    }
}

/// Answers with some bytes, or with how many there are if the caller has space for none.
pub(super) fn answer(reply: ReplyXattr, space: u32, bytes: Result<Vec<u8>, Errno>) {
    match bytes {
        Ok(bytes) if space == 0 => reply.size(bytes.len() as u32),
        Ok(bytes) if bytes.len() > space as usize => reply.error(Errno::ERANGE),
        Ok(bytes) => reply.data(&bytes),
        Err(error) => reply.error(error),
    }
}
