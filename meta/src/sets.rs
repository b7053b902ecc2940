//! Chunk sets and their stripes, the queue of repairs, and settings.

use crate::record::{DeadStripe, SetRecord, StripeRecord, Totals, decode, encode};
use crate::transaction::{MAX_REMOVED_KEYS, run};
use crate::{Error, Meta, Result, keys};
use plan::{Ino, Position, RecordOffset, SetId, TxId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ops::Range;

impl Meta {
    /// Returns a chunk set's record.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn set(&self, set: SetId) -> Result<SetRecord> {
        decode(&self.kv.get(&keys::set(set))?.ok_or(Error::NotFound)?)
    }

    /// Writes a chunk set's record.
    ///
    /// # Errors
    /// When the metadata cannot be written.
    pub fn put_set(&self, set: SetId, record: &SetRecord) -> Result<TxId> {
        let ((), outcome) = run(&*self.kv, |t| {
            t.put(keys::set(set), record);
            Ok(())
        })?;
        Ok(outcome.seq)
    }

    /// Changes a chunk set's record, if it exists.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn change_set(&self, set: SetId, change: impl Fn(&mut SetRecord)) -> Result<TxId> {
        let ((), outcome) = run(&*self.kv, |t| {
            let mut record: SetRecord = t.get(&keys::set(set))?.ok_or(Error::NotFound)?;
            change(&mut record);
            t.put(keys::set(set), &record);
            Ok(())
        })?;
        Ok(outcome.seq)
    }

    /// Seals a chunk set: it gets no more stripes. Records the length of its chunks.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn seal_set(&self, set: SetId, length: u32) -> Result<TxId> {
        self.change_set(set, |record| (record.sealed, record.length) = (true, length))
    }

    /// Removes a chunk set without stripes. Returns whether it did: not while a file refers to a
    /// stripe of it.
    ///
    /// # Errors
    /// When the metadata cannot be written.
    pub fn forget_set(&self, set: SetId) -> Result<(bool, TxId)> {
        let (forgotten, outcome) = run(&*self.kv, |t| {
            if !t.scan(&keys::stripes(set), 1)?.is_empty() {
                return Ok(false);
            }
            t.must_be_empty(keys::stripes(set));
            t.delete(keys::set(set));
            t.delete(keys::repair(set));
            Ok(true)
        })?;
        Ok((forgotten, outcome.seq))
    }

    /// Up to `limit` chunk sets in order, starting at number `from`.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn sets(&self, from: SetId, limit: usize) -> Result<Vec<(SetId, SetRecord)>> {
        let range = keys::set(from)..keys::under(vec![keys::SET]).end;
        let found = self.kv.scan(&range.start..&range.end, limit)?;
        found.iter().map(|(key, value)| Ok((SetId(keys::number(key, 1)), decode(value)?))).collect()
    }

    /// The stripes of a chunk set to which files refer, or did until a moment ago, in order.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn stripes(&self, set: SetId) -> Result<Vec<(RecordOffset, StripeRecord)>> {
        let found = self.scan_all(keys::stripes(set))?;
        found.iter().map(|(key, value)| Ok((record_of(key, 9), decode(value)?))).collect()
    }

    /// A stripe of a chunk set.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn stripe(&self, set: SetId, record: RecordOffset) -> Result<Option<StripeRecord>> {
        self.kv.get(&keys::stripe(set, record))?.as_deref().map(decode).transpose()
    }

    /// Removes a stripe to which nothing refers. Returns whether it did.
    ///
    /// # Errors
    /// When the metadata cannot be written.
    pub fn forget_stripe(&self, dead: DeadStripe) -> Result<(bool, TxId)> {
        let key = keys::stripe(dead.set, dead.record);
        loop {
            let (forgotten, outcome) = run(&*self.kv, |t| {
                if t.get::<StripeRecord>(&key)?.is_none_or(|stripe| stripe.live != 0) {
                    return Ok(Some(false));
                }
                let shared = t.scan(&keys::shared_by(dead.set, dead.record), MAX_REMOVED_KEYS)?;
                let more = shared.len() == MAX_REMOVED_KEYS;
                shared.into_iter().for_each(|(key, _)| t.delete(key));
                if more {
                    return Ok(None);
                }
                t.delete(key.clone());
                Ok(Some(true))
            })?;
            if let Some(forgotten) = forgotten {
                return Ok((forgotten, outcome.seq));
            }
        }
    }

    /// Records that a file shares bytes of a stripe that were written for another file.
    ///
    /// # Errors
    /// When the metadata cannot be written.
    pub fn share(&self, stripes: &[(SetId, RecordOffset)], ino: Ino) -> Result<TxId> {
        let ((), outcome) = run(&*self.kv, |t| {
            stripes.iter().for_each(|&(set, record)| t.put_bytes(keys::shared(set, record, ino), Vec::new()));
            Ok(())
        })?;
        Ok(outcome.seq)
    }

    /// The files that share bytes of a stripe, except those that it was written for.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn shared_by(&self, set: SetId, record: RecordOffset) -> Result<Vec<Ino>> {
        let found = self.scan_all(keys::shared_by(set, record))?;
        Ok(found.iter().map(|(key, _)| Ino(keys::number(key, 13))).collect())
    }

    /// Adds positions of a chunk set to the repair queue.
    ///
    /// # Errors
    /// When the metadata cannot be written.
    pub fn queue_repair(&self, set: SetId, positions: &[Position]) -> Result<TxId> {
        let ((), outcome) = run(&*self.kv, |t| {
            // A set that was removed meanwhile needs no repair.
            if t.get::<SetRecord>(&keys::set(set))?.is_none() {
                return Ok(());
            }
            let before: Vec<Position> = t.get(&keys::repair(set))?.unwrap_or_default();
            let mut queued = [&before, positions].concat();
            queued.sort_unstable();
            queued.dedup();
            if queued != before {
                t.put(keys::repair(set), &queued);
            }
            Ok(())
        })?;
        Ok(outcome.seq)
    }

    /// The chunk sets in the repair queue, with their positions to rebuild.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn repairs(&self) -> Result<Vec<(SetId, Vec<Position>)>> {
        let found = self.scan_all(keys::under(vec![keys::REPAIR]))?;
        found.iter().map(|(key, value)| Ok((SetId(keys::number(key, 1)), decode(value)?))).collect()
    }

    /// Records that positions of a chunk set were rebuilt, and their new targets.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn repaired(&self, set: SetId, made: &[(Position, plan::TargetId)]) -> Result<TxId> {
        let ((), outcome) = run(&*self.kv, |t| {
            let mut record: SetRecord = t.get(&keys::set(set))?.ok_or(Error::NotFound)?;
            let mut queued: Vec<Position> = t.get(&keys::repair(set))?.unwrap_or_default();
            for &(position, target) in made {
                if let Some(place) = record.places.get_mut(position.index()) {
                    *place = Some(target);
                }
                queued.retain(|&queued| queued != position);
            }
            t.put(keys::set(set), &record);
            if queued.is_empty() {
                t.delete(keys::repair(set));
            } else {
                t.put(keys::repair(set), &queued);
            }
            Ok(())
        })?;
        Ok(outcome.seq)
    }

    /// The number of files and bytes in the volume.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn totals(&self) -> Result<Totals> {
        Ok(self.kv.get(&keys::totals())?.as_deref().map(decode).transpose()?.unwrap_or_default())
    }

    /// A setting.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn setting<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        self.kv.get(&keys::setting(name))?.as_deref().map(decode).transpose()
    }

    /// Writes a setting.
    ///
    /// # Errors
    /// When the metadata cannot be written.
    pub fn put_setting<T: Serialize>(&self, name: &str, value: &T) -> Result<TxId> {
        let bytes = encode(value);
        let ((), outcome) = run(&*self.kv, |t| {
            t.put_bytes(keys::setting(name), bytes.clone());
            Ok(())
        })?;
        Ok(outcome.seq)
    }

    pub(crate) fn scan_all(&self, range: Range<Vec<u8>>) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        Ok(self.kv.scan(&range.start..&range.end, usize::MAX)?)
    }
}

fn record_of(key: &[u8], at: usize) -> RecordOffset {
    let bytes = key.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    RecordOffset(bytes.map_or(0, u32::from_be_bytes))
}
