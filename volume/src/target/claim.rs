//! Claims: which opening of the volume may change it on a target. A target takes a claim with a
//! higher epoch only, and refuses the changes of all others. This file has the decisions, the same
//! for memory, directories and stores; it does no I/O.

use super::TargetFile;
use crate::format::{Claim, ClaimRecord, Epoch, MAX_LEASE};
use plan::SetId;
use std::fmt;
use std::io::{Error, ErrorKind, Result};
use std::time::Duration;

/// What to do about the claim of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimRequest {
    /// Tells which claim the target holds.
    Read,
    /// Makes a claim, or renews it if its epoch is the one that the target holds. The lease runs
    /// from now on, for at most [`MAX_LEASE`].
    Take {
        /// The claim.
        claim: Claim,
        /// How long no other holder gets the target, unless this one renews it.
        lease: Duration,
        /// A mark for a target without a claim, which is new or has lost what it had: it is blank
        /// until [`ClaimRequest::Whole`] names that mark. 0 if it needs nothing: the volume is new.
        /// With [`RENEWAL`], a target without a claim gets none.
        blank: u32,
    },
    /// A blank target has got the whole state of the volume, or needs none of it.
    Whole {
        /// The epoch of the claim that it has.
        epoch: Epoch,
        /// The mark that it has: if it has lost everything once more, it stays blank.
        blank: u32,
    },
    /// Gives the claim of this epoch back. The target remembers the epoch.
    Release(Epoch),
}

/// In the place of a mark: a target without a claim refuses the request. Somebody who believes that
/// it has something must not claim it, or would go on writing behind what it has lost.
pub const RENEWAL: u32 = u32::MAX;

/// The claim that a target holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimState {
    /// The claim; None if nobody ever claimed the target.
    pub claim: Option<Claim>,
    /// How long its holder keeps others away.
    pub lease: Lease,
    /// The mark of a blank target, which lacks what it once may have had; 0 if it is not blank.
    pub blank: u32,
}

impl ClaimState {
    /// The claim, unless the target is blank: then it says nothing of what the target has.
    pub fn proof(&self) -> Option<&Claim> {
        self.claim.as_ref().filter(|_| self.blank == 0)
    }
}

/// The state of a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lease {
    /// It ran out, or there never was one: a higher epoch gets the target.
    #[default]
    Over,
    /// The holder gave the claim back.
    Released,
    /// It runs for this long.
    Runs(Duration),
    /// It runs for as long as the process of the holder, or that of the store, lives.
    Locked,
}

impl Lease {
    /// Whether another holder must wait.
    pub fn runs(self) -> bool {
        matches!(self, Self::Runs(_) | Self::Locked)
    }
}

/// Why a target refused a claim or a change. It is inside an [`Error`]; see [`Refusal::of`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Another opening has the target: the epoch is over. The claim is that of the holder; the own
    /// one if it was released.
    Fenced(Box<Claim>),
    /// The lease of another holder still runs. This is not a fence: the holder may be dead. The
    /// claim is None if it is not known.
    Held {
        /// The holder's claim.
        claim: Option<Box<Claim>>,
        /// How long it runs; None if for as long as a process lives.
        remaining: Option<Duration>,
    },
    /// The target missed the opening: it holds a lower epoch, or none. Claim it and go on.
    Unclaimed(Option<Epoch>),
}

impl Refusal {
    /// The refusal in an error, if it is one.
    pub fn of(error: &Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }

    /// The claim of the opening that has the target, if the error is `Fenced`.
    pub fn fenced(error: &Error) -> Option<&Claim> {
        match Self::of(error)? {
            Self::Fenced(claim) => Some(claim),
            _ => None,
        }
    }

    /// Whether the error is `Unclaimed`.
    pub fn is_unclaimed(error: &Error) -> bool {
        matches!(Self::of(error), Some(Self::Unclaimed(_)))
    }

    /// Whether the error is `Held`.
    pub fn is_held(error: &Error) -> bool {
        matches!(Self::of(error), Some(Self::Held { .. }))
    }
}

/// The holder of the claim, for messages.
struct Who<'a>(&'a Claim);

impl fmt::Display for Who<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Claim { holder, epoch, .. } = self.0;
        let name = if holder.name.is_empty() { "an unnamed holder" } else { &holder.name };
        write!(f, "{}", name.escape_debug())?;
        if !holder.address.is_empty() {
            write!(f, " at {}", holder.address.escape_debug())?;
        }
        write!(f, " (epoch {epoch})")
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fenced(claim) => write!(f, "fenced: the target belongs to {}", Who(claim)),
            Self::Held { claim, remaining } => {
                f.write_str("the target is held by ")?;
                match claim {
                    Some(claim) => write!(f, "{}", Who(claim))?,
                    None => f.write_str("another process")?,
                }
                remaining.map_or(Ok(()), |left| write!(f, " for another {} ms", left.as_millis()))
            }
            Self::Unclaimed(Some(epoch)) => write!(f, "the target missed this opening: it has epoch {epoch}"),
            Self::Unclaimed(None) => f.write_str("the target missed this opening: it has no claim"),
        }
    }
}

impl std::error::Error for Refusal {}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        let kind = match refusal {
            Refusal::Fenced(_) => ErrorKind::PermissionDenied,
            Refusal::Held { .. } => ErrorKind::ResourceBusy,
            Refusal::Unclaimed(_) => ErrorKind::Other,
        };
        Self::new(kind, refusal)
    }
}

/// The changes of a target that need a claim: those of what belongs to the volume as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimedChange {
    /// Writing, syncing, reserving or trimming.
    Write,
    /// Renaming, removing or punching.
    Remove,
}

impl ClaimedChange {
    /// Whether this change of a file needs the claim. Clients append to chunks with a permission of
    /// their own, and stores write chunks that are being rebuilt. Set 0 is that of probes, which
    /// clients remove.
    pub fn needs_claim(self, file: TargetFile) -> bool {
        match file {
            TargetFile::Label | TargetFile::NewLabel | TargetFile::Journal { .. } | TargetFile::Snapshot { .. } => true,
            TargetFile::NewChunk { set: SetId(0), .. } => false,
            TargetFile::Chunk { .. } | TargetFile::NewChunk { .. } => self == Self::Remove,
        }
    }
}

/// The claim of one target: its durable record, and the lease, which is in memory.
#[derive(Clone, Debug, Default)]
pub struct Seat {
    record: Option<ClaimRecord>,
    /// When the lease ends; zero if there is none.
    until: Duration,
}

impl Seat {
    /// The claim of a target that starts at `now` and finds this record. The promised lease starts
    /// again, because it is not known how much of it has run.
    pub fn find(record: Option<ClaimRecord>, now: Duration) -> Self {
        let lease = record.as_ref().filter(|record| !record.released).map_or(Duration::ZERO, |record| record.lease);
        Self { record, until: if lease.is_zero() { Duration::ZERO } else { now + lease } }
    }

    /// The record.
    pub fn record(&self) -> Option<&ClaimRecord> {
        self.record.as_ref()
    }

    /// What the target answers.
    pub fn state(&self, now: Duration) -> ClaimState {
        let Some(record) = &self.record else { return ClaimState::default() };
        let lease = match self.until.saturating_sub(now) {
            _ if record.released => Lease::Released,
            Duration::ZERO => Lease::Over,
            left => Lease::Runs(left),
        };
        ClaimState { claim: Some(record.claim.clone()), lease, blank: record.blank }
    }

    /// Decides about a request. Returns the record that must be durable before [`Seat::accept`],
    /// or None if that is the present one. With `survives`, the lease survives a restart of the
    /// target; otherwise it ends with the process.
    ///
    /// # Errors
    /// A [`Refusal`]; `InvalidInput` if the claim is one of another volume or is too long.
    pub fn decide(&self, ask: &ClaimRequest, now: Duration, survives: bool) -> Result<Option<ClaimRecord>> {
        let sequence = self.record.as_ref().map_or(0, |record| record.sequence) + 1;
        match ask {
            ClaimRequest::Read => Ok(None),
            ClaimRequest::Take { claim, lease, blank } => {
                let invalid = |why: &str| Error::new(ErrorKind::InvalidInput, why);
                claim.check().map_err(|why| invalid(&why.to_string()))?;
                if claim.epoch.number == 0 {
                    return Err(invalid("an epoch has a number above 0"));
                }
                let lease = if survives { millis((*lease).min(MAX_LEASE)) } else { Duration::ZERO };
                let mut new = ClaimRecord { sequence, claim: claim.clone(), lease, released: false, blank: *blank };
                let Some(held) = &self.record else {
                    return if *blank == RENEWAL { Err(Refusal::Unclaimed(None).into()) } else { Ok(Some(new)) };
                };
                // A claim brings nothing back.
                new.blank = held.blank;
                if held.claim.volume != claim.volume {
                    return Err(invalid("the target belongs to another volume"));
                }
                let fenced = || Err(Refusal::Fenced(Box::new(held.claim.clone())).into());
                if held.claim.epoch == claim.epoch {
                    if held.released {
                        return fenced();
                    }
                    // Only the longest promise counts after a restart.
                    new.lease = new.lease.max(held.lease);
                    return Ok(((&new.claim, new.lease) != (&held.claim, held.lease)).then_some(new));
                }
                if claim.epoch.number <= held.claim.epoch.number {
                    return fenced();
                }
                match self.state(now).lease {
                    Lease::Runs(left) if held.claim.holder.id != claim.holder.id => {
                        Err(Refusal::Held { claim: Some(Box::new(held.claim.clone())), remaining: Some(left) }.into())
                    }
                    _ => Ok(Some(new)),
                }
            }
            ClaimRequest::Whole { epoch, blank } => {
                let Some(held) = self.record.as_ref().filter(|held| held.claim.epoch == *epoch && !held.released)
                else {
                    return Err(self.refuse(*epoch).into());
                };
                match held.blank {
                    0 => Ok(None),
                    mark if mark == *blank => Ok(Some(ClaimRecord { sequence, blank: 0, ..held.clone() })),
                    _ => Err(Error::other("the target has lost what it had")),
                }
            }
            ClaimRequest::Release(epoch) => {
                let Some(held) = self.record.as_ref().filter(|held| held.claim.epoch == *epoch) else {
                    return Err(self.refuse(*epoch).into());
                };
                let new = ClaimRecord { sequence, released: true, ..held.clone() };
                Ok((!held.released).then_some(new))
            }
        }
    }

    /// Applies a request that `decide` granted. `record` is what it returned, durable by now.
    pub fn accept(&mut self, ask: &ClaimRequest, record: Option<ClaimRecord>, now: Duration) {
        let epoch = |record: &ClaimRecord| record.claim.epoch;
        let another = record.as_ref().map(epoch) != self.record.as_ref().map(epoch);
        match ask {
            ClaimRequest::Read | ClaimRequest::Whole { .. } => {}
            ClaimRequest::Take { lease, .. } => {
                let until = now + (*lease).min(MAX_LEASE);
                // A renewal that arrives late shortens nothing.
                self.until = if record.is_some() && another { until } else { self.until.max(until) };
            }
            ClaimRequest::Release(_) => self.until = Duration::ZERO,
        }
        self.record = record.or_else(|| self.record.take());
    }

    /// Whether an operation of this epoch may change the volume. None is an operation of a caller
    /// without a claim, which may change an unclaimed volume.
    ///
    /// # Errors
    /// `Fenced` or `Unclaimed`.
    pub fn check(&self, epoch: Option<Epoch>) -> std::result::Result<(), Refusal> {
        check(self.record.as_ref().map(|held| (&held.claim, held.released)), epoch)
    }

    /// Why an epoch that is not the one of this target, or was released, is refused.
    fn refuse(&self, epoch: Epoch) -> Refusal {
        refuse(self.record.as_ref().map(|held| &held.claim), epoch)
    }
}

impl ClaimState {
    /// As [`Seat::check`].
    ///
    /// # Errors
    /// `Fenced` or `Unclaimed`.
    pub fn check(&self, epoch: Option<Epoch>) -> std::result::Result<(), Refusal> {
        check(self.claim.as_ref().map(|claim| (claim, self.lease == Lease::Released)), epoch)
    }
}

fn check(held: Option<(&Claim, bool)>, epoch: Option<Epoch>) -> std::result::Result<(), Refusal> {
    match (held, epoch) {
        (None, None) => Ok(()),
        (Some((claim, false)), Some(epoch)) if claim.epoch == epoch => Ok(()),
        (held, Some(epoch)) => Err(refuse(held.map(|(claim, _)| claim), epoch)),
        (Some((claim, _)), None) => Err(Refusal::Fenced(Box::new(claim.clone()))),
    }
}

fn refuse(held: Option<&Claim>, epoch: Epoch) -> Refusal {
    match held {
        Some(held) if epoch.number <= held.epoch.number => Refusal::Fenced(Box::new(held.clone())),
        held => Refusal::Unclaimed(held.map(|held| held.epoch)),
    }
}

/// A duration in whole milliseconds, rounded up: a record has no finer ones.
fn millis(duration: Duration) -> Duration {
    Duration::from_millis(duration.as_nanos().div_ceil(1_000_000) as u64)
}
