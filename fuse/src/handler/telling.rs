//! The attributes of files that the kernel gets, in mounts that others share with the size that it
//! then believes.

use super::Handler;
use super::convert::file_attributes;
use super::sizes::MAX_PAGE_BYTES;
use super::thread;
use crate::files::Files;
use fs::{Attributes, FileKind, Ino};
use fuser::{FileAttr, INodeNo};

impl<F: Files> Handler<F> {
    /// After a sync, the kernel must not show how much space the file took before: it does not know
    /// that by itself, as it knows size and times.
    pub(super) fn forget_allocated(&self, ino: Ino) {
        let files = self.caller.files();
        let Some(kernel) = self.kernel.get().filter(|_| !self.valid().is_zero()) else { return };
        // To ask a server takes longer than another question of the kernel.
        if files.is_shared() || files.attributes(ino).is_ok_and(|found| self.opens.must_ask(ino, found.allocated)) {
            // It fails for a file that the kernel no longer knows.
            let _ = kernel.inval_inode(INodeNo(ino.0), -1, 0);
        }
    }

    /// The attributes of a file that the kernel gets, and keeps.
    pub(super) fn tell(&self, found: &Attributes) -> FileAttr {
        if self.shared {
            self.opens.tell_size(found.ino, found.size);
        }
        self.tell_allocated(found)
    }

    fn tell_allocated(&self, found: &Attributes) -> FileAttr {
        self.opens.told(found.ino, found.allocated);
        file_attributes(found)
    }

    /// Answers with attributes. A thread of its own makes the kernel drop pages, as that may wait
    /// for requests that this process must serve meanwhile.
    pub(super) fn tell_size(&self, found: &Attributes, answer: impl FnOnce(FileAttr) + Send + 'static) {
        if !self.shared || found.kind != FileKind::File {
            return answer(self.tell(found));
        }
        let (ino, grows) = (found.ino, self.opens.grows(found.ino, found.size));
        let (told, opens) = (self.tell_allocated(found), self.opens.clone());
        opens.telling(ino, found.size);
        let tell = move || {
            opens.arrives(ino);
            answer(told);
            opens.told_size(ino);
        };
        let Some((kernel, end)) = self.kernel.get().cloned().zip(grows) else { return tell() };
        thread::start("weft-size", move |_| {
            // It fails when the kernel has forgotten the file, or the mount is gone.
            let _ = kernel.inval_inode(INodeNo(ino.0), (end - end % MAX_PAGE_BYTES).cast_signed(), 0);
            tell();
        });
    }
}
