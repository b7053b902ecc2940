//! Witnesses that a target which has lost everything has lost no claim that matters.

use super::super::opening::inventory::ask;
use super::super::options::{MirrorTarget, fenced};
use std::io;
use std::time::Duration;
use volume::target::{ClaimRequest, ClaimState, Epoch};

/// Targets that are asked for their claims after a blank one was claimed.
///
/// The blank one may have had the claim of a later opening, which has counted it and goes on, and
/// refuses this one no more. Such an opening has claims on Q targets, and looks at them once more
/// after it has read their files. If it looked before this target lost its claim, it has had all of
/// them since before the blank one was claimed. So of N-Q+1 others that are asked after that, one
/// has that claim, and shows it; unless it has lost it, too, and is blank. So when N-Q+1 others
/// that are not blank show the claim of this opening, there is no such opening.
#[derive(Clone)]
pub(in crate::journal) struct Witnesses {
    pub places: Vec<MirrorTarget>,
    /// N-Q+1.
    pub need: usize,
    pub epoch: Epoch,
    pub deadline: Duration,
}

impl Witnesses {
    /// Asks them.
    ///
    /// # Errors
    /// `Fenced` when one has a later claim; any other when too few show the claim.
    pub fn see(&self) -> io::Result<()> {
        if self.need == 0 {
            return Ok(());
        }
        let epoch = self.epoch;
        let shown = ask(&self.places, self.need, self.need, self.deadline, move |target| {
            is_ours(&target.claim(&ClaimRequest::Read)?, epoch)
        });
        let (shown, failed): (Vec<_>, Vec<_>) = shown.into_iter().partition(Result::is_ok);
        if shown.len() >= self.need {
            return Ok(());
        }
        let mut failed = failed.into_iter().filter_map(Result::err);
        let fenced = failed.find(|error| fenced(error).is_some());
        let few = || format!("{} other targets show the claim, and {} are needed", shown.len(), self.need);
        Err(fenced.unwrap_or_else(|| io::Error::other(few())))
    }
}

/// Whether a target has the claim of this epoch, and is not blank.
///
/// # Errors
/// `Fenced` when it has a later one; any other when it does not count.
pub(in crate::journal) fn is_ours(state: &ClaimState, epoch: Epoch) -> io::Result<()> {
    state.check(Some(epoch))?;
    if state.blank == 0 { Ok(()) } else { Err(io::Error::other("it has lost what it had")) }
}
