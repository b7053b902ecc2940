//! The store's side: whether what is shown permits what is asked. Pure but for what it remembers; the time is passed in.

use super::fence::{Fence, Fences};
use super::{Capability, ClusterKey, Refusal, Rights, TOKEN_BYTES, Token};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// How much the clocks of the metadata server and of a store may differ, where nobody says otherwise: so much longer is a token good.
pub const CLOCK_TOLERANCE: Duration = Duration::from_secs(300);
/// Tokens that were found good are remembered, so that data costs a look and no hash.
const REMEMBERED: usize = 1024;

/// What an operation takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Nothing but being a member of the cluster.
    Nothing,
    /// To read chunks of a set.
    Read(u64),
    /// To append to chunks of a set.
    Write(u64),
    /// What only servers do.
    Everything,
}

/// Lets pass what a token permits.
pub struct Guard {
    key: Arc<ClusterKey>,
    tolerance_ms: u64,
    /// Tokens with good signatures, each in the one place where it can be.
    good: RwLock<Vec<Option<(Token, Capability)>>>,
    fences: Fences,
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guard")
    }
}

/// The place of a token among those that are remembered, by what everybody knows of it.
fn place_of(token: &Token) -> usize {
    let field = |at: usize| super::u64_at(&token.0, at).unwrap_or(0);
    let mixed = (field(24) ^ field(32).rotate_left(32) ^ u64::from(token.0[5])).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 32) as usize % REMEMBERED
}

impl Guard {
    /// One that believes what this key signed, from clocks that differ from its own by so much at most.
    pub fn new(key: Arc<ClusterKey>, tolerance: Duration) -> Self {
        let tolerance_ms = u64::try_from(tolerance.as_millis()).unwrap_or(u64::MAX);
        Self { key, tolerance_ms, good: RwLock::new(vec![None; REMEMBERED]), fences: Fences::default() }
    }

    /// A metadata server says which sessions of its volume live: what it permitted to others is refused from now on.
    pub fn fence(&self, fence: Fence) {
        self.fences.hear(fence);
    }

    /// Whether these bytes permit what is wanted of a target of this volume, if it has one yet.
    ///
    /// # Errors
    /// Why not.
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
        // What was begun in a session may be read to its end.
        if matches!(wanted, Wanted::Write(_)) && self.fences.has_ended(&capability) {
            return Err(Refusal::Ended);
        }
        let of = |set: u64, least: Rights| {
            capability.rights >= least && capability.set == set && Some(capability.volume) == volume
        };
        let permitted = capability.rights == Rights::Everything
            || match wanted {
                Wanted::Nothing => true,
                Wanted::Read(set) => of(set, Rights::Read),
                Wanted::Write(set) => of(set, Rights::Write),
                Wanted::Everything => false,
            };
        if permitted { Ok(()) } else { Err(Refusal::Other) }
    }

    /// What a token says, if its signature is good.
    fn open(&self, shown: &[u8]) -> Result<Capability, Refusal> {
        let shown: &[u8; TOKEN_BYTES] = shown.try_into().map_err(|_| Refusal::Foreign)?;
        let token = Token(*shown);
        let place = place_of(&token);
        if let Some((known, capability)) = &self.good.read().unwrap_or_else(PoisonError::into_inner)[place]
            // What is no secret first; the comparison of the signatures takes the same time wherever they differ.
            && token.0[..super::SIGNED_BYTES] == known.0[..super::SIGNED_BYTES]
            && token.signature() == known.signature()
        {
            return Ok(*capability);
        }
        let capability = self.key.open(&token)?;
        self.good.write().unwrap_or_else(PoisonError::into_inner)[place] = Some((token, capability));
        Ok(capability)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: [u8; 16] = [9; 16];
    const MINUTES: u64 = 60_000;

    fn guard() -> (Guard, Arc<ClusterKey>) {
        let key = Arc::new(ClusterKey::new(&[4; 32]));
        (Guard::new(key.clone(), CLOCK_TOLERANCE), key)
    }

    fn capability(set: u64, rights: Rights) -> Capability {
        Capability { volume: VOLUME, set, rights, session: 1, expires_ms: 10 * MINUTES }
    }

    /// Twice each time: once by its signature and once from memory.
    fn checked(guard: &Guard, shown: &[u8], wanted: Wanted, volume: Option<[u8; 16]>, now: u64) -> Result<(), Refusal> {
        let first = guard.check(shown, wanted, volume, now);
        assert_eq!(guard.check(shown, wanted, volume, now), first);
        first
    }

    #[test]
    fn a_token_permits_what_is_in_it() {
        let (guard, key) = guard();
        let shows = |rights, wanted| {
            checked(&guard, key.sign(&capability(5, rights)).as_bytes(), wanted, Some(VOLUME), MINUTES).is_ok()
        };
        let all =
            [Wanted::Nothing, Wanted::Read(5), Wanted::Write(5), Wanted::Read(6), Wanted::Write(6), Wanted::Everything];
        assert_eq!(all.map(|wanted| shows(Rights::Read, wanted)), [true, true, false, false, false, false]);
        assert_eq!(all.map(|wanted| shows(Rights::Write, wanted)), [true, true, true, false, false, false]);
        assert_eq!(all.map(|wanted| shows(Rights::Everything, wanted)), [true; 6]);
    }

    #[test]
    fn it_is_for_one_volume() {
        let (guard, key) = guard();
        let read = key.sign(&capability(5, Rights::Read));
        for volume in [None, Some([8; 16])] {
            assert_eq!(checked(&guard, read.as_bytes(), Wanted::Read(5), volume, 0), Err(Refusal::Other));
        }
        // A target that has none yet gets its label from a server.
        let everything = key.sign(&capability(0, Rights::Everything));
        assert_eq!(checked(&guard, everything.as_bytes(), Wanted::Everything, None, 0), Ok(()));
    }

    #[test]
    fn it_expires_when_the_clocks_cannot_be_blamed() {
        let (guard, key) = guard();
        for rights in [Rights::Write, Rights::Everything] {
            let token = key.sign(&capability(5, rights));
            let at = |now| checked(&guard, token.as_bytes(), Wanted::Read(5), Some(VOLUME), now);
            assert_eq!([0, 10 * MINUTES, 15 * MINUTES].map(at), [Ok(()); 3]);
            assert_eq!([15 * MINUTES + 1, u64::MAX].map(at), [Err(Refusal::Expired); 2]);
        }
        let for_ever = key.sign(&Capability { expires_ms: u64::MAX, ..capability(5, Rights::Read) });
        assert_eq!(checked(&guard, for_ever.as_bytes(), Wanted::Read(5), Some(VOLUME), u64::MAX), Ok(()));
    }

    #[test]
    fn what_is_no_token_is_refused() {
        let (guard, key) = guard();
        let good = key.sign(&capability(5, Rights::Write));
        let mut longer = good.as_bytes().to_vec();
        longer.push(0);
        let stranger = ClusterKey::new(&[5; 32]).sign(&capability(5, Rights::Write));
        // Also when the good one was seen before, and is in the same place.
        assert_eq!(checked(&guard, good.as_bytes(), Wanted::Write(5), Some(VOLUME), 0), Ok(()));
        for bad in [&longer, &good.as_bytes()[..79], stranger.as_bytes(), &[0; 80], b"x"] {
            assert_eq!(checked(&guard, bad, Wanted::Write(5), Some(VOLUME), 0), Err(Refusal::Foreign));
        }
        assert_eq!(checked(&guard, &[], Wanted::Write(5), Some(VOLUME), 0), Err(Refusal::Missing));
        let mut widened = good.as_bytes().to_vec();
        widened[5] = Rights::Everything as u8;
        assert_eq!(checked(&guard, &widened, Wanted::Everything, Some(VOLUME), 0), Err(Refusal::Foreign));
    }

    #[test]
    fn what_is_remembered_is_bounded_and_tells_tokens_apart() {
        let (guard, key) = guard();
        for set in 0..3 * REMEMBERED as u64 {
            let token = key.sign(&capability(set, Rights::Read));
            assert_eq!(checked(&guard, token.as_bytes(), Wanted::Read(set), Some(VOLUME), 0), Ok(()));
            assert_eq!(checked(&guard, token.as_bytes(), Wanted::Read(set + 1), Some(VOLUME), 0), Err(Refusal::Other));
        }
        assert_eq!(guard.good.read().unwrap().len(), REMEMBERED);
    }
}
