//! The attributes of files that the kernel gets, in mounts that others share with the size that it
//! then believes.

use super::Handler;
use super::convert::file_attributes;
use super::sizes::MAX_PAGE_BYTES;
use crate::files::Files;
use fs::{Attributes, FileKind};
use fuser::{FileAttr, INodeNo};

impl<F: Files> Handler<F> {
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
        let (ino, grows) = (INodeNo(found.ino), self.opens.grows(found.ino, found.size));
        let (told, opens) = (self.tell_allocated(found), self.opens.clone());
        opens.telling(ino.0, found.size);
        let tell = move || {
            opens.arrives(ino.0);
            answer(told);
            opens.told_size(ino.0);
        };
        let Some((kernel, end)) = self.kernel.get().cloned().zip(grows) else { return tell() };
        std::thread::spawn(move || {
            // It fails when the kernel has forgotten the file, or the mount is gone.
            let _ = kernel.inval_inode(ino, (end - end % MAX_PAGE_BYTES).cast_signed(), 0);
            tell();
        });
    }
}
