//! Transactions over a [`Kv`]. Values read are guarded, writes are visible to later reads of the
//! same transaction, and the transaction is retried when another one was faster.

use crate::kv::{Batch, Committed, Guard, Kv, KvChange, KvError};
use crate::record::DeadStripe;
use crate::record::{StripeRecord, Totals, decode, encode};
use crate::{Result, keys};
use plan::{RecordOffset, SetId, TxId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::ops::Range;

/// The largest number of pairs to search at a time for one that the transaction does not change.
const MAX_SEARCH_PAIRS: usize = 1024;

/// The most keys of one file or stripe that a transaction removes. More go in several: users decide
/// how many there are, and a transaction has a largest size.
pub(crate) const MAX_REMOVED_KEYS: usize = 8192;

/// A transaction in preparation.
pub(crate) struct Transaction<'a> {
    kv: &'a dyn Kv,
    read: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    empty: Vec<Range<Vec<u8>>>,
    written: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    merged: Vec<(Vec<u8>, Vec<u8>)>,
    stripes: BTreeMap<(SetId, RecordOffset), StripeRecord>,
    totals: Totals,
}

/// The result of a transaction.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// The transaction's number.
    pub seq: TxId,
    /// Stripes that lost their last reference in this transaction.
    pub dead: Vec<DeadStripe>,
}

/// Runs `work` until it commits without a conflict, or fails. Returns the result of the run that
/// committed.
pub(crate) fn run<T>(kv: &dyn Kv, mut work: impl FnMut(&mut Transaction) -> Result<T>) -> Result<(T, Outcome)> {
    loop {
        let mut transaction = Transaction {
            kv,
            read: BTreeMap::new(),
            empty: Vec::new(),
            written: BTreeMap::new(),
            merged: Vec::new(),
            stripes: BTreeMap::new(),
            totals: Totals::default(),
        };
        let result = match work(&mut transaction) {
            Ok(result) => result,
            // The error may come from a change by another transaction between two reads.
            Err(_) if !transaction.is_current()? => continue,
            Err(error) => return Err(error),
        };
        let stripes: Vec<(SetId, RecordOffset)> = transaction.stripes.keys().copied().collect();
        match kv.commit(transaction.into_batch()) {
            Ok(Committed { seq, merged }) => {
                let dead = stripes.iter().zip(merged).filter_map(|(&(set, record), value)| {
                    let stripe: StripeRecord = decode(&value?).ok()?;
                    (stripe.live == 0).then_some(DeadStripe { set, record, block: stripe.block })
                });
                return Ok((result, Outcome { seq, dead: dead.collect() }));
            }
            Err(KvError::Conflict) => std::thread::yield_now(),
            Err(error) => return Err(error.into()),
        }
    }
}

impl Transaction<'_> {
    /// The value of a key. It must still be the same at the commit.
    pub fn get<T: DeserializeOwned>(&mut self, key: &[u8]) -> Result<Option<T>> {
        self.get_bytes(key)?.as_deref().map(decode).transpose()
    }

    /// As `get`, without decoding.
    pub fn get_bytes(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        if let Some(value) = self.written.get(key).or_else(|| self.read.get(key)) {
            return Ok(value.clone());
        }
        let value = self.kv.get(key)?;
        self.read.insert(key.to_vec(), value.clone());
        Ok(value)
    }

    /// Up to `limit` keys and values of a range, in order. They are not guarded.
    pub fn scan(&self, range: &Range<Vec<u8>>, limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let own = self.written.range(range.clone());
        let deleted = own.clone().filter(|(_, value)| value.is_none()).count();
        let found = self.kv.scan(&range.start..&range.end, limit.saturating_add(deleted))?;
        let mut merged: BTreeMap<Vec<u8>, Option<Vec<u8>>> = found.into_iter().map(|(k, v)| (k, Some(v))).collect();
        merged.extend(own.map(|(key, value)| (key.clone(), value.clone())));
        Ok(merged.into_iter().filter_map(|(key, value)| value.map(|value| (key, value))).take(limit).collect())
    }

    /// The last key and value of a range. It is not guarded.
    pub fn last(&self, range: &Range<Vec<u8>>) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let own = self.written.range(range.clone()).rev();
        let ours = own.filter_map(|(key, value)| Some((key.clone(), value.clone()?))).next();
        // No earlier key can be the last one.
        let floor = ours.as_ref().map_or(&range.start, |(key, _)| key);
        let (mut end, mut limit) = (range.end.clone(), 1);
        loop {
            let found = self.kv.scan_back(floor..&end, limit)?;
            if let Some(theirs) = found.iter().find(|(key, _)| !self.written.contains_key(key)) {
                return Ok(Some(theirs.clone()));
            }
            match found.last() {
                Some((key, _)) if found.len() == limit => end.clone_from(key),
                _ => return Ok(ours),
            }
            limit = (limit * 4).min(MAX_SEARCH_PAIRS);
        }
    }

    /// Sets a key to a value.
    pub fn put<T: Serialize>(&mut self, key: Vec<u8>, value: &T) {
        self.written.insert(key, Some(encode(value)));
    }

    /// As `put`, with encoded bytes.
    pub fn put_bytes(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.written.insert(key, Some(value));
    }

    /// Removes a key. It may be absent.
    pub fn delete(&mut self, key: Vec<u8>) {
        self.written.insert(key, None);
    }

    /// Applies a delta to a value, whatever the value is.
    pub fn merge<T: Serialize>(&mut self, key: Vec<u8>, delta: &T) {
        self.merged.push((key, encode(delta)));
    }

    /// Counts `bytes` more bytes of a stripe to which files refer.
    pub fn refer(&mut self, stripe: (SetId, RecordOffset), block: u32, bytes: i64) {
        let record = self.stripes.entry(stripe).or_insert(StripeRecord { block, live: 0 });
        record.live = record.live.saturating_add(bytes);
    }

    /// Adds to the totals of files and bytes.
    pub fn count(&mut self, files: i64, bytes: i64) {
        self.totals.files = self.totals.files.saturating_add(files);
        self.totals.bytes = self.totals.bytes.saturating_add(bytes);
    }

    /// Requires that the range has no keys at the commit.
    pub fn must_be_empty(&mut self, range: Range<Vec<u8>>) {
        self.empty.push(range);
    }

    /// Whether everything that was read is still unchanged.
    fn is_current(&self) -> Result<bool> {
        for (key, value) in &self.read {
            if self.kv.get(key)? != *value {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn into_batch(self) -> Batch {
        let values = self.read.into_iter().map(|(key, value)| Guard::Value(key, value));
        let guards = values.chain(self.empty.into_iter().map(Guard::Empty)).collect();
        let written = self.written.into_iter().map(|(key, value)| match value {
            Some(value) => KvChange::Put(key, value),
            None => KvChange::Delete(key),
        });
        let merged = self.merged.into_iter().map(|(key, delta)| KvChange::Merge(key, delta));
        // The stripes come first, so that their results come first.
        let stripes = self.stripes.into_iter();
        let stripes = stripes.map(|((set, record), delta)| KvChange::Merge(keys::stripe(set, record), encode(&delta)));
        let totals = (self.totals != Totals::default()).then(|| KvChange::Merge(keys::totals(), encode(&self.totals)));
        Batch { guards, changes: stripes.chain(written).chain(merged).chain(totals).collect() }
    }
}
