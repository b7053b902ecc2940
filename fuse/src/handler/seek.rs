//! Holes and data, while the kernel may have data that was never written here.
//!
//! The kernel asks for the next hole or data (lseek(2)) without writing its pages back before.
//! While a program has the file open for writing, the answer could be a hole where a program has
//! just written. So in that case the kernel must first drop the file's pages, which writes them
//! back. That waits for requests that this process must serve meanwhile, and so has a thread of its
//! own.

use super::Handler;
use crate::files::Files;
use fs::{Ino, Seek};
use fuser::{Errno, INodeNo, Notifier, ReplyLseek};
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};

/// What is done after pages were written back.
pub(super) type Job = (Ino, Box<dyn FnOnce() + Send>);

/// The thread's part, before there is a connection to the kernel.
pub(crate) struct Late(Receiver<Job>, Arc<OnceLock<Notifier>>);

/// Where jobs go to, and where they come from. `kernel` is the connection once there is one.
pub(super) fn queue(kernel: Arc<OnceLock<Notifier>>) -> (Sender<Job>, Late) {
    let (jobs, late) = channel();
    (jobs, Late(late, kernel))
}

impl Late {
    /// Starts the thread, which ends with the handler.
    pub(crate) fn start(self, kernel: Notifier) -> io::Result<()> {
        let _ = self.1.set(kernel.clone());
        let work = move || {
            for (ino, job) in self.0 {
                // It fails when the kernel has forgotten the file, and so has no pages of it, or
                // when the mount is gone.
                let _ = kernel.inval_inode(INodeNo(ino.0), 0, 0);
                job();
            }
        };
        std::thread::Builder::new().name("weft-seek".into()).spawn(work).map(drop)
    }
}

impl<F: Files> Handler<F> {
    /// Looks for the next hole or data.
    pub(super) fn seek(&self, ino: Ino, offset: i64, whence: i32, reply: ReplyLseek) {
        let what = match whence {
            libc::SEEK_DATA => Seek::Data,
            libc::SEEK_HOLE => Seek::Hole,
            _ => return reply.error(Errno::EINVAL),
        };
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        let caller = self.caller.clone();
        let seek = move || match caller.call("seeking in", ino, |files| files.seek(ino, offset, what)) {
            Ok(found) => reply.offset(found.cast_signed()),
            Err(error) => reply.error(error),
        };
        if self.opens.has_writers(ino) {
            // Where the thread is gone, so is the mount.
            let _ = self.seeks.send((ino, Box::new(seek)));
        } else {
            seek();
        }
    }
}
