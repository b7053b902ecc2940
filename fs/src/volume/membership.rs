//! Changes of a volume's label, one after the other. A new label is in effect when m+1 voters of
//! the one before have it, and m+1 of its own: an opening reaches one of them, whichever of the two
//! labels it begins with. Until then, and until the targets know it, it names the voters before it,
//! and who finds it needs enough of both (docs/design/008-one-history.md).

use crate::volume::label::{GENERATIONS_PER_EPOCH, Label};
use crate::volume::places::TARGET_TIMEOUT;
use crate::volume::voters::Voters;
use crate::{Error, Result};
use plan::TargetId;
use std::io;
use std::path::Path;
use volume::{Targets, Wait, ask_all};

/// Whether two lists have the same targets.
pub(crate) fn is_same_set(one: &[TargetId], other: &[TargetId]) -> bool {
    one.len() == other.len() && one.iter().all(|id| other.contains(id))
}

/// Whether so many targets have a new label that it is in effect. A change replaces one voter at
/// most: of a label that is many changes older, fewer may be left.
pub(crate) fn is_known(label: &Label, before: &[TargetId], have: &[TargetId], losses: usize) -> bool {
    let after = label.voters();
    let both = before.iter().filter(|id| after.contains(id)).count();
    let has = |ids: &[TargetId]| ids.iter().filter(|id| have.contains(id)).count();
    has(before) >= both.min(losses + 1) && has(&after) >= after.len().min(losses + 1)
}

/// Why a new label is not in effect.
pub(crate) fn too_few(have: usize, losses: usize, failed: &[(TargetId, io::Error)]) -> Error {
    let why = failed.first().map_or_else(String::new, |(id, why)| format!("target {}: {why}; ", id.0));
    Error::Unavailable(format!(
        "too few targets have the new label: {have}, and it takes {} of those before the change and as many of those \
         after it; {why}try again when more answer",
        losses + 1
    ))
}

/// Completes the change of the label that an earlier opening began: writes it where an older one
/// is. A change of the targets is settled for all voters that it may have had, under the epoch of
/// this opening: its label is newer than all that another one writes which did not see that.
/// Called with the claims of a new opening, so that nobody else changes it. Returns whether the
/// label is another one now.
///
/// # Errors
/// `Unavailable` when another opening changed it after it was read here, or when too few targets
/// have it.
pub(crate) fn complete(
    label: &mut Label,
    older: Option<&Label>,
    targets: &Targets,
    epoch: u64,
    accept_loss: bool,
) -> Result<bool> {
    let voters = Voters::of(label);
    let generations = generations(&label.voters(), voters.needed(), targets);
    if generations.len() < voters.needed() && !accept_loss {
        return Err(Error::Unavailable("too few targets of the volume show their labels; try again".into()));
    }
    let generations: Vec<(TargetId, u64)> =
        generations.into_iter().filter_map(|(id, generation)| Some((id, generation?))).collect();
    if generations.iter().any(|(_, generation)| *generation > label.generation) {
        return Err(Error::Unavailable("the targets of the volume changed while it was opened; try again".into()));
    }
    let with = |wanted: &dyn Fn(u64) -> bool| {
        generations.iter().filter(|(_, generation)| wanted(*generation)).map(|(id, _)| *id).collect::<Vec<_>>()
    };
    if !label.before.is_empty() {
        let own = Label { generation: label.next_generation(epoch), ..label.clone() };
        let (have, failed) = own.write_to(targets, with(&|_| true));
        if !is_known(&own, &own.before, &have, voters.losses) && !accept_loss {
            return Err(too_few(have.len(), voters.losses, &failed));
        }
        *label = Label { generation: own.generation + 1, before: Vec::new(), ..own };
        // Who does not get this counts both once more.
        label.write_to(targets, have);
        return Ok(true);
    }
    let mut have = with(&|generation| generation == label.generation);
    let (written, failed) = label.write_to(targets, with(&|generation| generation < label.generation));
    have.extend(written);
    // A change that was taken back.
    let is_same = |older: &Label| Label { generation: label.generation, ..older.clone() } == *label;
    // A label with other voters was in effect before it was written without `before`. Since then
    // more of them may have changed, so that few of the older ones are left.
    let is_settled =
        |older: &Label| label.generation >= GENERATIONS_PER_EPOCH && !is_same_set(&older.voters(), &label.voters());
    let Some(older) = older.filter(|older| !accept_loss && !is_same(older)) else { return Ok(false) };
    let before = if is_settled(older) { Vec::new() } else { older.voters() };
    match is_known(label, &before, &have, voters.losses) {
        true => Ok(false),
        false => Err(too_few(have.len(), voters.losses, &failed)),
    }
}

/// The generations of the labels on those targets that answer; None where no label is. Each is read
/// on a thread of its own: those of a target may wait for its other answers.
fn generations(ids: &[TargetId], enough: usize, targets: &Targets) -> Vec<(TargetId, Option<u64>)> {
    let there = ids.iter().filter_map(|&id| Some((id, targets.get(id)?)));
    let questions = there
        .map(|(id, target)| move || Label::read(&*target, "").map(|label| (id, label.map(|label| label.generation))));
    let wait = Wait { least: enough, wanted: ids.len(), deadline: TARGET_TIMEOUT };
    ask_all(questions, Result::is_ok, wait).into_iter().flatten().flatten().collect()
}

/// Brings the pointer of a volume directory up to date.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn write_pointer(label: &Label, directory: &Path) -> Result<()> {
    let failed = |why| Error::Invalid(format!("cannot write to {}: {why}", volume::Shown(directory)));
    label.write_pointer(directory).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::label::Member;
    use std::path::PathBuf;

    fn label(ids: impl IntoIterator<Item = u16>) -> Label {
        let member = |id: u16| Member::new(TargetId(id), PathBuf::from(id.to_string()));
        Label::new([7; 16], "test", "rs:4+2", 6 << 20, 5, ids.into_iter().map(member).collect())
    }

    #[test]
    fn a_label_is_in_effect_when_enough_of_both_have_it() {
        let known = |before: &Label, after: &Label, have: &[u16]| {
            is_known(after, &before.voters(), &have.iter().map(|&id| TargetId(id)).collect::<Vec<_>>(), 2)
        };
        let (six, seven) = (label(0..6), label(0..7));
        // The new target does not vote about the label without it.
        assert!(!known(&six, &seven, &[0, 1, 6]) && known(&six, &seven, &[0, 1, 2]));
        // Nor does one that leaves vote about the label with it.
        assert!(!known(&seven, &six, &[0, 1, 6]) && known(&seven, &six, &[3, 4, 5]));
        let (one, two) = (label(0..1), label(0..2));
        assert!(known(&one, &two, &[0, 1]) && !known(&one, &two, &[0]));
        // A label that is many changes older.
        assert!(known(&label(0..6), &label(4..10), &[4, 5, 9]) && known(&label(0..6), &label(6..12), &[6, 7, 8]));
    }
}
