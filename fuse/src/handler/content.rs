//! The content of files.

use super::call::OPENING;
use super::{Handler, init, opens};
use crate::files::Files;
use fs::{Allocate, Ino, SetAttributes};
use fuser::Errno;
use std::cell::RefCell;

/// The most that one request copies. The answer holds less than 4 GiB, and a thread should return
/// in reasonable time.
const MAX_COPY: u64 = 1 << 30;

thread_local! {
    /// What was read, until the kernel has copied it. Kept, since clearing a new one each time
    /// would cost as much as the copy.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl<F: Files> Handler<F> {
    /// Opens a file. Which way does not matter: with a cache that writes back, the kernel also
    /// reads through descriptors for writing, and it finds the end for those that append.
    pub(super) fn open(&self, user: u32, ino: Ino, flags: i32) -> Result<(), Errno> {
        self.caller.call(OPENING, ino, |files| files.open(ino, opens::may_write(flags)))?;
        self.opens.add(ino, flags, self.caller.files().fences());
        if flags & libc::O_TRUNC != 0 {
            let change = SetAttributes { size: Some(0), just_opened: true, ..SetAttributes::default() };
            let truncated = self.set_attributes(user, ino, change).inspect_err(|_| self.close(ino, flags));
            // It may be lost with the metadata server that said it was there.
            let is_lost = |error| self.shared && i32::from(error) == libc::ENOENT;
            truncated.map_err(|error| if is_lost(error) { Errno::ESTALE } else { error })?;
            self.opens.tell_size(ino, 0);
        }
        Ok(())
    }

    /// The error for a program that opens a file. When the file is gone, the kernel looks again,
    /// once.
    pub(super) fn looks_again(&self, process: u32, ino: Ino, error: Errno) -> Errno {
        if i32::from(error) != libc::ESTALE {
            return error;
        }
        let answer = self.again.answer(process, ino, b"", libc::EIO);
        if answer == libc::EIO {
            self.caller.report(OPENING, ino, "the file was removed");
        }
        Errno::from_i32(answer)
    }

    /// The error for a program that asks for a file that is not there. The kernel may believe in a
    /// name that was lost with the metadata server: it looks again, once. A program that has the
    /// file open learns that it is lost.
    pub(super) fn not_there(&self, process: u32, ino: Ino, error: Errno) -> Errno {
        if i32::from(error) != libc::ENOENT || !self.shared {
            return error;
        }
        match self.opens.is_open(ino) {
            // It was lost before it was open: the kernel creates it once more.
            true if self.opens.take_creator(ino) == Some(process) => Errno::ESTALE,
            true if self.caller.files().losses(ino) > 0 => Errno::EIO,
            true => error,
            false => Errno::from_i32(self.again.answer(process, ino, b"", libc::ENOENT)),
        }
    }

    /// The error of a write or sync. An open file that is not there any more was lost with the
    /// metadata server that made it.
    pub(super) fn lost_if_gone(&self, what: &'static str, ino: Ino, error: Errno) -> Errno {
        if i32::from(error) != libc::ENOENT {
            return error;
        }
        self.caller.report(what, ino, "the file was lost with the metadata server that made it");
        Errno::from_i32(libc::EIO)
    }

    pub(super) fn close(&self, ino: Ino, flags: i32) {
        self.opens.remove(ino, flags);
        // No program waits for this answer, so the error is logged.
        let _ = self.caller.call("closing", ino, |files| {
            files.close(ino);
            Ok(())
        });
    }

    /// Reads, and hands what was read to a function, now or on another thread. `pages` says that
    /// the kernel keeps it.
    pub(super) fn read(
        &self,
        ino: Ino,
        offset: u64,
        size: u32,
        pages: bool,
        answer: impl FnOnce(Result<&[u8], Errno>) + Send + 'static,
    ) {
        let (caller, opens, size) = (self.caller.clone(), self.opens.clone(), size as usize);
        let read = move |into: &mut [u8]| {
            let read = caller.call("reading", ino, |files| files.read(ino, offset, into))?;
            // A program sees this error only if the kernel asked for a page twice, while others
            // truncated the file and programs of this machine asked for its size: it reads again.
            let asked = offset..offset + size as u64;
            let short = pages && read < size && !opens.may_answer(ino, asked, read);
            if short { Err(Errno::EINTR) } else { Ok(read) }
        };
        self.reads.run(move || {
            BUFFER.with_borrow_mut(|buffer| {
                if buffer.len() < size {
                    buffer.resize(size.max(init::MAX_WRITE as usize), 0);
                }
                let read = read(&mut buffer[..size]);
                answer(read.map(|read| &buffer[..read]));
            });
        });
    }

    /// Writes at an offset, or behind the end. `cached` says that the kernel had it in its cache:
    /// the program that wrote it may be gone.
    pub(super) fn write(
        &self,
        ino: Ino,
        offset: Option<u64>,
        data: &[u8],
        cached: bool,
        take_privileges: bool,
    ) -> Result<u32, Errno> {
        if cached && let Err(error) = self.has_no_old_pages(ino) {
            self.refuse(ino);
            return Err(error);
        }
        if take_privileges {
            self.take_privileges(ino)?;
        }
        let written = self.caller.call("writing", ino, |files| match offset {
            Some(offset) => files.write(ino, offset, data),
            None => files.append(ino, data),
        });
        if written.is_err() && cached {
            self.refuse(ino);
        }
        written.map_err(|error| self.lost_if_gone("writing", ino, error))?;
        Ok(data.len() as u32)
    }

    /// What a program wrote to a file, and the kernel had taken, is lost.
    fn refuse(&self, ino: Ino) {
        self.refused.add(ino);
        self.caller.files().note_refused_write(ino);
    }

    /// Refuses what the kernel may have had in its cache when the session ended: others may have
    /// changed the file since. The kernel drops all its pages of the file. Call it in a session.
    fn has_no_old_pages(&self, ino: Ino) -> Result<(), Errno> {
        let fences = self.caller.files().fences();
        if !self.opens.has_old_pages(ino, fences) {
            return Ok(());
        }
        let opens = self.opens.clone();
        // Where the thread is gone, so is the mount.
        let _ = self.seeks.send((ino, Box::new(move || opens.dropped_pages(ino, fences))));
        Err(Errno::EIO)
    }

    pub(super) fn allocate(&self, user: u32, ino: Ino, mode: i32, offset: u64, length: u64) -> Result<(), Errno> {
        const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        const ZERO_KEEP: i32 = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
        let how = match mode {
            0 => Allocate::Grow,
            libc::FALLOC_FL_KEEP_SIZE => Allocate::KeepSize,
            PUNCH => Allocate::PunchHole,
            libc::FALLOC_FL_ZERO_RANGE => Allocate::Zero,
            ZERO_KEEP => Allocate::ZeroKeepSize,
            _ => return Err(Errno::EOPNOTSUPP),
        };
        if user != 0 {
            self.take_privileges(ino)?;
        }
        self.caller.call("allocating", ino, |files| files.allocate(ino, how, offset, length))
    }

    pub(super) fn copy_range(&self, user: u32, from: (Ino, u64), to: (Ino, u64), length: u64) -> Result<u32, Errno> {
        let length = length.min(MAX_COPY);
        if user != 0 {
            self.take_privileges(to.0)?;
        }
        let copied = self.caller.call("copying to", to.0, |files| files.copy_range(from, to, length))?;
        Ok(copied as u32)
    }
}
