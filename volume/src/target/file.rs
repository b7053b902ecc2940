//! The files of a target.

use plan::{Position, SetId, TxId};

/// The name of a file on a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TargetFile {
    /// The identity of the target: the volume, its code, the other targets.
    Label,
    /// A label that is not complete yet.
    NewLabel,
    /// The blocks of one position of a chunk set.
    Chunk {
        /// The chunk set.
        set: SetId,
        /// The position in its stripes.
        position: Position,
    },
    /// A chunk during its rebuild.
    NewChunk {
        /// The chunk set.
        set: SetId,
        /// The position in its stripes.
        position: Position,
    },
    /// A segment of the metadata journal, numbered by its first transaction.
    Journal {
        /// The first transaction.
        first: TxId,
    },
    /// A snapshot of the metadata.
    Snapshot {
        /// The last transaction in it.
        last: TxId,
    },
}

impl TargetFile {
    /// Whether it is a segment of the journal or a snapshot.
    pub fn is_metadata(self) -> bool {
        matches!(self, Self::Journal { .. } | Self::Snapshot { .. })
    }
}
