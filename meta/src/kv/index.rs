//! What stands under an engine: an ordered map that takes many changes at a time and says up to which transaction it has them.

use super::{KvError, Visit};
use std::ops::Bound;

/// One end of a range of keys.
pub(crate) type End<'a> = Bound<&'a [u8]>;

/// A key with its new value; `None` removes it.
pub type Edit<'a> = (&'a [u8], Option<&'a [u8]>);

/// The direction of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// From the smallest key on.
    Ascending,
    /// From the largest key on.
    Descending,
}

/// Reads of one state.
pub trait View {
    /// The value of a key.
    ///
    /// # Errors
    /// When it cannot be read.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError>;

    /// Shows the pairs between two ends until `visit` says `false`. Ends in the wrong order are an empty range.
    ///
    /// # Errors
    /// When they cannot be read, and what `visit` returns.
    fn visit(&self, low: Bound<&[u8]>, high: Bound<&[u8]>, order: Order, visit: Visit<'_>) -> Result<(), KvError>;
}

/// Whose contents an index has, and how far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexState {
    /// The volume; zeroes when the index is of nobody.
    pub owner: [u8; 16],
    /// The journal's epoch in which `applied` was given out.
    pub epoch: u64,
    /// The last transaction in it.
    pub applied: u64,
}

/// An ordered map behind an engine. Its own reads are of the newest state.
pub trait Index: View + Send + Sync {
    /// Whose it is, and how far.
    ///
    /// # Errors
    /// When it cannot be read.
    fn state(&self) -> Result<IndexState, KvError>;

    /// Makes all changes and takes on the state: everything or nothing. With `durable`, and everything before, it is on disk on return.
    ///
    /// # Errors
    /// When it cannot. Then nothing has changed.
    fn apply<'a>(
        &self,
        edits: &mut dyn Iterator<Item = Edit<'a>>,
        state: IndexState,
        durable: bool,
    ) -> Result<(), KvError>;

    /// Removes everything; then it is nobody's.
    ///
    /// # Errors
    /// When it cannot.
    fn clear(&self) -> Result<(), KvError>;

    /// The state as it is now, for as long as the view lives, while changes go on.
    ///
    /// # Errors
    /// When it cannot be read.
    fn view(&self) -> Result<Box<dyn View + Send>, KvError>;
}

/// Whether a range has room for a key; `BTreeMap::range` panics otherwise.
pub(crate) fn can_hold(low: End<'_>, high: End<'_>) -> bool {
    match (low, high) {
        (Bound::Included(low), Bound::Included(high)) => low <= high,
        (Bound::Included(low) | Bound::Excluded(low), Bound::Excluded(high) | Bound::Included(high)) => low < high,
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => true,
    }
}
