//! The cost of the journal inside a call of the metadata: its sending is DD, its mirrors' writing
//! is SP. The thread that waits for the journal, here or in the metadata server, carries it to the
//! code that counts the call. An answer of the server has it at its end. Only lengths of time go
//! from one machine to another, so their clocks need not agree.

use std::cell::Cell;
use std::time::Duration;

/// The bytes of [`Carried::to_bytes`].
pub const CARRIED_BYTES: usize = 16;

thread_local! {
    static CARRIED: Cell<Carried> = const { Cell::new(Carried::NONE) };
}

/// The part of a wait that the journal took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// DD: from the first byte sent to the answer that made it durable, without SP.
    pub distribution: Duration,
    /// SP: what the slowest of the mirrors needed that made it durable.
    pub slave: Duration,
}

impl Carried {
    const NONE: Self = Self { distribution: Duration::ZERO, slave: Duration::ZERO };

    /// Adds this to what the calling thread carries.
    pub fn carry(self) {
        let before = CARRIED.get();
        CARRIED.set(Self {
            distribution: before.distribution.saturating_add(self.distribution),
            slave: before.slave.saturating_add(self.slave),
        });
    }

    /// Takes what the calling thread carries.
    pub fn take() -> Self {
        CARRIED.replace(Self::NONE)
    }

    /// DD and SP.
    pub fn total(&self) -> Duration {
        self.distribution.saturating_add(self.slave)
    }

    /// As much of this as fits into a wait: a caller that came late waited for a part only, and
    /// what another machine says may be anything.
    #[must_use]
    pub fn within(self, waited: Duration) -> Self {
        let slave = self.slave.min(waited);
        Self { distribution: self.distribution.min(waited - slave), slave }
    }

    /// DD and SP in nanoseconds, each as 8 bytes, little-endian.
    pub fn to_bytes(self) -> [u8; CARRIED_BYTES] {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).to_le_bytes();
        let mut bytes = [0; CARRIED_BYTES];
        bytes[..8].copy_from_slice(&nanoseconds(self.distribution));
        bytes[8..].copy_from_slice(&nanoseconds(self.slave));
        bytes
    }

    /// The reverse of `to_bytes`; nothing for any other length.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let Ok(bytes) = <[u8; CARRIED_BYTES]>::try_from(bytes) else { return Self::NONE };
        let bytes = u128::from_le_bytes(bytes);
        Self { distribution: Duration::from_nanos(bytes as u64), slave: Duration::from_nanos((bytes >> 64) as u64) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn of(distribution: u64, slave: u64) -> Carried {
        Carried { distribution: Duration::from_nanos(distribution), slave: Duration::from_nanos(slave) }
    }

    #[test]
    fn a_thread_carries_its_own_until_it_is_taken() {
        of(1, 2).carry();
        of(10, 20).carry();
        assert_eq!(std::thread::spawn(Carried::take).join().unwrap(), Carried::NONE);
        assert_eq!(Carried::take(), of(11, 22));
        assert_eq!(Carried::take(), Carried::NONE);
    }

    #[test]
    fn no_more_than_was_waited() {
        assert_eq!(of(3, 4).within(Duration::from_nanos(7)), of(3, 4));
        assert_eq!(of(3, 4).within(Duration::from_nanos(5)), of(1, 4));
        assert_eq!(of(3, 4).within(Duration::from_nanos(2)), of(0, 2));
        assert_eq!(of(u64::MAX, u64::MAX).within(Duration::ZERO), Carried::NONE);
    }

    #[test]
    fn bytes() {
        for carried in [Carried::NONE, of(1, u64::MAX), of(u64::MAX, 7)] {
            assert_eq!(Carried::from_bytes(&carried.to_bytes()), carried);
        }
        assert_eq!(Carried::from_bytes(&[]), Carried::NONE);
        assert_eq!(Carried::from_bytes(&[1; CARRIED_BYTES + 1]), Carried::NONE);
    }
}
