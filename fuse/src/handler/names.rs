//! Names and attributes.

use super::Handler;
use super::permission::{self, Verdict};
use crate::files::Files;
use fs::{Attributes, FileKind, Ino, New, RenameMode, SetAttributes};
use fuser::{Errno, INodeNo, RenameFlags};

/// How often a file is made or looked up that others remove each time before it is opened.
const MAX_ATTEMPTS: usize = 1000;

impl<F: Files> Handler<F> {
    /// Calls for a file that the kernel gets to know by the answer, which must follow.
    pub(super) fn introduce(
        &self,
        what: &'static str,
        ino: Ino,
        call: impl FnOnce(&F) -> fs::Result<Attributes>,
    ) -> Result<Attributes, Errno> {
        let files = self.caller.files();
        let _until_it_is_known = files.looking_up();
        let found = self.caller.call(what, ino, call)?;
        files.looked_up(found.ino);
        Ok(found)
    }

    /// Looks a name up. The kernel asks for `.` and `..` when a program opens a file by handle.
    pub(super) fn look_up(&self, parent: Ino, name: &[u8]) -> Result<Attributes, Errno> {
        self.introduce("looking up", parent, |files| {
            let found = match name {
                b"." => files.attributes(parent)?,
                b".." => files.attributes(files.parent(parent)?)?,
                name => return files.lookup(parent, name),
            };
            // A file that was removed is no longer found by its handle.
            if found.links > 0 { Ok(found) } else { Err(fs::Error::NotFound(String::new())) }
        })
    }

    pub(super) fn make(&self, parent: Ino, name: &[u8], new: &New) -> Result<Attributes, Errno> {
        self.introduce("making a file in", parent, |files| files.make(parent, name, new))
    }

    /// Makes a regular file and opens it. No other program on this machine can interfere: the
    /// kernel holds the directory until it has the answer. If a client elsewhere makes the file
    /// first, that file is opened, unless only the kernel can say whether that is permitted: then
    /// it learns that it knows too little, and looks again.
    pub(super) fn create(
        &self,
        process: u32,
        parent: Ino,
        name: &[u8],
        new: &New,
        flags: i32,
    ) -> Result<Attributes, Errno> {
        for _ in 0..MAX_ATTEMPTS {
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
            let verdict = if is_new { Ok(Verdict::Yes) } else { self.may_open(process, parent, new, &found, flags) };
            let opened = match verdict {
                Ok(Verdict::Yes) => self.open(new.uid, found.ino, flags),
                Ok(Verdict::No(error)) => Err(Errno::from_i32(error)),
                Ok(Verdict::AskKernel(otherwise)) => {
                    Err(Errno::from_i32(self.again.answer(process, parent, name, otherwise)))
                }
                Err(error) => Err(error),
            };
            let Err(error) = opened else { return Ok(found) };
            self.caller.files().forget(found.ino, 1);
            if is_new {
                // The caller gets an error and must not find the file then. By now the name may
                // belong to another client's file.
                let remove = |files: &F| files.unlink_file(parent, name, found.ino);
                let _ = self.caller.call("unlinking in", parent, remove);
            }
            // The kernel looks again only once, and others may be faster each time. A new file may
            // also be lost with the metadata server before it is open.
            let is_gone = [libc::ESTALE, libc::ENOENT].contains(&i32::from(error));
            if verdict != Ok(Verdict::Yes) || !is_gone {
                return Err(error);
            }
        }
        Err(Errno::from_i32(libc::EIO))
    }

    /// Whether a program that wanted to make a file may open the one that it finds instead.
    fn may_open(&self, process: u32, parent: Ino, new: &New, found: &Attributes, flags: i32) -> Result<Verdict, Errno> {
        let directory = self.caller.call("reading attributes", parent, |files| files.attributes(parent))?;
        let groups = permission::groups_of(process);
        Ok(permission::may_open(new, groups.as_deref(), &directory, found, flags, permission::protection()))
    }

    pub(super) fn rename(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), flags: RenameFlags) -> Result<(), Errno> {
        let mode = match flags.bits() {
            0 => RenameMode::Replace,
            libc::RENAME_NOREPLACE => RenameMode::NoReplace,
            libc::RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return Err(Errno::EINVAL),
        };
        self.caller.call("renaming in", from.0, |files| files.rename(from, to, mode))
    }

    /// Sets attributes. A new owner, and truncation by others than root, take set-user-ID and
    /// set-group-ID bits away (`HANDLE_KILLPRIV_V2`; fuser does not hand on the kernel's hint for
    /// the latter).
    pub(super) fn set_attributes(&self, user: u32, ino: Ino, mut change: SetAttributes) -> Result<Attributes, Errno> {
        if change.size.is_some() && user != 0 {
            self.take_privileges(ino)?;
            change.mode = change.mode.map(fs::unprivileged);
        }
        if change.uid.is_some() || change.gid.is_some() {
            let found = self.caller.call("reading attributes", ino, |files| files.attributes(ino))?;
            let mode = change.mode.unwrap_or(found.mode);
            if found.kind != FileKind::Directory && mode != fs::unprivileged(mode) {
                change.mode = Some(fs::unprivileged(mode));
            }
        }
        self.caller.call("setting attributes of", ino, |files| files.set_attributes(ino, change))
    }

    /// Takes set-user-ID, set-group-ID and file capabilities away before a user changes the content
    /// who may not keep them. The kernel takes some away itself, but by its cached attributes,
    /// which others may have changed. It must not run the changed program by its cached mode, so it
    /// is made to forget that.
    pub(super) fn take_privileges(&self, ino: Ino) -> Result<(), Errno> {
        if self.caller.call("taking privileges from", ino, |files| files.take_privileges(ino))? {
            // Attributes alone, which needs no wait. It fails if the kernel has forgotten the file
            // or the mount is gone.
            let _ = self.kernel.get().map(|kernel| kernel.inval_inode(INodeNo(ino.0), -1, 0));
        }
        Ok(())
    }
}
