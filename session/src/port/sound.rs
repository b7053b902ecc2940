//! Validates requests from other processes before they are carried out: the lengths, order and sums
//! on which `meta` relies. Permissions are checked behind the port. This module has
//! no side effects.

use super::file_lock::FileLock;
use super::takeover::{Entry, Held};
use meta::{AttributeChange, BulkFile, ContentEdit, Error, MAX_SIZE, New, Rename, Resize, Result, SetTime, Time};
use plan::{Extent, ExtentPlace, Ino, Position, RecordOffset, SessionId, SetId, TargetId, TxId};
use std::ops::Range;

/// Arguments of an operation.
pub(super) trait Sound {
    /// Refuses what no correct client sends.
    ///
    /// # Errors
    /// Returns `Invalid` or `TooLarge`.
    fn check(&self) -> Result<()> {
        Ok(())
    }
}

/// These types accept any value, or the code that uses the value checks it.
macro_rules! any {
    ($($type:ty),*) => { $(impl Sound for $type {})* };
}

any!(bool, u8, u16, u32, u64, usize, String, New, Rename, Entry);
any!(TargetId, SetId, Position, RecordOffset, Ino, SessionId, TxId);

fn invalid(what: &'static str) -> Result<()> {
    Err(Error::Invalid(what.into()))
}

impl<T: Sound> Sound for Vec<T> {
    fn check(&self) -> Result<()> {
        self.iter().try_for_each(Sound::check)
    }
}

impl<T: Sound> Sound for Option<T> {
    fn check(&self) -> Result<()> {
        self.as_ref().map_or(Ok(()), Sound::check)
    }
}

macro_rules! tuples {
    ($(($($name:ident),*))*) => {
        $(impl<$($name: Sound),*> Sound for ($($name,)*) {
            #[allow(non_snake_case, reason = "each type has one value")]
            fn check(&self) -> Result<()> {
                let ($($name,)*) = self;
                $($name.check()?;)*
                Ok(())
            }
        })*
    };
}

tuples!(()(A)(A, B)(A, B, C)(A, B, C, D)(A, B, C, D, E));

impl Sound for Range<u64> {
    fn check(&self) -> Result<()> {
        if self.start <= self.end { Ok(()) } else { invalid("a range that ends before it begins") }
    }
}

impl Sound for Time {
    fn check(&self) -> Result<()> {
        if self.nanoseconds < 1_000_000_000 { Ok(()) } else { invalid("a time of more than a second's nanoseconds") }
    }
}

impl Sound for SetTime {
    fn check(&self) -> Result<()> {
        match self {
            Self::Now => Ok(()),
            Self::To(time) => time.check(),
        }
    }
}

impl Sound for AttributeChange {
    fn check(&self) -> Result<()> {
        self.accessed.check()?;
        self.modified.check()?;
        self.changed.check()?;
        self.created.check()
    }
}

impl Sound for FileLock {
    fn check(&self) -> Result<()> {
        (self.first..self.last).check()
    }
}

impl Sound for Held {
    fn check(&self) -> Result<()> {
        match self.reserved.iter().any(|(_, end)| *end > MAX_SIZE) {
            true => Err(Error::TooLarge),
            false => self.locks.check(),
        }
    }
}

/// The largest extent stored in the metadata itself, in bytes. Clients store up to half of that
/// there.
const MAX_INLINE: usize = 64 << 10;

impl Sound for Extent {
    fn check(&self) -> Result<()> {
        let end = self.offset.checked_add(self.length);
        if self.length == 0 || end.is_none_or(|end| end > MAX_SIZE) {
            return invalid("an extent without bytes, or behind all that a file can have");
        }
        match &self.place {
            ExtentPlace::Bytes(bytes) if bytes.len() as u64 != self.length => {
                invalid("an extent of another length than its bytes")
            }
            ExtentPlace::Bytes(bytes) if bytes.len() > MAX_INLINE => invalid("bytes that belong in a stripe"),
            ExtentPlace::Stripe(span) if u64::from(span.start).saturating_add(self.length) > u64::from(u32::MAX) => {
                invalid("an extent that is longer than a stripe")
            }
            _ => Ok(()),
        }
    }
}

/// Checks that the extents are within the range, in order, and do not overlap.
fn extents(all: &[Extent], range: &Range<u64>) -> Result<()> {
    all.iter().try_for_each(Sound::check)?;
    let (first, last) = (all.first(), all.last());
    let inside =
        first.is_none_or(|first| first.offset >= range.start) && last.is_none_or(|last| last.end() <= range.end);
    if inside && all.windows(2).all(|pair| pair[0].end() <= pair[1].offset) {
        return Ok(());
    }
    invalid("extents that are not in order, or not where they shall be")
}

impl Sound for ContentEdit {
    fn check(&self) -> Result<()> {
        for (range, new) in &self.ranges {
            range.check()?;
            extents(new, range)?;
        }
        if self.ranges.windows(2).any(|pair| pair[0].0.end > pair[1].0.start) {
            return invalid("ranges that are not in order");
        }
        match self.resize {
            Resize::AtLeast(size) | Resize::To(size) if size > MAX_SIZE => Err(Error::TooLarge),
            _ => self.modified.check(),
        }
    }
}

impl Sound for BulkFile {
    fn check(&self) -> Result<()> {
        [self.accessed, self.modified, self.changed].iter().try_for_each(Sound::check)?;
        extents(&self.extents, &(0..self.size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use plan::Span;

    fn zero(offset: u64, length: u64) -> Extent {
        Extent { offset, length, place: ExtentPlace::Zero }
    }

    fn edit(ranges: Vec<(Range<u64>, Vec<Extent>)>) -> ContentEdit {
        ContentEdit { ranges, ..ContentEdit::default() }
    }

    fn inline(length: usize) -> Extent {
        Extent { offset: 0, length: length as u64, place: ExtentPlace::Bytes(vec![1; length].into()) }
    }

    #[test]
    fn what_an_honest_client_sends_is_sound() {
        inline(MAX_INLINE).check().unwrap();
        let bytes = Extent { offset: 5, length: 3, place: ExtentPlace::Bytes(Bytes::from_static(b"abc")) };
        let honest = edit(vec![(0..10, vec![zero(0, 5), bytes, zero(9, 1)]), (10..10, vec![]), (20..u64::MAX, vec![])]);
        honest.check().unwrap();
        ContentEdit { resize: Resize::To(MAX_SIZE), ..honest }.check().unwrap();
        (0..u64::MAX).check().unwrap();
    }

    #[test]
    fn what_only_a_hostile_one_sends_is_not() {
        let stripe = |start, length| {
            let span = Span { set: SetId(1), record: RecordOffset(0), block: 1, start };
            Extent { offset: 0, length, place: ExtentPlace::Stripe(span) }
        };
        let short = Extent { offset: 0, length: 4, place: ExtentPlace::Bytes(Bytes::from_static(b"abc")) };
        for bad in [
            zero(0, 0),
            zero(u64::MAX, 1),
            zero(u64::MAX - 1, u64::MAX),
            zero(MAX_SIZE, 1),
            short,
            stripe(1, u64::from(u32::MAX)),
            stripe(u32::MAX, 1),
            stripe(0, MAX_SIZE),
            inline(MAX_INLINE + 1),
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
            assert!(edit(vec![(0..u64::MAX, vec![bad])]).check().is_err());
        }
        #[allow(clippy::reversed_empty_ranges, reason = "that is what a hostile client sends")]
        let backwards = 9..3;
        for bad in [
            vec![(backwards.clone(), vec![])],
            vec![(0..10, vec![]), (9..12, vec![])],
            vec![(10..12, vec![]), (0..3, vec![])],
            vec![(0..10, vec![zero(9, 2)])],
            vec![(5..10, vec![zero(4, 2)])],
            vec![(0..10, vec![zero(4, 2), zero(5, 2)])],
            vec![(0..10, vec![zero(6, 2), zero(0, 2)])],
        ] {
            assert!(edit(bad.clone()).check().is_err(), "{bad:?}");
        }
        assert!(backwards.check().is_err());
        let resize = ContentEdit { resize: Resize::To(MAX_SIZE + 1), ..ContentEdit::default() };
        assert_eq!(resize.check(), Err(Error::TooLarge));
        let lock = FileLock { owner: 1, first: 2, last: 1, exclusive: true, process: 1 };
        assert!(lock.check().is_err() && (7u64, vec![lock]).check().is_err());
        assert!(Time { seconds: 0, nanoseconds: 1_000_000_000 }.check().is_err());
    }
}
