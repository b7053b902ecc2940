//! Numbers that are never used twice. They are leased from the metadata in batches, so that
//! allocating one writes nothing.

use crate::record::decode;
use crate::transaction::run;
use crate::{Meta, Result, keys};
use plan::{Ino, SetId};
use volume::ranked::{Rank, Ranked};

/// The highest chunk set number that was found on a target and counts. A volume that gives out a
/// million a second needs 146,000 years to reach it.
pub const MAX_SKIPPED: SetId = SetId(u64::MAX >> 2);

/// A batch of numbers to allocate from.
#[derive(Debug)]
pub(crate) struct Lease {
    setting: &'static str,
    first: u64,
    batch: u64,
    next: u64,
    end: u64,
}

impl Lease {
    /// File numbers (inos). The root is 1; numbers below 16 are reserved for system files.
    pub fn inos() -> Self {
        Self { setting: "next-ino", first: 16, batch: 65_536, next: 0, end: 0 }
    }

    /// Chunk set numbers.
    pub fn sets() -> Self {
        Self { setting: "next-set", first: 1, batch: 64, next: 0, end: 0 }
    }
}

impl Meta {
    pub(crate) fn next_ino(&self) -> Result<Ino> {
        self.next(&self.inos).map(Ino)
    }

    /// Allocates the number of a new chunk set.
    ///
    /// # Errors
    /// When the metadata cannot be written.
    pub fn next_set(&self) -> Result<SetId> {
        self.next(&self.sets).map(SetId)
    }

    /// Never allocates a chunk set number up to and including `last` again.
    ///
    /// # Errors
    /// When the metadata cannot be written.
    pub fn skip_sets(&self, last: SetId) -> Result<()> {
        if last > MAX_SKIPPED {
            return Err(crate::Error::Invalid(format!("chunk set {last}: no volume gives out such a number").into()));
        }
        let mut lease = self.sets.lock();
        let key = keys::setting(lease.setting);
        run(&*self.kv, |t| {
            let first: u64 = t.get_bytes(&key)?.as_deref().map(decode).transpose()?.unwrap_or(lease.first);
            t.put(key.clone(), &first.max(last.next().0));
            Ok(())
        })?;
        (lease.next, lease.end) = (0, 0);
        Ok(())
    }

    /// Whether a file number was allocated, or may have been allocated before a crash.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn gave_out(&self, ino: Ino) -> Result<bool> {
        let lease = self.inos.lock();
        let next = match lease.end {
            0 => self.setting(lease.setting)?.unwrap_or(lease.first),
            _ => lease.next,
        };
        Ok((lease.first..next).contains(&ino.0))
    }

    fn next(&self, lease: &Ranked<Lease, impl Rank>) -> Result<u64> {
        self.next_of(lease, 1)
    }

    /// Allocates `count` file numbers, at most a batch, and returns the first.
    pub(crate) fn next_inos(&self, count: u32) -> Result<Ino> {
        self.next_of(&self.inos, u64::from(count)).map(Ino)
    }

    fn next_of(&self, lease: &Ranked<Lease, impl Rank>, count: u64) -> Result<u64> {
        let mut lease = lease.lock();
        if count > lease.batch {
            return Err(crate::Error::Invalid("too many numbers at a time".into()));
        }
        // Drop the rest of a batch when it is too small: numbers are plentiful.
        if lease.end - lease.next < count {
            let key = keys::setting(lease.setting);
            let (first, committed) = run(&*self.kv, |t| {
                let first = t.get_bytes(&key)?.as_deref().map(decode).transpose()?.unwrap_or(lease.first);
                t.put(key.clone(), &(first + lease.batch));
                Ok(first)
            })?;
            // Sync before any of them is used: a client may remember a number even when a crash
            // loses its file.
            self.kv.sync(committed.seq)?;
            (lease.next, lease.end) = (first, first + lease.batch);
        }
        lease.next += count;
        Ok(lease.next - count)
    }
}
