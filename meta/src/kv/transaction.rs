//! Resolves a batch: checks the guards, makes the merges, and finds one final value per key.

use super::index::End;
use super::{
    Batch, Guard, KvChange, KvError, MAX_BATCH_BYTES, MAX_KEY_BYTES, MAX_VALUE_BYTES, MergeFn, Order, Pair, View,
};
use std::collections::BTreeMap;
use std::ops::{Bound, Range};

/// The result of a batch against one state.
#[derive(Debug, Default)]
pub(crate) struct Resolved {
    /// The new value of every key that the batch changes; `None` removes it.
    pub edits: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// The results of the merges, in order.
    pub merged: Vec<Option<Vec<u8>>>,
}

/// Checks the guards, then applies the changes in order.
pub(crate) fn resolve(batch: Batch, view: &dyn View, merge: MergeFn) -> Result<Resolved, KvError> {
    for guard in &batch.guards {
        let holds = match guard {
            Guard::Value(key, value) => view.get(key)? == *value,
            Guard::Empty(range) => scan(view, &range.start..&range.end, 1, Order::Ascending)?.is_empty(),
        };
        if !holds {
            return Err(KvError::Conflict);
        }
    }
    let mut resolved = Resolved::default();
    let mut bytes = 0;
    for change in batch.changes {
        let (key, value) = match change {
            KvChange::Put(key, value) => (key, Some(value)),
            KvChange::Delete(key) => (key, None),
            KvChange::Merge(key, operand) => {
                let value = match resolved.edits.get(&key) {
                    Some(old) => merge(&key, old.as_deref(), &operand)?,
                    None => merge(&key, view.get(&key)?.as_deref(), &operand)?,
                };
                resolved.merged.push(value.clone());
                (key, value)
            }
        };
        let value_bytes = value.as_ref().map_or(0, Vec::len);
        bytes += key.len() + value_bytes;
        if key.len() > MAX_KEY_BYTES {
            return Err(KvError::Invalid("a key is too long"));
        }
        if value_bytes > MAX_VALUE_BYTES {
            return Err(KvError::Invalid("a value is too long"));
        }
        // A removal costs bytes in the journal, too, so the number of keys is limited as well as
        // the total size.
        if bytes > MAX_BATCH_BYTES || resolved.edits.len() > MAX_BATCH_BYTES / 16 {
            return Err(KvError::Invalid("a batch is too large"));
        }
        resolved.edits.insert(key, value);
    }
    Ok(resolved)
}

/// The last pair before a range, if there is one from `floor` on, and the first pairs of the range.
pub(crate) fn scan_with_previous(
    view: &dyn View,
    floor: &[u8],
    range: Range<&[u8]>,
    limit: usize,
) -> Result<Vec<Pair>, KvError> {
    let mut pairs = scan(view, floor..range.start, 1, Order::Descending)?;
    pairs.extend(scan(view, range, limit, Order::Ascending)?);
    Ok(pairs)
}

/// The first pairs of a range.
pub(crate) fn scan(view: &dyn View, range: Range<&[u8]>, limit: usize, order: Order) -> Result<Vec<Pair>, KvError> {
    let mut pairs = Vec::new();
    if limit == 0 {
        return Ok(pairs);
    }
    let (low, high): (End<'_>, End<'_>) = (Bound::Included(range.start), Bound::Excluded(range.end));
    view.visit(low, high, order, &mut |key, value| {
        pairs.push((key.to_vec(), value.to_vec()));
        Ok(pairs.len() < limit)
    })?;
    Ok(pairs)
}
