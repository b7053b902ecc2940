//! The index below an engine: an ordered map that applies many changes at once and records the last
//! transaction it contains.

use super::{KvError, Visit};
use plan::TxId;
use std::ops::Bound;

/// One end of a range of keys.
pub(crate) type End<'a> = Bound<&'a [u8]>;

/// A key with its new value; `None` removes it.
pub type Edit<'a> = (&'a [u8], Option<&'a [u8]>);

/// The direction of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Starts at the smallest key.
    Ascending,
    /// Starts at the largest key.
    Descending,
}

/// Reads from one state.
pub trait View {
    /// The value of a key.
    ///
    /// # Errors
    /// Returns an error when the index cannot be read.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError>;

    /// Passes the pairs between two bounds to `visit` until it returns `false`. Bounds in the wrong
    /// order make an empty range.
    ///
    /// # Errors
    /// Returns an error when the index cannot be read, and any error that `visit` returns.
    fn visit(&self, low: Bound<&[u8]>, high: Bound<&[u8]>, order: Order, visit: Visit<'_>) -> Result<(), KvError>;
}

/// Which volume's contents an index has, and up to which transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexState {
    /// The volume's id; all zeroes when the index belongs to no volume.
    pub owner: [u8; 16],
    /// The journal's epoch in which `applied` was committed.
    pub epoch: u64,
    /// The id of that epoch; 0 in format 1 of the journal.
    pub id: u128,
    /// The last transaction in the index.
    pub applied: TxId,
}

/// An ordered map below an engine. Its own reads return the newest state.
pub trait Index: View + Send + Sync {
    /// Returns the owner and the last transaction.
    ///
    /// # Errors
    /// Returns an error when the index cannot be read.
    fn state(&self) -> Result<IndexState, KvError>;

    /// Applies all changes and the new state, or nothing. With `durable`, these and all earlier
    /// changes are on disk when it returns.
    ///
    /// # Errors
    /// Returns an error when it cannot; nothing has changed then.
    fn apply<'a>(
        &self,
        edits: &mut dyn Iterator<Item = Edit<'a>>,
        state: IndexState,
        durable: bool,
    ) -> Result<(), KvError>;

    /// Removes everything. The index then belongs to no volume.
    ///
    /// # Errors
    /// Returns an error when it cannot.
    fn clear(&self) -> Result<(), KvError>;

    /// Returns a view of the current state. It stays the same for the life of the view while
    /// changes continue.
    ///
    /// # Errors
    /// Returns an error when the index cannot be read.
    fn view(&self) -> Result<Box<dyn View + Send>, KvError>;
}

/// Whether the bounds make a valid range; `BTreeMap::range` panics otherwise.
pub(crate) fn can_hold(low: End<'_>, high: End<'_>) -> bool {
    match (low, high) {
        (Bound::Included(low), Bound::Included(high)) => low <= high,
        (Bound::Included(low) | Bound::Excluded(low), Bound::Excluded(high) | Bound::Included(high)) => low < high,
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => true,
    }
}
