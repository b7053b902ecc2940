//! The files that the kernel of a mount knows: it looked them up and did not forget them. As with a
//! local file system, such a file can still be opened after it lost its last name.

use crate::FileSystem;
use plan::Ino;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard};
use volume::lock;

/// The counters are split by inode number into this many shards, each with its own lock.
const SHARDS: usize = 16;

/// The files that the kernel knows.
#[derive(Debug, Default)]
pub(crate) struct Lookups {
    counts: [Mutex<HashMap<Ino, u64>>; SHARDS],
    asking: Mutex<Asking>,
}

/// Lookups whose answers have not reached the kernel yet.
#[derive(Debug, Default)]
struct Asking {
    next: u64,
    open: BTreeSet<u64>,
}

/// A lookup in progress: the kernel is about to learn of files.
#[derive(Debug)]
pub struct Lookup<'a> {
    lookups: &'a Lookups,
    number: u64,
}

impl Drop for Lookup<'_> {
    fn drop(&mut self) {
        lock(&self.lookups.asking).open.remove(&self.number);
    }
}

impl Lookups {
    fn shard(&self, ino: Ino) -> MutexGuard<'_, HashMap<Ino, u64>> {
        lock(&self.counts[ino.0 as usize % SHARDS])
    }

    /// Begins a lookup. Until it ends, it is not certain which files the kernel knows.
    pub fn begin(&self) -> Lookup<'_> {
        let mut asking = lock(&self.asking);
        asking.next += 1;
        let number = asking.next;
        asking.open.insert(number);
        Lookup { lookups: self, number }
    }

    /// The number of the lookup that began last.
    pub fn last(&self) -> u64 {
        lock(&self.asking).next
    }

    /// Whether all lookups up to this one have ended.
    pub fn have_ended(&self, last: u64) -> bool {
        lock(&self.asking).open.first().is_none_or(|first| *first > last)
    }

    /// Counts one more answer that names the file.
    pub fn add(&self, ino: Ino) {
        *self.shard(ino).entry(ino).or_default() += 1;
    }

    /// The kernel forgets `count` answers. Returns whether it no longer knows the file.
    pub fn forget(&self, ino: Ino, count: u64) -> bool {
        let mut shard = self.shard(ino);
        let Some(known) = shard.get_mut(&ino) else { return false };
        *known = known.saturating_sub(count);
        let is_over = *known == 0;
        if is_over {
            shard.remove(&ino);
        }
        is_over
    }

    /// Whether the kernel knows a file.
    pub fn knows(&self, ino: Ino) -> bool {
        self.shard(ino).contains_key(&ino)
    }

    /// The kernel unmounted and forgot everything.
    pub fn clear(&self) {
        self.counts.iter().for_each(|shard| lock(shard).clear());
    }
}

impl FileSystem {
    /// Begins a lookup through which the kernel of a mount learns of files. None where no other
    /// client could remove them meanwhile.
    pub fn looking_up(&self) -> Option<Lookup<'_>> {
        self.is_shared().then(|| self.lookups.begin())
    }

    /// The kernel learns of a file: the file stays, with or without a name, until the kernel
    /// forgets it. Call this before the [`Lookup`] ends.
    pub fn looked_up(&self, ino: Ino) {
        self.lookups.add(ino);
    }

    /// The kernel forgets `count` answers that named a file. A file without a name is removed,
    /// unless it is open.
    pub fn forget(&self, ino: Ino, count: u64) {
        if self.lookups.forget(ino, count)
            && let Some(file) = self.table.find(ino)
        {
            self.let_go(ino, &mut file.state());
        }
    }

    /// Whether the kernel knows a file.
    pub fn knows(&self, ino: Ino) -> bool {
        self.lookups.knows(ino)
    }

    /// The kernel unmounted and forgot everything.
    pub(crate) fn forget_all(&self) {
        self.lookups.clear();
        self.table.all().iter().for_each(|file| self.let_go(file.ino, &mut file.state()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_until_the_kernel_forgot_it_as_often_as_it_was_told() {
        let lookups = Lookups::default();
        [5, 5, 21].into_iter().for_each(|ino| lookups.add(Ino(ino)));
        assert!(lookups.knows(Ino(5)) && lookups.knows(Ino(21)) && !lookups.knows(Ino(6)));
        assert!(!lookups.forget(Ino(5), 1) && lookups.knows(Ino(5)));
        assert!(lookups.forget(Ino(5), 1) && !lookups.knows(Ino(5)));
        // Forgetting too often, or an unknown file, has no effect.
        assert!(lookups.forget(Ino(21), 9) && !lookups.forget(Ino(21), 1) && !lookups.forget(Ino(7), 1));
    }

    #[test]
    fn who_waits_for_questions_does_not_wait_for_later_ones() {
        let lookups = Lookups::default();
        let first = lookups.begin();
        let last = lookups.last();
        let later = lookups.begin();
        assert!(!lookups.have_ended(last));
        drop(first);
        assert!(lookups.have_ended(last) && !lookups.have_ended(lookups.last()));
        drop(later);
        assert!(lookups.have_ended(lookups.last()));
    }
}
