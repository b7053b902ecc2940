//! Recreates a volume directory from the targets that are left: without a loss where enough of
//! them are, or with one that is accepted and remembered.

use crate::volume::label::{Label, Member, POINTER, Role};
use crate::volume::places::Places;
use crate::volume::voters::Voters;
use crate::{Error, FileSystem, OpenOptions, Result};
use meta::journal::{JournalLimits, Survey};
use plan::{TargetId, TxId};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use volume::target::{Claim, ClaimRequest};

/// What is left of a volume.
#[derive(Clone, Debug)]
pub struct Remains {
    /// The newest label that was found.
    pub label: Label,
    /// The targets that were given, by their numbers.
    pub there: Vec<(TargetId, PathBuf)>,
    /// The newest claim that they have.
    pub claim: Option<Claim>,
}

/// What targets know of the transactions that there were.
#[derive(Clone, Debug)]
pub struct Known {
    /// What their journals tell.
    pub survey: Survey,
    /// A newer opening than those of which there is something: its number, and who it was.
    pub later: Option<(u64, String)>,
}

impl Known {
    /// The transactions that were durable, and cannot be read.
    pub fn missing(&self) -> Option<RangeInclusive<TxId>> {
        let Survey { readable, durable, .. } = self.survey;
        let missing = readable.unwrap_or_default().next()..=durable;
        (!missing.is_empty()).then_some(missing)
    }
}

impl Remains {
    /// Looks at these targets; changes nothing.
    ///
    /// # Errors
    /// If one of them is not a target, or they belong to different volumes.
    pub fn of(targets: &[PathBuf], places: &dyn Places) -> Result<Self> {
        let (mut newest, mut there, mut claim): (Option<Label>, Vec<_>, Option<Claim>) = (None, Vec::new(), None);
        for path in targets {
            let path = places.full(path)?;
            let shown = volume::Shown(&path).to_string();
            let target = places.open(&path)?;
            let Some(label) = Label::read(&*target, &shown)? else {
                return Err(Error::Invalid(format!("{shown} is not a target of a volume")));
            };
            if newest.as_ref().is_some_and(|newest| newest.volume != label.volume) {
                return Err(Error::Invalid(format!("{shown} is a target of another volume than the first")));
            }
            // A store of an older version knows no claims.
            let held = target.claim(&ClaimRequest::Read).ok().and_then(|state| state.claim);
            let number = |claim: &Option<Claim>| claim.as_ref().map_or(0, |claim| claim.epoch.number);
            if number(&held) > number(&claim) {
                claim = held;
            }
            there.extend(label.target.map(|id| (id, path)));
            if newest.as_ref().is_none_or(|newest| newest.generation < label.generation) {
                newest = Some(label);
            }
        }
        let label = newest.ok_or_else(|| Error::Invalid("no target was given".into()))?;
        there.retain(|(id, _)| label.members().any(|member| member.id == *id));
        there.sort_unstable();
        there.dedup_by_key(|(id, _)| *id);
        Ok(Self { label, there, claim })
    }

    /// The targets of the volume that were not given.
    pub fn missing(&self) -> impl Iterator<Item = &Member> {
        self.label.members().filter(|member| !self.has(member.id))
    }

    fn has(&self, id: TargetId) -> bool {
        self.there.iter().any(|(there, _)| *there == id)
    }

    /// Whether they are enough to know the newest state.
    pub fn is_enough(&self) -> bool {
        let voters = self.label.voters();
        voters.iter().filter(|id| self.has(**id)).count() >= Voters::of(&self.label).needed()
    }

    /// What these targets know of the transactions that there were; changes nothing.
    ///
    /// # Errors
    /// If one of them cannot be opened any more.
    pub fn known(&self, places: &dyn Places) -> Result<Known> {
        let there = self.there.iter().map(|(id, path)| Ok((*id, places.open(path)?)));
        let there = there.collect::<Result<Vec<_>>>()?;
        let survey = Survey::of(&self.label.id()?, &there, JournalLimits::default().deadline);
        let claimed = self.claim.as_ref();
        let later = claimed.filter(|claim| survey.epoch.is_none_or(|epoch| epoch < claim.epoch.number));
        Ok(Known { later: later.map(|claim| (claim.epoch.number, claim.holder.name.clone())), survey })
    }

    /// How many targets the newest journal was on, and how many of them are there, as far as the
    /// claims tell.
    pub fn mirrors(&self) -> Option<(usize, usize)> {
        let mirrors = &self.claim.as_ref()?.mirrors;
        (!mirrors.is_empty()).then(|| (mirrors.len(), mirrors.iter().filter(|id| self.has(**id)).count()))
    }
}

/// Recreates a volume directory from the targets that are left.
///
/// # Errors
/// When they belong to different volumes or to none, or the directory already holds a volume;
/// `TooFew` when others may have a newer state.
pub fn reopen(directory: &Path, targets: &[PathBuf], places: Arc<dyn Places>) -> Result<Label> {
    let remains = begin(directory, targets, &*places)?;
    if !remains.is_enough() {
        let (voters, label) = (Voters::of(&remains.label), &remains.label);
        return Err(Error::TooFew(format!(
            "{} of {} {} of the volume {} were given and {} are needed to know its newest state",
            label.voters().iter().filter(|id| remains.has(**id)).count(),
            voters.all,
            voters.word(),
            label.name,
            voters.needed()
        )));
    }
    make(directory, remains, places, false)
}

/// As [`reopen`] with too few targets: those that are missing are given up for good, with
/// everything that only they have. The label remembers that.
///
/// # Errors
/// Those of [`reopen`].
pub fn reopen_with_loss(directory: &Path, targets: &[PathBuf], places: Arc<dyn Places>) -> Result<Label> {
    let mut remains = begin(directory, targets, &*places)?;
    let lost: Vec<TargetId> = remains.missing().map(|member| member.id).collect();
    let label = &mut remains.label;
    label.accept_loss(lost.clone());
    label.targets.iter_mut().filter(|member| lost.contains(&member.id)).for_each(|member| member.role = Role::Removed);
    // Those that voted may be gone.
    label.set_voters(&label.members().map(|member| member.id).collect());
    make(directory, remains, places, true)
}

fn begin(directory: &Path, targets: &[PathBuf], places: &dyn Places) -> Result<Remains> {
    if directory.join(POINTER).exists() {
        return Err(Error::Conflict(format!("{} is a volume already", volume::Shown(directory))));
    }
    Remains::of(targets, places)
}

fn make(directory: &Path, remains: Remains, places: Arc<dyn Places>, accept_loss: bool) -> Result<Label> {
    let Remains { mut label, there, .. } = remains;
    for member in &mut label.targets {
        if let Some((_, path)) = there.iter().find(|(id, _)| *id == member.id) {
            member.path.clone_from(path);
        }
    }
    volume::target::make_private(directory)
        .and_then(|()| label.write_pointer(directory))
        .map_err(|why| Error::Invalid(format!("cannot write to {}: {why}", volume::Shown(directory))))?;
    // Open the volume to make sure that the new directory works.
    match FileSystem::open_volume(directory, OpenOptions { places, accept_loss, ..OpenOptions::default() }) {
        Ok(fs) => {
            fs.relabel(|_| {})?;
            fs.close_volume()?;
            Ok(label)
        }
        Err(error) => {
            let _ = std::fs::remove_file(directory.join(POINTER));
            Err(error)
        }
    }
}
