//! Changes of a volume's label, one after the other. A new label is in effect when m+1 targets of
//! the one before have it, and m+1 of its own: an opening reaches one of them, whichever of the two
//! labels it begins with (docs/design/008-one-history.md).

use crate::volume::label::Label;
use crate::{Error, Result};
use plan::TargetId;
use std::io;
use std::path::Path;
use volume::Targets;

/// Whether so many targets have a new label that it is in effect. A change replaces one target at
/// most: of a label that is many changes older, fewer may be left.
pub(crate) fn is_known(label: &Label, before: &Label, have: &[TargetId], losses: usize) -> bool {
    let ids = |label: &Label| label.members().map(|member| member.id).collect::<Vec<_>>();
    let (before, after) = (ids(before), ids(label));
    let both = before.iter().filter(|id| after.contains(id)).count();
    let has = |ids: &[TargetId]| ids.iter().filter(|id| have.contains(id)).count();
    has(&before) >= both.min(losses + 1) && has(&after) >= after.len().min(losses + 1)
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
/// is. Called with the claims of a new opening, so that nobody else changes it.
///
/// # Errors
/// `Unavailable` when another opening changed it after it was read here, or when too few targets
/// have it.
pub(crate) fn complete(label: &Label, older: Option<&Label>, targets: &Targets, losses: usize) -> Result<()> {
    let ids = label.members().map(|member| member.id).filter(|&id| targets.is_usable(id));
    let read = targets.each(ids.map(|id| (usize::from(id.0), id)), |_, target| {
        Label::read(target, "").map_err(|why| io::Error::other(why.to_string()))
    });
    let generations: Vec<(TargetId, u64)> =
        read.into_iter().filter_map(|(_, id, read)| Some((id, read.ok()??.generation))).collect();
    if generations.iter().any(|(_, generation)| *generation > label.generation) {
        return Err(Error::Unavailable("the targets of the volume changed while it was opened; try again".into()));
    }
    let with = |wanted: &dyn Fn(u64) -> bool| {
        generations.iter().filter(|(_, generation)| wanted(*generation)).map(|(id, _)| *id).collect::<Vec<_>>()
    };
    let mut have = with(&|generation| generation == label.generation);
    let (written, failed) = label.write_to(targets, with(&|generation| generation < label.generation));
    have.extend(written);
    // A change that was taken back.
    let is_same = |older: &Label| Label { generation: label.generation, ..older.clone() } == *label;
    match older {
        Some(older) if !is_same(older) && !is_known(label, older, &have, losses) => {
            Err(too_few(have.len(), losses, &failed))
        }
        _ => Ok(()),
    }
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
            is_known(after, before, &have.iter().map(|&id| TargetId(id)).collect::<Vec<_>>(), 2)
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
