//! The store's check whether a token permits an operation. It has no side effects except its cache
//! of tokens; the caller passes the time in.

use super::fence::{Fence, Fences};
use super::{Capability, ClusterKey, Refusal, Rights, TOKEN_BYTES, Token};
use plan::SetId;
use std::fmt;
use std::sync::{Arc, RwLock};
use std::time::Duration;
use volume::unpoisoned;

/// Default tolerance for the difference between the clocks of the metadata server and of a store. A
/// token stays valid for this long after it expires.
pub const CLOCK_TOLERANCE: Duration = Duration::from_secs(300);
/// Size of the cache of verified tokens. A cached token costs a comparison instead of a hash.
const MAX_VERIFIED_TOKENS: usize = 1024;

/// The permission that an operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// None beyond membership in the cluster.
    Nothing,
    /// To read chunks of a set.
    Read(SetId),
    /// To append to chunks of a set.
    Write(SetId),
    /// The rights of a server.
    Everything,
}

/// Verifies tokens and decides what they permit.
pub struct Guard {
    key: Arc<ClusterKey>,
    tolerance_ms: u64,
    /// Tokens with verified signatures. Each token has one possible slot.
    good: RwLock<Vec<Option<(Token, Capability)>>>,
    fences: Fences,
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guard")
    }
}

/// The slot of a token in the cache, computed from its public part.
fn place_of(token: &Token) -> usize {
    let field = |at: usize| super::u64_at(&token.0, at).unwrap_or(0);
    let mixed = (field(24) ^ field(32).rotate_left(32) ^ u64::from(token.0[5])).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 32) as usize % MAX_VERIFIED_TOKENS
}

impl Guard {
    /// A guard that accepts tokens signed with this key, by a clock that differs from its own by at
    /// most `tolerance`.
    pub fn new(key: Arc<ClusterKey>, tolerance: Duration) -> Self {
        let tolerance_ms = u64::try_from(tolerance.as_millis()).unwrap_or(u64::MAX);
        Self { key, tolerance_ms, good: RwLock::new(vec![None; MAX_VERIFIED_TOKENS]), fences: Fences::default() }
    }

    /// Applies a fence from a metadata server: from now on the store refuses writes of that
    /// volume's ended sessions.
    pub fn fence(&self, fence: Fence) {
        self.fences.hear(fence);
    }

    /// Checks whether these bytes permit `wanted` on a target of `volume`. `volume` is None for a
    /// target without a label.
    ///
    /// # Errors
    /// The reason for the refusal.
    pub fn check(&self, shown: &[u8], wanted: Wanted, volume: Option<[u8; 16]>, now_ms: u64) -> Result<(), Refusal> {
        if wanted == Wanted::Nothing {
            return Ok(());
        }
        if shown.is_empty() {
            return Err(Refusal::Missing);
        }
        let capability = self.open(shown)?;
        if now_ms > capability.expires_ms.saturating_add(self.tolerance_ms) {
            return Err(Refusal::Expired);
        }
        // An ended session may still read what it began to read.
        let lives = if matches!(wanted, Wanted::Write(_)) { self.fences.lives(&capability) } else { Some(true) };
        if lives == Some(false) {
            return Err(Refusal::Ended);
        }
        let of = |set: SetId, least: Rights| {
            capability.rights >= least && capability.set == set && Some(capability.volume) == volume
        };
        let permitted = capability.rights == Rights::Everything
            || match wanted {
                Wanted::Nothing => true,
                Wanted::Read(set) => of(set, Rights::Read),
                Wanted::Write(set) => of(set, Rights::Write),
                Wanted::Everything => false,
            };
        match lives {
            _ if !permitted => Err(Refusal::Other),
            None => Err(Refusal::Unfenced),
            Some(_) => Ok(()),
        }
    }

    /// Verifies the signature of a token and returns its content.
    fn open(&self, shown: &[u8]) -> Result<Capability, Refusal> {
        let shown: &[u8; TOKEN_BYTES] = shown.try_into().map_err(|_| Refusal::Foreign)?;
        let token = Token(*shown);
        let place = place_of(&token);
        if let Some((known, capability)) = &unpoisoned(self.good.read())[place]
            // Compare the public part first. The comparison of the signatures takes the same time
            // wherever they differ.
            && token.0[..super::SIGNED_BYTES] == known.0[..super::SIGNED_BYTES]
            && token.signature() == known.signature()
        {
            return Ok(*capability);
        }
        let capability = self.key.open(&token)?;
        unpoisoned(self.good.write())[place] = Some((token, capability));
        Ok(capability)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plan::SessionId;

    const VOLUME: [u8; 16] = [9; 16];
    const MINUTES: u64 = 60_000;

    fn guard() -> (Guard, Arc<ClusterKey>) {
        let key = Arc::new(ClusterKey::new(&[4; 32]));
        let guard = Guard::new(key.clone(), CLOCK_TOLERANCE);
        guard.fence(Fence { volume: VOLUME, next: SessionId(2), live: vec![SessionId(1)] });
        (guard, key)
    }

    /// A store that has just started does not know which sessions have ended.
    #[test]
    fn nobody_writes_in_a_session_before_the_first_fence() {
        let key = Arc::new(ClusterKey::new(&[4; 32]));
        let guard = Guard::new(key.clone(), CLOCK_TOLERANCE);
        let check = |session, wanted| {
            let session = SessionId(session);
            let token = key.sign(&Capability { session, ..capability(SetId(5), Rights::Write) });
            checked(&guard, token.as_bytes(), wanted, Some(VOLUME), 0)
        };
        assert_eq!(check(1, Wanted::Write(SetId(5))), Err(Refusal::Unfenced));
        assert_eq!(
            (check(1, Wanted::Write(SetId(6))), check(1, Wanted::Read(SetId(5)))),
            (Err(Refusal::Other), Ok(()))
        );
        assert_eq!(check(0, Wanted::Write(SetId(5))), Ok(()), "a server");
        guard.fence(Fence { volume: [8; 16], next: SessionId(9), live: vec![SessionId(1)] });
        assert_eq!(check(1, Wanted::Write(SetId(5))), Err(Refusal::Unfenced));
        guard.fence(Fence { volume: VOLUME, next: SessionId(3), live: vec![SessionId(2)] });
        assert_eq!(
            [1, 2, 3].map(|session| check(session, Wanted::Write(SetId(5)))),
            [Err(Refusal::Ended), Ok(()), Ok(())]
        );
    }

    fn capability(set: SetId, rights: Rights) -> Capability {
        Capability { volume: VOLUME, set, rights, session: SessionId(1), expires_ms: 10 * MINUTES }
    }

    /// Checks twice: the first time by the signature, the second time from the cache.
    fn checked(guard: &Guard, shown: &[u8], wanted: Wanted, volume: Option<[u8; 16]>, now: u64) -> Result<(), Refusal> {
        let first = guard.check(shown, wanted, volume, now);
        assert_eq!(guard.check(shown, wanted, volume, now), first);
        first
    }

    #[test]
    fn a_token_permits_what_is_in_it() {
        let (guard, key) = guard();
        let shows = |rights, wanted| {
            checked(&guard, key.sign(&capability(SetId(5), rights)).as_bytes(), wanted, Some(VOLUME), MINUTES).is_ok()
        };
        let all = [
            Wanted::Nothing,
            Wanted::Read(SetId(5)),
            Wanted::Write(SetId(5)),
            Wanted::Read(SetId(6)),
            Wanted::Write(SetId(6)),
            Wanted::Everything,
        ];
        assert_eq!(all.map(|wanted| shows(Rights::Read, wanted)), [true, true, false, false, false, false]);
        assert_eq!(all.map(|wanted| shows(Rights::Write, wanted)), [true, true, true, false, false, false]);
        assert_eq!(all.map(|wanted| shows(Rights::Everything, wanted)), [true; 6]);
    }

    #[test]
    fn it_is_for_one_volume() {
        let (guard, key) = guard();
        let read = key.sign(&capability(SetId(5), Rights::Read));
        for volume in [None, Some([8; 16])] {
            assert_eq!(checked(&guard, read.as_bytes(), Wanted::Read(SetId(5)), volume, 0), Err(Refusal::Other));
        }
        // A target without a volume gets its label from a server.
        let everything = key.sign(&capability(SetId(0), Rights::Everything));
        assert_eq!(checked(&guard, everything.as_bytes(), Wanted::Everything, None, 0), Ok(()));
    }

    #[test]
    fn it_expires_when_the_clocks_cannot_be_blamed() {
        let (guard, key) = guard();
        for rights in [Rights::Write, Rights::Everything] {
            let token = key.sign(&capability(SetId(5), rights));
            let at = |now| checked(&guard, token.as_bytes(), Wanted::Read(SetId(5)), Some(VOLUME), now);
            assert_eq!([0, 10 * MINUTES, 15 * MINUTES].map(at), [Ok(()); 3]);
            assert_eq!([15 * MINUTES + 1, u64::MAX].map(at), [Err(Refusal::Expired); 2]);
        }
        let for_ever = key.sign(&Capability { expires_ms: u64::MAX, ..capability(SetId(5), Rights::Read) });
        assert_eq!(checked(&guard, for_ever.as_bytes(), Wanted::Read(SetId(5)), Some(VOLUME), u64::MAX), Ok(()));
    }

    #[test]
    fn what_is_no_token_is_refused() {
        let (guard, key) = guard();
        let good = key.sign(&capability(SetId(5), Rights::Write));
        let mut longer = good.as_bytes().to_vec();
        longer.push(0);
        let stranger = ClusterKey::new(&[5; 32]).sign(&capability(SetId(5), Rights::Write));
        // A bad token is refused even when the good one is cached in the same slot.
        assert_eq!(checked(&guard, good.as_bytes(), Wanted::Write(SetId(5)), Some(VOLUME), 0), Ok(()));
        for bad in [&longer, &good.as_bytes()[..79], stranger.as_bytes(), &[0; 80], b"x"] {
            assert_eq!(checked(&guard, bad, Wanted::Write(SetId(5)), Some(VOLUME), 0), Err(Refusal::Foreign));
        }
        assert_eq!(checked(&guard, &[], Wanted::Write(SetId(5)), Some(VOLUME), 0), Err(Refusal::Missing));
        let mut widened = good.as_bytes().to_vec();
        widened[5] = Rights::Everything as u8;
        assert_eq!(checked(&guard, &widened, Wanted::Everything, Some(VOLUME), 0), Err(Refusal::Foreign));
    }

    #[test]
    fn what_is_remembered_is_bounded_and_tells_tokens_apart() {
        let (guard, key) = guard();
        for set in (0..3 * MAX_VERIFIED_TOKENS as u64).map(SetId) {
            let token = key.sign(&capability(set, Rights::Read));
            assert_eq!(checked(&guard, token.as_bytes(), Wanted::Read(set), Some(VOLUME), 0), Ok(()));
            assert_eq!(
                checked(&guard, token.as_bytes(), Wanted::Read(set.next()), Some(VOLUME), 0),
                Err(Refusal::Other)
            );
        }
        assert_eq!(guard.good.read().unwrap().len(), MAX_VERIFIED_TOKENS);
    }
}
