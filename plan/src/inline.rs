//! When data that a sync put into the metadata is moved into stripes.
//!
//! A move sends the data once more, over the links and to the disks that the next syncs need. So it
//! waits for a pause of the syncs. Without a pause, it takes a part of the time, in small
//! pieces, and where that is not enough, as much as it takes.

use std::time::Duration;

/// With more bytes than this, data does not wait until it is old.
pub const ENOUGH_BYTES: u64 = 4 << 20;
/// With more bytes than this, syncs are not spared.
pub const MOST_BYTES: u64 = 16 << 20;
/// Data of this age is moved in the next pause.
pub const OLD: Duration = Duration::from_secs(5);
/// Data of this age does not wait for a pause.
pub const TOO_OLD: Duration = Duration::from_secs(60);
/// A time without syncs that is a pause.
pub const PAUSE: Duration = Duration::from_secs(1);
/// What is moved at once while there are syncs, in bytes. On a slow link, a sync waits behind it.
pub const PIECE_BYTES: u64 = 1 << 20;
/// The part of the time that moves take while there are syncs. A record in the metadata goes to m+2
/// mirrors, and later as k+m blocks of a k-th to the stores. In 4+2 that is 4 and 1.5 times its
/// bytes, so syncs that use a link all the time need 1.5 of 5.5 parts of it for the moves.
const SHARE: f64 = 1.0 / 3.0;

/// What is in the metadata that belongs in stripes, and how busy it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    /// Bytes of files that have a name.
    pub named_bytes: u64,
    /// Bytes of files that have none: they are dropped when nobody has them open any more.
    pub unnamed_bytes: u64,
    /// How long nobody has waited for a sync.
    pub quiet: Duration,
    /// What moves may take of the time.
    pub credit: Credit,
}

/// How the data of a file is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Not now.
    Wait,
    /// A piece of [`PIECE_BYTES`].
    Slowly,
    /// A full stripe.
    Freely,
}

/// Says how to move the data of a file that came into the metadata so long ago. Ask again after
/// each piece.
pub fn pace(now: &Moment, is_named: bool, age: Duration) -> Pace {
    if now.named_bytes.saturating_add(now.unnamed_bytes) > MOST_BYTES {
        return Pace::Freely;
    }
    let is_quiet = now.quiet >= PAUSE;
    let old = if is_quiet && is_named { OLD } else { TOO_OLD };
    let is_due = age > old || is_named && now.named_bytes > ENOUGH_BYTES;
    match is_due {
        true if is_quiet => Pace::Freely,
        true if now.credit.0 > 0.0 => Pace::Slowly,
        _ => Pace::Wait,
    }
}

/// The time that moves may take while there are syncs, in seconds. Less than none after a piece
/// that took long.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Credit(f64);

impl Credit {
    /// So much time went by. What is not used within a [`PAUSE`] is lost.
    pub fn earn(&mut self, went_by: Duration) {
        self.0 = (self.0 + SHARE * went_by.as_secs_f64()).min(SHARE * PAUSE.as_secs_f64());
    }

    /// A piece took so long.
    pub fn spend(&mut self, took: Duration) {
        self.0 -= took.as_secs_f64();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment { named_bytes: 1000, unnamed_bytes: 0, quiet: Duration::ZERO, credit: Credit(0.01) };
    const NONE: Credit = Credit(-0.01);

    fn after(age: Duration) -> Duration {
        age + Duration::from_millis(1)
    }

    #[test]
    fn little_data_waits_for_a_pause() {
        let quiet = Moment { quiet: PAUSE, ..NOW };
        assert_eq!(pace(&quiet, true, OLD), Pace::Wait);
        assert_eq!(pace(&quiet, true, after(OLD)), Pace::Freely);
        assert_eq!(pace(&NOW, true, TOO_OLD), Pace::Wait);
        // A program that syncs each second must not keep it there for ever.
        assert_eq!(pace(&NOW, true, after(TOO_OLD)), Pace::Slowly);
    }

    #[test]
    fn much_data_takes_a_part_of_the_time() {
        let much = Moment { named_bytes: ENOUGH_BYTES + 1, ..NOW };
        assert_eq!(pace(&much, true, Duration::ZERO), Pace::Slowly);
        assert_eq!(pace(&Moment { credit: NONE, ..much }, true, Duration::ZERO), Pace::Wait);
        assert_eq!(pace(&Moment { quiet: PAUSE, credit: NONE, ..much }, true, Duration::ZERO), Pace::Freely);
    }

    #[test]
    fn there_is_a_most() {
        for (named, unnamed) in [(MOST_BYTES + 1, 0), (0, MOST_BYTES + 1), (MOST_BYTES, 1), (u64::MAX, 1)] {
            let most = Moment { named_bytes: named, unnamed_bytes: unnamed, credit: NONE, ..NOW };
            assert_eq!(pace(&most, true, Duration::ZERO), Pace::Freely);
            assert_eq!(pace(&most, false, Duration::ZERO), Pace::Freely);
        }
    }

    /// They are removed soon, so a move is for nothing. But a program may keep one for a year.
    #[test]
    fn files_without_names_are_left_alone_for_a_while() {
        let removed = Moment { unnamed_bytes: ENOUGH_BYTES + 1, quiet: PAUSE, ..NOW };
        assert_eq!(pace(&removed, false, TOO_OLD), Pace::Wait);
        assert_eq!(pace(&removed, false, after(TOO_OLD)), Pace::Freely);
        // Nor do they hurry others.
        assert_eq!(pace(&removed, true, Duration::ZERO), Pace::Wait);
    }

    /// Moves take a third of the time, whatever a piece takes, and save nothing up.
    #[test]
    fn moves_take_their_part() {
        for piece in [0.001, 0.06, 0.9, 7.0] {
            let (mut credit, mut moving) = (Credit::default(), 0.0);
            credit.earn(Duration::from_secs(3600));
            for _ in 0..1000 {
                credit.earn(Duration::from_secs(1));
                while credit.0 > 0.0 {
                    credit.spend(Duration::from_secs_f64(piece));
                    moving += piece;
                }
            }
            let least = 1000.0 * SHARE - 1.0;
            assert!((least..=1000.0 * SHARE + 1.0 + piece).contains(&moving), "{piece}: {moving}");
        }
    }
}
