//! Where the targets of a volume are in a torus: a volume of which the label says so has a torus,
//! and its targets have coordinates in it. [`plan::topology::places`] says what follows.

use crate::volume::label::{Label, Member};
use crate::volume::places;
use crate::{Error, Result};
use plan::TargetId;
use plan::topology::places::assign;
use plan::topology::{Coordinates, Placed, Places, Torus};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// A torus that a volume is to have, and where in it some of its servers are; the others get the
/// next places that are free.
#[derive(Clone, Debug)]
pub struct InTorus {
    /// Its sizes.
    pub torus: Torus,
    /// The places of some servers, each by a target of it.
    pub at: Vec<(PathBuf, Coordinates)>,
}

impl Member {
    /// What it fails together with: the domain that was given, or its place in the torus.
    pub fn domain(&self) -> Option<plan::Domain> {
        self.domain.clone().or_else(|| self.at.as_ref().map(Coordinates::domain))
    }
}

impl Label {
    /// The domains of the members that have one.
    pub(crate) fn domains(&self) -> Vec<(PathBuf, plan::Domain)> {
        self.members().filter_map(|member| Some((member.path.clone(), member.domain()?))).collect()
    }

    /// Where the targets are; None without a torus.
    pub fn places(&self) -> Option<Places> {
        let torus = self.torus.clone()?;
        let of = self.members().filter_map(|member| Some((member.id, member.at.clone()?)));
        let of = of.filter(|(_, at)| torus.has(at)).collect();
        Some(Places { torus, of })
    }

    /// Checks where a process says that it is.
    ///
    /// # Errors
    /// When the torus has no such place, or the volume has no torus.
    pub(crate) fn place_of_client(&self, at: Option<Coordinates>) -> Result<Option<Coordinates>> {
        let Some(at) = at else { return Ok(None) };
        match &self.torus {
            Some(torus) if torus.has(&at) => Ok(Some(at)),
            Some(torus) => Err(Error::Invalid(format!("{at} is not a place in the volume's torus, {torus}"))),
            None => Err(Error::Invalid(format!("{at} is not a place: the volume has no torus"))),
        }
    }

    /// The members as a torus sees them. One that another replaces has left its place to it.
    fn placed(&self, ways: &dyn places::Places) -> Vec<Placed> {
        let leaves = |id: TargetId| self.members().any(|other| other.replaces == Some(id));
        let stays = self.members().filter(|member| !leaves(member.id));
        let placed = |member: &Member| Placed {
            id: member.id,
            server: ways.server(&member.path).unwrap_or_else(|| volume::Shown(&member.path).to_string()),
            at: member.at.clone(),
        };
        stays.map(placed).collect()
    }

    /// Sets the torus and the places of some servers. Without `torus`, only the places change.
    /// Other servers keep their places, as far as the torus has them.
    ///
    /// # Errors
    /// When it has too few places, or a place cannot be.
    pub(crate) fn set_torus(
        &mut self,
        torus: Option<Torus>,
        at: &[(PathBuf, Coordinates)],
        ways: &dyn places::Places,
    ) -> Result<()> {
        let Some(torus) = torus.or_else(|| self.torus.clone()) else {
            return Err(Error::Invalid("the volume has no torus; give it one, such as --torus 8,8,16".into()));
        };
        let mut placed = self.placed(ways);
        placed.iter_mut().for_each(|one| one.at = one.at.take().filter(|at| torus.has(at)));
        let mut given: BTreeMap<TargetId, Coordinates> = BTreeMap::new();
        for (path, place) in at {
            let full = ways.full(path)?;
            let Some(member) = self.members().find(|member| member.path == full || member.path == *path) else {
                let shown = volume::Shown(path);
                return Err(Error::Invalid(format!("a place is given for {shown}, which is not among the targets")));
            };
            given.insert(member.id, place.clone());
        }
        let is_given = |one: &&Placed| given.contains_key(&one.id);
        let moved: BTreeSet<String> = placed.iter().filter(is_given).map(|one| one.server.clone()).collect();
        for one in placed.iter_mut().filter(|one| moved.contains(&one.server)) {
            one.at = given.get(&one.id).cloned();
        }
        let Places { torus, of } = assign(torus, &placed).map_err(|why| Error::Invalid(why.to_string()))?;
        for member in &mut self.targets {
            member.at = of.get(&member.id).cloned().or_else(|| member.at.take().filter(|at| torus.has(at)));
        }
        self.torus = Some(torus);
        Ok(())
    }

    /// Takes the torus away.
    pub(crate) fn forget_torus(&mut self) {
        self.torus = None;
        self.targets.iter_mut().for_each(|member| member.at = None);
    }

    /// The place of a target that is about to join: the one that is given, that of its server, that
    /// of the target that it replaces, or the next one that is free. None without a torus.
    ///
    /// # Errors
    /// When it cannot be there, or no place is free.
    pub(crate) fn place_for(
        &self,
        new: &Member,
        given: Option<&Coordinates>,
        ways: &dyn places::Places,
    ) -> Result<Option<Coordinates>> {
        let with = |at: Option<&Coordinates>| {
            let mut label = self.clone();
            label.targets.push(new.clone());
            let at: Vec<(PathBuf, Coordinates)> = at.map(|at| (new.path.clone(), at.clone())).into_iter().collect();
            label.set_torus(None, &at, ways)?;
            Ok(label.targets.pop().and_then(|member| member.at))
        };
        if given.is_some() || self.torus.is_none() {
            return given.map_or(Ok(None), |_| with(given));
        }
        let replaced = self.members().find(|member| Some(member.id) == new.replaces);
        match replaced.and_then(|member| member.at.as_ref()) {
            Some(at) => with(Some(at)).or_else(|_| with(None)),
            None => with(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::label::Role;
    use crate::volume::places::Directories;

    fn label(count: u16) -> Label {
        let member = |id| Member::new(TargetId(id), PathBuf::from(format!("/d{id}")));
        Label::new([7; 16], "v", "rs:2+1", 1 << 20, 3, (0..count).map(member).collect())
    }

    fn at(label: &Label) -> Vec<String> {
        let shown = |member: &Member| member.at.as_ref().map_or_else(|| "-".into(), ToString::to_string);
        label.targets.iter().map(shown).collect()
    }

    fn set(label: &mut Label, torus: Option<&str>, at: &[(&str, &str)]) -> std::result::Result<(), String> {
        let torus = torus.map(|sizes| sizes.parse().unwrap());
        let at: Vec<_> = at.iter().map(|(path, place)| (PathBuf::from(path), place.parse().unwrap())).collect();
        label.set_torus(torus, &at, &Directories).map_err(|why| why.to_string())
    }

    #[test]
    fn servers_keep_their_places() {
        let mut label = label(3);
        assert!(set(&mut label, None, &[]).unwrap_err().contains("--torus 8,8,16"));
        set(&mut label, Some("2,2"), &[("/d1", "0,0")]).unwrap();
        assert_eq!(at(&label), ["0,1", "0,0", "1,0"]);
        assert_eq!(label.members().next().unwrap().domain().unwrap().to_string(), "0/1");
        // In a larger one, servers keep their places.
        set(&mut label, Some("2,4"), &[("/d2", "1,3")]).unwrap();
        assert_eq!(at(&label), ["0,1", "0,0", "1,3"]);
        let places = label.places().unwrap();
        assert_eq!((places.between(TargetId(1), TargetId(2)), places.of.len()), (Some(2), 3));
        let why = set(&mut label, None, &[("/d2", "0,0")]).unwrap_err();
        assert_eq!(why, "/d1 and /d2 cannot both be at 0,0");
        assert!(set(&mut label, Some("2"), &[]).unwrap_err().contains("2 places, and there are 3 servers"));
        assert!(set(&mut label, None, &[("/d9", "0,0")]).unwrap_err().contains("/d9, which is not among"));
        assert_eq!(at(&label), ["0,1", "0,0", "1,3"], "what fails changes nothing");
        // It is in the label, and a label without it is read.
        assert_eq!(Label::from_json(&label.to_json()).unwrap(), label);
        label.forget_torus();
        assert!(label.places().is_none() && !label.to_json().contains("torus"));
        assert_eq!(Label::from_json(&label.to_json()).unwrap(), label);
    }

    #[test]
    fn a_new_target_gets_a_place() {
        let mut label = label(3);
        let new = Member::new(TargetId(3), "/d3".into());
        let place = |label: &Label, new: &Member, given: Option<&str>| {
            let given: Option<Coordinates> = given.map(|at| at.parse().unwrap());
            let found = label.place_for(new, given.as_ref(), &Directories).map_err(|why| why.to_string())?;
            Ok::<_, String>(found.map(|at| at.to_string()))
        };
        assert_eq!(place(&label, &new, None), Ok(None));
        assert!(place(&label, &new, Some("0,0")).unwrap_err().contains("has no torus"));
        set(&mut label, Some("2,2"), &[("/d0", "1,1")]).unwrap();
        assert_eq!(place(&label, &new, None), Ok(Some("1,0".into())));
        assert!(place(&label, &new, Some("1,1")).unwrap_err().contains("/d0 and /d3 cannot both be at 1,1"));
        // One that replaces another has its place, also while that is being emptied.
        let replaces = Member { replaces: Some(TargetId(0)), ..new.clone() };
        assert_eq!(place(&label, &replaces, None), Ok(Some("1,1".into())));
        label.targets.push(Member { at: "1,1".parse().ok(), ..replaces });
        label.targets[0].role = Role::Draining;
        let next = Member::new(TargetId(4), "/d4".into());
        assert_eq!(place(&label, &next, None), Ok(Some("1,0".into())));
        label.targets.push(Member { at: "1,0".parse().ok(), ..next });
        let last = Member::new(TargetId(5), "/d5".into());
        assert!(place(&label, &last, None).unwrap_err().contains("4 places, and there are 5 servers"));
        label.targets[1].role = Role::Removed;
        assert_eq!(place(&label, &last, None), Ok(Some("0,0".into())));
    }
}
