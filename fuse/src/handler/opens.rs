//! Which files are open.

use super::sizes::Size;
use fs::{Ino, lock, unpoisoned};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};

/// Openers of files and directories by number.
#[derive(Default)]
pub(super) struct Opens {
    files: Mutex<HashMap<Ino, Openers>>,
    /// An answer with a size has reached the kernel.
    arrived: Condvar,
    /// All who may write.
    writers: AtomicU32,
}

#[derive(Default)]
struct Openers {
    all: u32,
    /// Those who may write.
    writers: u32,
    /// How many bytes the file takes, as the kernel last learned, unless it has had to ask since.
    told: Option<u64>,
    /// How often the mount was fenced before the kernel had any unwritten page of the file.
    fences: u64,
    /// Where the kernel believes the end of the file to be, in shared mounts.
    size: Size,
    /// The process that created the file by opening it, until the kernel has its attributes.
    creator: Option<u32>,
}

/// Whether a file that is opened with these flags may be written to.
pub fn may_write(flags: i32) -> bool {
    flags & libc::O_ACCMODE != libc::O_RDONLY
}

impl Opens {
    fn map(&self) -> MutexGuard<'_, HashMap<Ino, Openers>> {
        lock(&self.files)
    }

    /// One more opener, in a mount that was fenced `fences` times.
    pub fn add(&self, ino: Ino, flags: i32, fences: u64) {
        let mut map = self.map();
        // A file that is not open has no unwritten pages.
        let openers = map.entry(ino).or_insert_with(|| Openers { fences, ..Openers::default() });
        openers.all += 1;
        openers.writers += u32::from(may_write(flags));
        self.writers.fetch_add(u32::from(may_write(flags)), Ordering::Relaxed);
    }

    pub fn remove(&self, ino: Ino, flags: i32) {
        let mut map = self.map();
        if let Some(openers) = map.get_mut(&ino) {
            openers.all -= 1;
            if may_write(flags) && openers.writers > 0 {
                openers.writers -= 1;
                self.writers.fetch_sub(1, Ordering::Relaxed);
            }
            if openers.all == 0 {
                map.remove(&ino);
            }
        }
    }

    /// Whether anybody has a file open.
    pub fn is_open(&self, ino: Ino) -> bool {
        self.map().contains_key(&ino)
    }

    /// Whether the kernel may have pages of the file that it has not written back.
    pub fn has_writers(&self, ino: Ino) -> bool {
        self.map().get(&ino).is_some_and(|openers| openers.writers > 0)
    }

    /// Whether the kernel may have unwritten pages of the file from before the last of `fences`
    /// fences.
    pub fn has_old_pages(&self, ino: Ino, fences: u64) -> bool {
        self.map().get(&ino).is_some_and(|openers| openers.fences < fences)
    }

    /// The kernel dropped its pages of the file after `fences` fences.
    pub fn dropped_pages(&self, ino: Ino, fences: u64) {
        if let Some(openers) = self.map().get_mut(&ino) {
            openers.fences = openers.fences.max(fences);
        }
    }

    /// The kernel learns how many bytes a file takes.
    pub fn told(&self, ino: Ino, allocated: u64) {
        // If no program writes, the number does not change.
        if self.writers.load(Ordering::Relaxed) > 0
            && let Some(openers) = self.map().get_mut(&ino)
        {
            openers.told = Some(allocated);
        }
    }

    /// The kernel learns the size of a file from an answer of which the caller does not see when
    /// it arrives.
    pub fn tell_size(&self, ino: Ino, size: u64) {
        self.telling(ino, size);
        self.arrives(ino);
        self.told_size(ino);
    }

    /// A process creates a file by opening it. The kernel asks for its attributes next.
    pub fn created(&self, ino: Ino, process: u32) {
        if let Some(openers) = self.map().get_mut(&ino) {
            openers.creator = Some(process);
        }
    }

    /// The process that is still opening the file that it created. It is told once.
    pub fn take_creator(&self, ino: Ino) -> Option<u32> {
        self.map().get_mut(&ino).and_then(|openers| openers.creator.take())
    }

    /// An answer that says the size of a file begins.
    pub fn telling(&self, ino: Ino, size: u64) {
        if let Some(openers) = self.map().get_mut(&ino) {
            openers.creator = None;
            openers.size.telling(size);
        }
    }

    /// That answer is written to the kernel now. What `told_size` follows must not wait for reads.
    pub fn arrives(&self, ino: Ino) {
        if let Some(openers) = self.map().get_mut(&ino) {
            openers.size.arrives();
        }
    }

    /// The kernel has that answer.
    pub fn told_size(&self, ino: Ino) {
        if let Some(openers) = self.map().get_mut(&ino) {
            openers.size.told();
        }
        self.arrived.notify_all();
    }

    /// The kernel puts the end of a file to where it wrote, or behind it.
    pub fn wrote(&self, ino: Ino, end: u64) {
        if let Some(openers) = self.map().get_mut(&ino) {
            openers.size.wrote(end);
        }
    }

    /// Where the kernel believes the end of an open file to be that has grown to `size` since.
    pub fn grows(&self, ino: Ino, size: u64) -> Option<u64> {
        self.map().get(&ino).and_then(|openers| openers.size.grows(size))
    }

    /// Whether the kernel may get what was read of the pages `asked`, `read` bytes. A program may
    /// read before the thread that answered it notes that: then this waits for that thread.
    pub fn may_answer(&self, ino: Ino, asked: Range<u64>, read: usize) -> bool {
        let mut map = self.map();
        loop {
            let Some(openers) = map.get_mut(&ino) else { return true };
            if openers.size.may_answer(asked.clone(), read as u64) {
                return true;
            }
            if !openers.size.is_arriving() {
                return false;
            }
            map = unpoisoned(self.arrived.wait(map));
        }
    }

    /// Whether the kernel must ask again how many bytes a file takes; `allocated` is the number
    /// now.
    pub fn must_ask(&self, ino: Ino, allocated: u64) -> bool {
        let mut map = self.map();
        let Some(openers) = map.get_mut(&ino).filter(|openers| openers.told != Some(allocated)) else { return false };
        openers.told = None;
        true
    }

    /// Takes all that is left: each file as often as it is open.
    pub fn take(&self) -> Vec<Ino> {
        let left = std::mem::take(&mut *self.map());
        left.into_iter().flat_map(|(ino, openers)| std::iter::repeat_n(ino, openers.all as usize)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_asks_when_it_was_told_something_else() {
        let opens = Opens::default();
        opens.told(Ino(7), 10);
        assert!(!opens.must_ask(Ino(7), 20), "it is not open");
        opens.add(Ino(7), libc::O_RDWR, 0);
        assert!(opens.must_ask(Ino(7), 20), "it was not told");
        opens.told(Ino(7), 20);
        assert!(!opens.must_ask(Ino(7), 20));
        assert!(opens.must_ask(Ino(7), 30) && opens.must_ask(Ino(7), 30), "until it was told");
        opens.told(Ino(7), 30);
        assert!(!opens.must_ask(Ino(7), 30));
    }

    /// A program truncates a file and reads it, before the thread that answered the truncation gets
    /// the processor: the read is not refused, which would be a short read.
    #[test]
    fn a_read_waits_for_the_thread_that_told_the_size_before() {
        let opens = Opens::default();
        opens.add(Ino(7), libc::O_RDWR, 0);
        opens.tell_size(Ino(7), 10_000);
        opens.telling(Ino(7), 5000);
        assert!(!opens.may_answer(Ino(7), 4096..8192, 904), "the answer waits for the kernel's pages");
        opens.arrives(Ino(7));
        std::thread::scope(|scope| {
            let reads = scope.spawn(|| opens.may_answer(Ino(7), 4096..8192, 904));
            while opens.map()[&Ino(7)].size.refused() < 2 {
                std::thread::yield_now();
            }
            assert!(!reads.is_finished());
            opens.told_size(Ino(7));
            assert!(reads.join().unwrap());
        });
    }

    #[test]
    fn pages_are_old_until_they_are_dropped_or_nobody_has_the_file_open() {
        let opens = Opens::default();
        opens.add(Ino(7), libc::O_RDWR, 1);
        assert!(!opens.has_old_pages(Ino(7), 1) && opens.has_old_pages(Ino(7), 2));
        opens.add(Ino(7), libc::O_RDWR, 2);
        assert!(opens.has_old_pages(Ino(7), 2), "they are those of the first opener");
        opens.dropped_pages(Ino(7), 2);
        assert!(!opens.has_old_pages(Ino(7), 2) && opens.has_old_pages(Ino(7), 3));
        opens.remove(Ino(7), libc::O_RDWR);
        opens.remove(Ino(7), libc::O_RDWR);
        opens.add(Ino(7), libc::O_RDWR, 3);
        assert!(!opens.has_old_pages(Ino(7), 3));
    }
}
