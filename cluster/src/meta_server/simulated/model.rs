//! What a worker knows of its directory, and what it may do there.

use fastrand::Rng;
use plan::Ino;
use std::collections::BTreeMap;

/// Number of names in a worker's directory.
const NAMES: usize = 4;

/// The known state of a file. The content is None when it is in a stripe, which this simulation
/// does not read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct File {
    pub content: Option<Vec<u8>>,
    pub attributes: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// The state of a directory: names with their file numbers, and the files.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    pub names: BTreeMap<Vec<u8>, Ino>,
    pub files: BTreeMap<Ino, File>,
}

impl PartialEq for Model {
    fn eq(&self, other: &Self) -> bool {
        let same = |(a, b): (&File, &File)| {
            let content = a.content.is_none() || b.content.is_none() || a.content == b.content;
            content && a.attributes == b.attributes
        };
        self.names == other.names
            && self.files.keys().eq(other.files.keys())
            && self.files.values().zip(other.files.values()).all(same)
    }
}

/// An action of a worker in its directory.
#[derive(Clone, Debug)]
pub(super) enum Action {
    Make(Vec<u8>),
    Unlink(Vec<u8>, Ino),
    Rename(Vec<u8>, Vec<u8>, Option<Ino>),
    Link(Ino, Vec<u8>),
    Write(Ino, Vec<u8>),
    NewAttribute(Ino, Vec<u8>, Vec<u8>),
    RemoveAttribute(Ino, Vec<u8>),
    Sync,
}

impl Model {
    /// The state after an action; `made` is the file that the action made, if any. None when the
    /// action is not possible.
    pub fn after(&self, action: &Action, made: Option<Ino>) -> Option<Self> {
        let mut after = self.clone();
        match action {
            Action::Make(name) => {
                let content = Some(Vec::new());
                after.files.insert(made?, File { content, ..File::default() });
                after.names.insert(name.clone(), made?).is_none().then_some(())?;
            }
            Action::Unlink(name, ino) => (after.names.remove(name)? == *ino).then_some(())?,
            Action::Rename(from, to, _) => {
                let ino = after.names.remove(from)?;
                after.names.insert(to.clone(), ino);
            }
            Action::Link(ino, name) => {
                after.files.contains_key(ino).then_some(())?;
                after.names.insert(name.clone(), *ino).is_none().then_some(())?;
            }
            Action::Write(ino, bytes) => after.files.get_mut(ino)?.content = Some(bytes.clone()),
            Action::NewAttribute(ino, name, value) => {
                let attributes = &mut after.files.get_mut(ino)?.attributes;
                attributes.insert(name.clone(), value.clone()).is_none().then_some(())?;
            }
            Action::RemoveAttribute(ino, name) => _ = after.files.get_mut(ino)?.attributes.remove(name)?,
            Action::Sync => {}
        }
        let Self { names, files } = &mut after;
        files.retain(|ino, _| names.values().any(|named| named == ino));
        Some(after)
    }

    /// Chooses an action that is possible.
    pub fn choose(&self, dice: &mut Rng, next: &mut u32) -> Action {
        *next += 1;
        let new = format!("name{next}").into_bytes();
        let Some((name, &ino)) = dice.choice(&self.names.iter().collect::<Vec<_>>()).copied() else {
            return Action::Make(new);
        };
        let (name, file) = (name.clone(), &self.files[&ino]);
        match dice.u32(..10) {
            0 | 1 if self.names.len() < NAMES => Action::Make(new),
            2 if self.names.len() < NAMES => Action::Link(ino, new),
            0..=2 => Action::Unlink(name, ino),
            3 => Action::Rename(name, new, None),
            4 => {
                let other = self.names.iter().find(|(_, other)| **other != ino);
                let (to, replaced) = other.map_or((new, None), |(other, &replaced)| (other.clone(), Some(replaced)));
                Action::Rename(name, to, replaced)
            }
            5..=7 => {
                let mut bytes = vec![0; dice.usize(1..40)];
                dice.fill(&mut bytes);
                Action::Write(ino, bytes)
            }
            8 if file.attributes.is_empty() => Action::NewAttribute(ino, b"user.a".into(), new),
            8 => Action::RemoveAttribute(ino, b"user.a".into()),
            _ => Action::Sync,
        }
    }

    /// The file that an action made, if any.
    pub fn file_of(&self, action: &Action) -> Option<Ino> {
        let Action::Make(name) = action else { return None };
        self.names.get(name).copied()
    }
}
