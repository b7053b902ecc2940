//! Names and attributes.

use super::Handler;
use crate::files::Files;
use fs::{Attributes, Kind, New, RenameMode, SetAttributes};
use fuser::{Errno, INodeNo, RenameFlags};

/// How often a file is made or looked up that others remove each time before it is opened.
const ATTEMPTS: usize = 1000;

impl<F: Files> Handler<F> {
    /// Calls for a file that the kernel gets to know by the answer, which must follow.
    pub(super) fn introduce(
        &self,
        what: &'static str,
        ino: u64,
        call: impl FnOnce(&F) -> fs::Result<Attributes>,
    ) -> Result<Attributes, Errno> {
        let files = self.caller.files();
        let _until_it_is_known = files.looking_up();
        let found = self.caller.call(what, ino, call)?;
        files.looked_up(found.ino);
        Ok(found)
    }

    pub(super) fn make(&self, parent: u64, name: &[u8], new: &New) -> Result<Attributes, Errno> {
        self.introduce("making a file in", parent, |files| files.make(parent, name, new))
    }

    /// Makes a regular file and opens it. Nobody else on this machine can come in between: the kernel holds the directory until it has the answer. When somebody
    /// elsewhere does, that file is opened, unless it takes the kernel to say whether that may be: then it is told that it knows too little, and looks again.
    pub(super) fn create(&self, parent: u64, name: &[u8], new: &New, flags: i32) -> Result<Attributes, Errno> {
        for _ in 0..ATTEMPTS {
            let (found, is_new) = match self.make(parent, name, new) {
                Err(error) if i32::from(error) == libc::EEXIST && flags & libc::O_EXCL == 0 => {
                    match self.introduce("looking up", parent, |files| files.lookup(parent, name)) {
                        // Gone again.
                        Err(error) if i32::from(error) == libc::ENOENT => continue,
                        found => (found?, false),
                    }
                }
                made => (made?, true),
            };
            // Only its new name makes a file known, so that there is nothing to be truncated.
            let flags = if is_new { flags & !libc::O_TRUNC } else { flags };
            let is_certain = if is_new {
                Ok(true)
            } else {
                self.is_sticky(parent).map(|sticky| !sticky && may_open(new, &found, flags))
            };
            let opened = match is_certain {
                Ok(true) => self.open(new.uid, found.ino, flags),
                Ok(false) => Err(Errno::from_i32(libc::ESTALE)),
                Err(error) => Err(error),
            };
            let Err(error) = opened else { return Ok(found) };
            self.caller.files().forget(found.ino, 1);
            if is_new {
                // The caller hears of a failure and must not find the file then. By now the name
                // may be that of somebody else's file.
                let remove = |files: &F| files.unlink_file(parent, name, found.ino);
                let _ = self.caller.call("unlinking in", parent, remove);
            }
            // The kernel looks again only once, and others may be faster each time.
            if is_certain != Ok(true) || i32::from(error) != libc::ESTALE {
                return Err(error);
            }
        }
        Err(Errno::from_i32(libc::EIO))
    }

    /// Whether others may remove only their own files from a directory: the kernel may refuse to open theirs, too.
    fn is_sticky(&self, directory: u64) -> Result<bool, Errno> {
        let found = self.caller.call("reading attributes", directory, |files| files.attributes(directory))?;
        Ok(found.mode & libc::S_ISVTX != 0)
    }

    pub(super) fn rename(&self, from: (u64, &[u8]), to: (u64, &[u8]), flags: RenameFlags) -> Result<(), Errno> {
        let mode = match flags.bits() {
            0 => RenameMode::Replace,
            libc::RENAME_NOREPLACE => RenameMode::NoReplace,
            libc::RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return Err(Errno::EINVAL),
        };
        self.caller.call("renaming in", from.0, |files| files.rename(from, to, mode))
    }

    /// Sets attributes. A new owner, and truncation by others than root, take set-user-ID and set-group-ID bits away (`HANDLE_KILLPRIV_V2`;
    /// fuser does not hand on the kernel's hint for the latter).
    pub(super) fn set_attributes(&self, user: u32, ino: u64, mut change: SetAttributes) -> Result<Attributes, Errno> {
        if change.size.is_some() && user != 0 {
            self.take_privileges(ino)?;
            change.mode = change.mode.map(fs::unprivileged);
        }
        if change.uid.is_some() || change.gid.is_some() {
            let found = self.caller.call("reading attributes", ino, |files| files.attributes(ino))?;
            let mode = change.mode.unwrap_or(found.mode);
            if found.kind != Kind::Directory && mode != fs::unprivileged(mode) {
                change.mode = Some(fs::unprivileged(mode));
            }
        }
        self.caller.call("setting attributes of", ino, |files| files.set_attributes(ino, change))
    }

    /// Takes set-user-ID, set-group-ID and file capabilities away before somebody changes the content who may not keep them. The kernel takes some
    /// away itself, but by what it has in mind of the file, which others may have changed. It must not run the changed program by the mode that it
    /// has in mind, so that it forgets that.
    pub(super) fn take_privileges(&self, ino: u64) -> Result<(), Errno> {
        if self.caller.call("taking privileges from", ino, |files| files.take_privileges(ino))? {
            // Attributes alone, for which it waits for nobody. It fails when the kernel has forgotten the file or the mount is gone.
            let _ = self.kernel.get().map(|kernel| kernel.inval_inode(INodeNo(ino), -1, 0));
        }
        Ok(())
    }
}

/// Whether a regular file may certainly be opened by who wanted to make one. Which other groups that is in is not looked at.
fn may_open(by: &New, found: &Attributes, flags: i32) -> bool {
    let needed = match flags & libc::O_ACCMODE {
        libc::O_RDONLY if flags & libc::O_TRUNC == 0 => 0o4,
        libc::O_WRONLY => 0o2,
        _ => 0o6,
    };
    let classes: &[u32] = match (by.uid, by.gid) {
        (0, _) => &[],
        (uid, _) if uid == found.uid => &[6],
        (_, gid) if gid == found.gid => &[3],
        _ => &[3, 0],
    };
    found.kind == Kind::File && classes.iter().all(|class| found.mode >> class & needed == needed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fs::Time;

    #[test]
    fn a_file_of_somebody_else_is_opened_only_if_that_is_allowed() {
        let zero = Time { seconds: 0, nanoseconds: 0 };
        let found = |mode, uid, gid| Attributes {
            ino: 9,
            kind: Kind::File,
            mode,
            links: 1,
            uid,
            gid,
            device: 0,
            size: 0,
            allocated: 0,
            accessed: zero,
            modified: zero,
            changed: zero,
            created: zero,
        };
        let by = |uid, gid| New { kind: Kind::File, mode: 0o644, uid, gid, device: 0, link: Vec::new() };
        assert!(may_open(&by(0, 0), &found(0, 5, 5), libc::O_RDWR));
        assert!(!may_open(&by(0, 0), &Attributes { kind: Kind::Symlink, ..found(0o777, 0, 0) }, libc::O_RDONLY));
        assert!(may_open(&by(5, 1), &found(0o400, 5, 6), libc::O_RDONLY));
        assert!(!may_open(&by(5, 1), &found(0o400, 5, 6), libc::O_RDONLY | libc::O_TRUNC));
        assert!(!may_open(&by(5, 6), &found(0o477, 5, 6), libc::O_WRONLY), "its owner's bits alone count");
        assert!(may_open(&by(1, 6), &found(0o660, 5, 6), libc::O_RDWR));
        assert!(!may_open(&by(1, 1), &found(0o606, 5, 6), libc::O_RDWR), "it may be in the group");
        assert!(may_open(&by(1, 1), &found(0o666, 5, 6), libc::O_RDWR));
    }
}
