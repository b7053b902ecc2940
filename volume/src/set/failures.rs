//! Which positions of a chunk set failed while it was written, and which of them have all of it
//! nevertheless.

use plan::Position;
use std::collections::BTreeSet;
use std::io::{self, ErrorKind};

/// The positions of a chunk set that failed. They get no more stripes.
#[derive(Debug)]
pub(super) struct Failures {
    positions: BTreeSet<Position>,
    /// Those of them that refused only stripes that are nowhere now. They have every stripe that
    /// counts as written, and a sync there makes it durable.
    complete: BTreeSet<Position>,
    /// Those that refused the header of their chunk, which comes with the first stripe.
    headless: BTreeSet<Position>,
    /// A Master wrote here and did not tell the boot number of the machine: a target says that its
    /// machine restarted only to a process that knows the number before.
    untold: BTreeSet<Position>,
    /// Those that a sync did not reach.
    unreached: BTreeSet<Position>,
}

impl Failures {
    /// These positions have nothing.
    pub fn new(positions: BTreeSet<Position>) -> Self {
        let [complete, headless, untold, unreached] = Default::default();
        Self { positions, complete, headless, untold, unreached }
    }

    /// A Master wrote a block here and did not tell the boot number of the machine.
    pub fn untold(&mut self, position: Position) {
        self.untold.insert(position);
        // It may have restarted after the block was written, before a sync that did not reach it.
        if self.unreached.contains(&position) {
            self.lost(position);
        }
    }

    /// The sync of the set failed, at these positions among others.
    pub fn not_synced<'a>(&mut self, failed: impl IntoIterator<Item = (Position, &'a io::Error)>) {
        for (position, error) in failed {
            self.unreached.insert(position);
            if self.untold.contains(&position) || !keeps_data(error) {
                self.lost(position);
            }
        }
    }

    pub fn positions(&self) -> &BTreeSet<Position> {
        &self.positions
    }

    /// The positions that lack a stripe, or may have lost one.
    pub fn lacking(&self) -> BTreeSet<Position> {
        self.positions.difference(&self.complete).copied().collect()
    }

    /// A stripe counts as written, without these positions and those that failed before.
    pub fn written(&mut self, without: impl IntoIterator<Item = Position>) {
        self.positions.extend(without);
        self.complete.clear();
    }

    /// A stripe does not count as written. `refused` says where writing it failed.
    pub fn not_written<'a>(&mut self, refused: impl IntoIterator<Item = (Position, &'a io::Error)>) {
        for (position, error) in refused {
            let keeps = is_full(error) || !self.untold.contains(&position) && keeps_data(error);
            if !keeps {
                self.lost(position);
            } else if self.positions.insert(position) {
                self.complete.insert(position);
            }
        }
    }

    /// Writing the first stripe failed at these positions, and the header of the chunk with it.
    pub fn no_header(&mut self, positions: impl IntoIterator<Item = Position>) {
        self.headless.extend(positions);
    }

    /// The header of a chunk was written.
    pub fn has_header(&mut self, position: Position) {
        self.headless.remove(&position);
    }

    /// The positions whose chunks have no header and may have stripes.
    pub fn headless(&self) -> &BTreeSet<Position> {
        &self.headless
    }

    /// A position lacks stripes.
    pub fn lost(&mut self, position: Position) {
        self.positions.insert(position);
        self.complete.remove(&position);
    }
}

/// Whether a target has no space for a write.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// Whether a target that answered a write or a sync with this error still has what was written
/// before. Another sync is right if it succeeds then: a target remembers a sync that failed.
fn keeps_data(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::NotConnected
            | ErrorKind::ConnectionRefused
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
            | ErrorKind::TimedOut
            | ErrorKind::PermissionDenied
            | ErrorKind::ResourceBusy
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(numbers: &[usize]) -> BTreeSet<Position> {
        numbers.iter().map(|&number| Position::at(number)).collect()
    }

    #[test]
    fn who_refused_only_what_is_nowhere_has_everything() {
        let (away, broken) = (io::Error::from(ErrorKind::NotConnected), io::Error::other("broken"));
        let mut failures = Failures::new(at(&[0]));
        failures.not_written([1, 2, 3].map(Position::at).into_iter().zip([&away, &away, &broken]));
        assert_eq!((failures.positions(), failures.lacking()), (&at(&[0, 1, 2, 3]), at(&[0, 3])));
        // Again, and for another reason.
        failures.not_written([(Position::at(1), &broken), (Position::at(3), &away), (Position::at(0), &away)]);
        assert_eq!(failures.lacking(), at(&[0, 1, 3]));
        failures.lost(Position::at(2));
        assert_eq!(failures.lacking(), *failures.positions());
    }

    /// A restart is not noticed where a Master wrote that does not tell of it.
    #[test]
    fn what_an_untold_master_wrote_is_kept_by_a_full_target_alone() {
        let [away, full] = [ErrorKind::NotConnected, ErrorKind::StorageFull].map(io::Error::from);
        let mut failures = Failures::new(at(&[]));
        failures.not_synced([(Position::at(0), &away), (Position::at(1), &full)]);
        assert_eq!(failures.lacking(), at(&[1]));
        (2..5).for_each(|position| failures.untold(Position::at(position)));
        failures.not_written([2, 3, 5].map(Position::at).into_iter().zip([&away, &full, &away]));
        assert_eq!(failures.lacking(), at(&[1, 2]));
        failures.not_synced([0, 4].map(Position::at).into_iter().zip([&away, &away]));
        assert_eq!(failures.lacking(), at(&[1, 2, 4]));
        // The answer of the Master comes after the sync.
        failures.untold(Position::at(0));
        assert_eq!(failures.lacking(), at(&[0, 1, 2, 4]));
    }

    /// Another thread wrote a stripe, and left out what had failed.
    #[test]
    fn who_has_everything_lacks_what_is_written_without_it() {
        let away = io::Error::from(ErrorKind::TimedOut);
        let mut failures = Failures::new(at(&[]));
        failures.not_written([(Position::at(4), &away)]);
        assert_eq!(failures.lacking(), at(&[]));
        failures.written(at(&[5]));
        assert_eq!(failures.lacking(), at(&[4, 5]));
    }
}
