//! Bystanders: targets of the volume without a vote. They hold no journal, and no opening needs
//! their claims. They are claimed all the same, once the voters have granted the claim: a target
//! refuses what is done without it, so an opening that has ended removes nothing there either.

use super::super::files::same;
use super::super::options::{MirrorTarget, fenced};
use super::super::shared::Shared;
use super::claims::claim_reserved;
use crate::kv::KvError;

/// Sets the bystanders, and claims those that are new. One that does not answer, or on which the
/// lease of an earlier holder still runs, is claimed when the claim is renewed.
///
/// # Errors
/// `Fenced` when another opening has taken over.
pub(in crate::journal) fn set_bystanders(shared: &Shared, targets: Vec<MirrorTarget>) -> Result<(), KvError> {
    let new: Vec<MirrorTarget> = {
        let mut files = shared.files();
        let known = std::mem::replace(&mut files.bystanders, targets);
        files.bystanders.iter().filter(|new| !known.iter().any(|old| same(old, new))).cloned().collect()
    };
    // A machine may be away with all its targets: the others are enough to know what is late.
    let answers = claim_reserved(shared, &new, new.len() / 2);
    match answers.iter().find_map(|answer| fenced(answer.as_ref().err()?)) {
        Some(fenced) => {
            shared.fail(&fenced);
            Err(fenced)
        }
        None => Ok(()),
    }
}
