//! Finds the targets that a label names. It opens all at the same time, so that a target that does
//! not answer does not delay the others.

use crate::volume::label::{GENERATIONS_PER_EPOCH, Label, Member};
use crate::volume::membership::{is_known, is_same_set};
use crate::volume::places::{Places, TARGET_TIMEOUT};
use crate::volume::voters::Voters;
use crate::{Error, Result};
use plan::TargetId;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use volume::target::Target;
use volume::{Wait, ask_all};

/// The targets of a volume that were found, and those that were not, with the reason.
pub(crate) struct FoundTargets {
    /// The newest label.
    pub label: Label,
    /// The newest label before it, if the pointer or a target still has that.
    pub older: Option<Label>,
    pub disks: BTreeMap<TargetId, Arc<dyn Target>>,
    pub missing: Vec<(TargetId, String)>,
    /// Targets with an older label than the newest.
    pub outdated: Vec<TargetId>,
    /// The missing targets that do not answer, and may do so later.
    pub silent: Vec<TargetId>,
}

impl FoundTargets {
    /// Fails when no target was found, or, if the caller `insists`, when more voters do not answer
    /// than the code can miss.
    pub fn suffices(&self, insists: bool) -> Result<()> {
        let Self { label, disks, missing, silent, .. } = self;
        let why = missing.first().map_or("it has none", |(_, why)| why);
        if disks.is_empty() {
            let text = format!("no target of the volume {} can be opened: {why}", label.name);
            return Err(if silent.is_empty() { Error::NotFound(text) } else { Error::Unavailable(text) });
        }
        let voters = label.voters();
        if insists && silent.iter().filter(|id| voters.contains(id)).count() > Voters::of(label).losses {
            let (silent, all, name) = (silent.len(), label.members().count(), &label.name);
            return Err(Error::Unavailable(format!(
                "{silent} of {all} targets of the volume {name} do not answer: {why}"
            )));
        }
        Ok(())
    }

    /// Fails when so few targets were found that others may have a newer state.
    pub fn is_newest(&self) -> Result<()> {
        let voters = Voters::of(&self.label);
        let voting = || self.label.members().filter(|member| member.votes);
        let missing: Vec<&Member> = voting().filter(|member| !self.disks.contains_key(&member.id)).collect();
        let there = voters.all - missing.len();
        if there >= voters.needed() {
            return Ok(());
        }
        const NAMED: usize = 4;
        let name = |member: &&Member| format!("target {}: {}", member.id.0, volume::Shown(&member.path));
        let mut named: Vec<String> = missing.iter().take(NAMED).map(name).collect();
        if missing.len() > NAMED {
            named.push(format!("and {} more", missing.len() - NAMED));
        }
        Err(Error::TooFew(format!(
            "{there} of {} {} of the volume {} are there and {} are needed to know its newest state; missing: {}",
            voters.all,
            voters.word(),
            self.label.name,
            voters.needed(),
            named.join(", ")
        )))
    }
}

/// Opens the targets that a label names, and those that newer labels on them name.
pub(crate) fn find(places: &Arc<dyn Places>, pointer: Label) -> Result<FoundTargets> {
    // This many targets may be missing. With more, the late ones are needed, too.
    let spare = ec::parse(&pointer.code).map_or(0, |code| code.shape().m);
    let mut disks: BTreeMap<TargetId, Arc<dyn Target>> = BTreeMap::new();
    let mut missing = HashMap::new();
    let mut labels = vec![pointer.clone()];
    let (mut newest, mut asked) = (pointer, HashSet::new());
    loop {
        // A newer label may name targets that the older one does not know, or other places.
        let news = |member: &&Member| !disks.contains_key(&member.id) && asked.insert((member.id, member.path.clone()));
        let members = newest.members().filter(news).cloned();
        let (voters, others): (Vec<Member>, Vec<Member>) = members.partition(|member| member.votes);
        if voters.is_empty() && others.is_empty() {
            break;
        }
        let volume = &newest.volume;
        let (opened, others_opened) = std::thread::scope(|scope| {
            // A machine may be away with all its targets: half of these show which are late.
            let others_opened = scope.spawn(|| open_all(places, &others, volume, others.len().div_ceil(2)));
            let opened = open_all(places, &voters, volume, spare);
            let late = || others.iter().map(|_| Err(silent())).collect();
            (opened, others_opened.join().unwrap_or_else(|_| late()))
        });
        for (member, opened) in voters.iter().zip(opened).chain(others.iter().zip(others_opened)) {
            match opened {
                Ok((disk, label)) => {
                    labels.push(label);
                    missing.remove(&member.id);
                    disks.insert(member.id, disk);
                }
                // Another process works on the target. Continuing without it would damage it.
                Err(error @ (Error::Conflict(_) | Error::Volume(volume::Error::Conflict { .. }))) => return Err(error),
                Err(error) => _ = missing.insert(member.id, error),
            }
        }
        newest = choose(&labels, spare).unwrap_or(newest);
    }
    let is_old = |label: &&Label| label.generation < newest.generation;
    let outdated = labels.iter().filter(is_old).filter_map(|label| label.target).collect();
    let older = older_than(&newest, &labels).map(|label| Label { target: None, ..label.clone() });
    let members: Vec<TargetId> = newest.members().map(|member| member.id).collect();
    disks.retain(|id, _| members.contains(id));
    let missing: Vec<(TargetId, Error)> =
        members.into_iter().filter_map(|id| Some((id, missing.remove(&id)?))).collect();
    let silent = missing.iter().filter(|(_, why)| matches!(why, Error::Unavailable(_))).map(|(id, _)| *id).collect();
    let missing = missing.into_iter().map(|(id, why)| (id, why.to_string())).collect();
    Ok(FoundTargets { missing, outdated, silent, label: newest, older, disks })
}

/// The newest of these labels. The first one is the pointer: of two of one generation it counts, as
/// it knows the targets that were moved.
fn choose(labels: &[Label], losses: usize) -> Option<Label> {
    let newest = labels.iter().rev().max_by_key(|label| label.generation)?;
    let mut chosen = Label { target: None, ..newest.clone() };
    // A version before did not write which voters were there before. So they count, unless the
    // change is complete.
    if let Some(older) = older_than(newest, labels)
        && newest.generation < GENERATIONS_PER_EPOCH
        && !is_same_set(&older.voters(), &newest.voters())
    {
        let has = labels.iter().filter(|label| label.generation == newest.generation);
        let have: Vec<TargetId> = has.filter_map(|label| label.target).collect();
        if !is_known(newest, &older.voters(), &have, losses) {
            chosen.before = older.voters();
        }
    }
    Some(chosen.with_both())
}

/// The newest label that is older than this one.
fn older_than<'a>(newest: &Label, labels: &'a [Label]) -> Option<&'a Label> {
    labels.iter().filter(|label| label.generation < newest.generation).max_by_key(|label| label.generation)
}

/// Runs [`open_target`] for all of them at the same time. As long as no more than `spare` are
/// missing, a late one counts as missing, too.
fn open_all(
    places: &Arc<dyn Places>,
    members: &[Member],
    volume: &str,
    spare: usize,
) -> Vec<Result<(Arc<dyn Target>, Label)>> {
    let questions = members.iter().cloned().map(|member| {
        let (places, volume) = (places.clone(), volume.to_string());
        move || open_target(&*places, &member.path, &volume, Some(member.id))
    });
    let wait = Wait { least: members.len().saturating_sub(spare), wanted: usize::MAX, deadline: TARGET_TIMEOUT };
    let opened = ask_all(questions, |opened| opened.is_ok(), wait).into_iter();
    opened.map(|opened| opened.unwrap_or_else(|| Err(silent()))).collect()
}

fn silent() -> Error {
    Error::Unavailable("it does not answer".into())
}

/// Opens a directory that is a target of a volume.
pub(crate) fn open_target(
    places: &dyn Places,
    path: &Path,
    volume: &str,
    id: Option<TargetId>,
) -> Result<(Arc<dyn Target>, Label)> {
    let shown = volume::Shown(path).to_string();
    let target = places.open(path)?;
    let label =
        Label::read(&*target, &shown)?.ok_or_else(|| Error::Invalid(format!("{shown} is not a target of a volume")))?;
    if label.volume != volume || id.is_some() && label.target != id {
        return Err(Error::Invalid(format!("{shown} is a target of another volume, or another target of this one")));
    }
    Ok((target, label))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use std::time::{Duration, Instant};
    use volume::target::{Faults, Faulty, Memory};

    /// Targets with labels. Some of them do not answer.
    #[derive(Debug)]
    struct GivenPlaces(Vec<Arc<Faulty>>);

    impl Places for GivenPlaces {
        fn format(&self, _: &Path) -> Result<Arc<dyn Target>> {
            unreachable!("nobody makes any")
        }

        fn open(&self, place: &Path) -> Result<Arc<dyn Target>> {
            let number: usize = place.to_str().and_then(|text| text.parse().ok()).expect("a number");
            Ok(self.0[number].clone())
        }

        fn full(&self, place: &Path) -> Result<PathBuf> {
            Ok(place.into())
        }
    }

    fn label(targets: Vec<Member>) -> Label {
        Label::new([7; 16], "test", "rs:4+2", 6 << 20, 5, targets)
    }

    #[test]
    fn targets_that_do_not_answer_are_waited_for_together_and_not_for_long() {
        let member = |number: u16| Member::new(TargetId(number), PathBuf::from(number.to_string()));
        let label = label((0..6).map(member).collect());
        let disks: Vec<Arc<Faulty>> = (0..6).map(|_| Arc::new(Faulty::new(Arc::new(Memory::default())))).collect();
        for (disk, member) in disks.iter().zip(&label.targets) {
            label.write(&**disk, member.id).unwrap();
        }
        for number in [1, 4] {
            disks[number].set(Faults { delay: Duration::from_secs(30), ..Faults::default() });
        }
        let places: Arc<dyn Places> = Arc::new(GivenPlaces(disks));
        let begun = Instant::now();
        let found = find(&places, label).unwrap();
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        let missing: Vec<u16> = found.missing.iter().map(|(id, _)| id.0).collect();
        assert_eq!((found.disks.len(), &missing[..], found.silent.len()), (4, &[1, 4][..], 2));
        assert!(found.suffices(true).is_ok() && found.suffices(false).is_ok());
    }

    #[test]
    fn what_does_not_answer_is_waited_for_and_what_is_wrong_is_not() {
        let member = |number: u16| Member::new(TargetId(number), PathBuf::from(number.to_string()));
        let found = |there: u16, silent: u16| FoundTargets {
            label: label((0..6).map(member).collect()),
            older: None,
            disks: (0..there)
                .map(|number| (TargetId(number), Arc::new(Memory::default()) as Arc<dyn Target>))
                .collect(),
            missing: (there..6).map(|number| (TargetId(number), "why".into())).collect(),
            outdated: Vec::new(),
            silent: (6 - silent..6).map(TargetId).collect(),
        };
        let waits = |found: FoundTargets, insists| match found.suffices(insists) {
            Ok(()) => None,
            Err(error) => Some(matches!(error, Error::Unavailable(_))),
        };
        assert_eq!((waits(found(4, 2), true), waits(found(3, 2), true)), (None, None));
        assert_eq!((waits(found(3, 3), true), waits(found(3, 3), false)), (Some(true), None));
        assert_eq!((waits(found(0, 1), false), waits(found(0, 0), true)), (Some(true), Some(false)));
    }
}
