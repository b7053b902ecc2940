//! Names and attributes.

use super::Handler;
use crate::files::Files;
use fs::{Attributes, Kind, New, RenameMode, SetAttributes};
use fuser::{Errno, INodeNo, RenameFlags};

impl<F: Files> Handler<F> {
    pub(super) fn make(&self, parent: u64, name: &[u8], new: &New) -> Result<Attributes, Errno> {
        self.caller.call("making a file in", parent, |files| files.make(parent, name, new))
    }

    /// Makes a regular file and opens it. Nobody else on this machine can come in between: the kernel holds the directory until it has the answer. When somebody
    /// elsewhere does, the kernel is told that it knows too little, and looks again, since it must check whether that file may be opened.
    pub(super) fn create(&self, parent: u64, name: &[u8], new: &New, flags: i32) -> Result<Attributes, Errno> {
        let made = match self.make(parent, name, new) {
            Err(error) if i32::from(error) == libc::EEXIST && self.shared && flags & libc::O_EXCL == 0 => {
                return Err(Errno::from_i32(libc::ESTALE));
            }
            made => made?,
        };
        // Only its new name makes it known, so that there is nothing to be truncated.
        self.open(new.uid, made.ino, flags & !libc::O_TRUNC).inspect_err(|_| {
            // The caller hears of a failure and must not find the file then.
            let _ = self.caller.call("unlinking in", parent, |files| files.unlink(parent, name));
        })?;
        Ok(made)
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
