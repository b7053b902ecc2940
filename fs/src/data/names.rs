//! Operations on names and attributes: the metadata, combined with the newer state in buffers. A
//! change that waits until its session has ended fails: others may have changed the same meanwhile.

use crate::data::file::{File, FileState};
use crate::{Error, FileSystem, Result};
use meta::{AttributeChange, Attributes, FileKind, New, Removed, Rename, RenameMode, SetTime, Time};
use plan::Ino;
use std::time::Instant;

/// How often attributes are read again because a commit changed the file meanwhile, before the
/// content lock is taken.
const MAX_ATTEMPTS: usize = 3;

/// Attributes to set; None leaves one unchanged.
#[derive(Clone, Copy, Debug, Default)]
pub struct SetAttributes {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size of the content, in bytes.
    pub size: Option<u64>,
    /// The file was just opened for that, so that other clients have committed it.
    pub just_opened: bool,
    /// Time of the last access.
    pub accessed: Option<SetTime>,
    /// Time of the last change of content.
    pub modified: Option<SetTime>,
    /// Time of the last change of anything; None: the time of the operation.
    pub changed: Option<Time>,
    /// Time of creation.
    pub created: Option<Time>,
}

impl FileSystem {
    /// The attributes of a file, with its uncommitted changes.
    pub(crate) fn attributes_of(&self, file: &File) -> Result<Attributes> {
        let with = |state: &mut FileState, mut attributes: Attributes| {
            if attributes.kind == FileKind::File {
                attributes.size = self.learn_size(state, attributes.size);
                attributes.allocated += state.buffer.held_bytes();
                if let Some(modified) = state.buffer.modified {
                    (attributes.modified, attributes.changed) = (modified, attributes.changed.max(modified));
                }
            }
            attributes
        };
        for _ in 0..MAX_ATTEMPTS {
            let changes = file.state().changes;
            // Ask without the lock: the server makes other clients commit first, and they may wait
            // for data in this buffer.
            let attributes = self.meta.attributes(file.ino)?;
            let mut state = file.state();
            if state.changes == changes {
                return Ok(with(&mut state, attributes));
            }
            // Something left the buffer, and may have reached the metadata too late to be in this
            // answer.
        }
        // Take the lock that commits take.
        let _one_at_a_time = file.content();
        let attributes = self.meta.describe(file.ino)?.0;
        Ok(with(&mut file.state(), attributes))
    }

    /// The size of a file, given the committed size. The caller has checked that this process
    /// changed nothing since it asked.
    pub(crate) fn learn_size(&self, state: &mut FileState, committed: u64) -> u64 {
        if !self.is_shared() {
            return state.buffer.size.unwrap_or(committed);
        }
        // Other clients may have extended or truncated it, too.
        let size = committed.max(state.buffer.end());
        if !state.changing {
            state.buffer.size = Some(size);
        }
        size
    }

    /// Updates attributes that a lookup or listing found. `departures` is the table's counter
    /// before they were read: a file that left the table since may have committed changes that they
    /// do not show.
    pub(super) fn with_buffer(&self, found: Attributes, departures: u64) -> Attributes {
        if found.kind != FileKind::File {
            return found;
        }
        // For a file that was removed meanwhile, show the attributes that were found.
        match self.table.find(found.ino) {
            Some(file) => self.attributes_of(&file).unwrap_or(found),
            None if self.table.departures() == departures => found,
            None => self.meta.attributes(found.ino).unwrap_or(found),
        }
    }

    /// The attributes of the file with this name. `.` and `..` are names here.
    ///
    /// # Errors
    /// Those of [`meta::Meta::lookup`].
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attributes> {
        let departures = self.table.departures();
        Ok(self.with_buffer(self.meta.lookup(parent, name)?, departures))
    }

    /// The attributes of a file.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn attributes(&self, ino: Ino) -> Result<Attributes> {
        match self.table.find(ino) {
            Some(file) => self.attributes_of(&file),
            // All earlier writes are committed.
            None => Ok(self.meta.attributes(ino)?),
        }
    }

    /// Sets attributes and returns all of them.
    ///
    /// # Errors
    /// When the file does not exist, or has no size to set.
    pub fn set_attributes(&self, ino: Ino, change: SetAttributes) -> Result<Attributes> {
        self.in_this_session(|| self.set_attributes_in_session(ino, change))
    }

    fn set_attributes_in_session(&self, ino: Ino, change: SetAttributes) -> Result<Attributes> {
        self.writable()?;
        if let Some(size) = change.size {
            self.truncate(ino, size, change.just_opened)?;
        }
        let SetAttributes { mode, uid, gid, accessed, modified, changed, created, .. } = change;
        let change = AttributeChange { mode, uid, gid, accessed, modified, changed, created };
        if change == AttributeChange::default() {
            return self.attributes(ino);
        }
        let departures = self.table.departures();
        let (attributes, _) = {
            let file = modified.and_then(|_| self.table.find(ino));
            // A time that the caller sets replaces the time of earlier writes, including those that
            // are being committed.
            let _one_at_a_time = file.as_ref().map(|file| file.content());
            if let Some(file) = &file {
                file.state().buffer.modified = None;
            }
            // When the kernel writes back the times of its writes, it sends both times itself.
            let says_when = !matches!(accessed, Some(SetTime::Now)) && !matches!(modified, Some(SetTime::Now));
            let now = changed.filter(|_| says_when).unwrap_or_else(|| self.stamp());
            let set = self.meta.set_attributes(ino, change, now)?;
            if let Some(file) = &file {
                file.state().changed();
            }
            set
        };
        Ok(self.with_buffer(attributes, departures))
    }

    /// Removes the privileges that a file gives to its executors: set-user-ID, set-group-ID and
    /// capabilities. Call this before a user without such privileges changes the content. Returns
    /// whether there were any.
    ///
    /// # Errors
    /// When the file does not exist, or they cannot be removed.
    pub fn take_privileges(&self, ino: Ino) -> Result<bool> {
        self.in_this_session(|| self.take_privileges_in_session(ino))
    }

    fn take_privileges_in_session(&self, ino: Ino) -> Result<bool> {
        if !self.meta.has_privileges(ino)? {
            return Ok(false);
        }
        self.writable()?;
        let mode = self.meta.describe(ino)?.0.mode;
        if mode != meta::unprivileged(mode) {
            let mode = Some(meta::unprivileged(mode));
            self.meta.set_attributes(ino, AttributeChange { mode, ..AttributeChange::default() }, self.stamp())?;
        }
        match self.meta.remove_attribute(ino, meta::FILE_CAPABILITIES, self.stamp()) {
            Ok(_) | Err(meta::Error::NoAttribute) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// Creates a file of any kind.
    ///
    /// # Errors
    /// Those of [`meta::Meta::make`].
    pub fn make(&self, parent: Ino, name: &[u8], new: &New) -> Result<Attributes> {
        self.writable()?;
        self.check_metadata_space()?;
        Ok(self.in_this_session(|| self.meta.make(parent, name, new, self.stamp()))?.0)
    }

    /// Adds a name to a file.
    ///
    /// # Errors
    /// Those of [`meta::Meta::link`].
    pub fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attributes> {
        self.in_this_session(|| self.link_in_session(ino, parent, name))
    }

    fn link_in_session(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attributes> {
        self.writable()?;
        self.check_metadata_space()?;
        let file = self.table.enter(ino);
        let linked = {
            let _turn = file.naming();
            let gone = file.state().gone;
            let linked =
                if gone { Err(meta::Error::NotFound) } else { self.meta.link(ino, parent, name, self.stamp()) };
            let mut state = file.state();
            (state.orphan, state.is_left) = (state.orphan && linked.is_err(), state.is_left && linked.is_err());
            drop(state);
            linked
        };
        let (found, _) = linked?;
        match self.attributes_of(&file) {
            // Others removed all its names since: it was linked all the same.
            Err(Error::Meta(meta::Error::NotFound) | Error::Stale) => Ok(found),
            attributes => attributes,
        }
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// When the file is not a symbolic link.
    pub fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        Ok(self.meta.read_link(ino)?)
    }

    /// Removes a name of a file that is not a directory.
    ///
    /// # Errors
    /// Those of [`meta::Meta::unlink`].
    pub fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.in_this_session(|| {
            self.writable()?;
            meta::check_name(name)?;
            loop {
                let ino = self.meta.lookup(parent, name)?.ino;
                match self.unlink_file(parent, name, ino) {
                    // The name belongs to another file by now.
                    Err(Error::Meta(meta::Error::NotFound)) => {}
                    removed => return removed,
                }
            }
        })
    }

    /// Removes a name as long as it belongs to this file.
    ///
    /// # Errors
    /// Those of [`meta::Meta::unlink`].
    pub fn unlink_file(&self, parent: Ino, name: &[u8], ino: Ino) -> Result<()> {
        self.writable()?;
        let file = self.table.enter(ino);
        let _turn = file.naming();
        let keep = self.is_needed(ino, &file.state());
        let removed = self.in_this_session(|| self.meta.unlink(parent, name, ino, keep, self.stamp()))?;
        self.after_removal(&mut file.state(), removed);
        Ok(())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// Those of [`meta::Meta::remove_directory`].
    pub fn remove_directory(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.in_this_session(|| self.remove_directory_in_session(parent, name))
    }

    fn remove_directory_in_session(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.writable()?;
        meta::check_name(name)?;
        loop {
            let ino = self.meta.lookup(parent, name)?.ino;
            let file = self.table.enter(ino);
            let removed = {
                let _turn = file.naming();
                let keep = self.is_needed(ino, &file.state());
                let removed = self.meta.remove_directory(parent, name, ino, keep, self.stamp());
                removed.map(|removed| self.after_removal(&mut file.state(), removed))
            };
            match removed {
                // The name belongs to another directory by now.
                Err(meta::Error::NotFound) => {}
                removed => return Ok(removed?),
            }
        }
    }

    /// Whether a file is kept after it lost its last name: it is open, or the kernel knows it.
    fn is_needed(&self, ino: Ino, state: &FileState) -> bool {
        state.openers > 0 || self.lookups.knows(ino)
    }

    /// Updates the state of a file after it lost a name.
    fn after_removal(&self, state: &mut FileState, removed: Removed) {
        if removed.last {
            state.orphan = removed.orphan;
            if removed.orphan {
                self.let_go(removed.ino, state);
            } else {
                self.forget_content(state);
            }
        }
        self.collector.add(removed.dead, removed.seq);
    }

    /// Releases a file without a name that is no longer needed.
    pub(crate) fn let_go(&self, ino: Ino, state: &mut FileState) {
        if !state.orphan || self.is_needed(ino, state) {
            return;
        }
        state.orphan = false;
        if self.is_shared() && self.alone().is_none() && !state.buffer.is_clean() {
            // Another client may have looked it up before. The server removes it when no client
            // needs it.
            state.is_left = true;
            return;
        }
        self.forget_content(state);
        // The server does this itself.
        if !self.is_shared() {
            self.collector.add_orphan(ino);
        }
    }

    /// Drops uncommitted data of files that lost their last name here, if the server has removed
    /// them. Asks the server about files that have been dirty since before a moment.
    pub(crate) fn forget_removed(&self, since: Option<Instant>) {
        let is_due = |state: &FileState| state.is_left && state.dirty_since.is_none_or(|dirty| Some(dirty) <= since);
        for file in self.table.all().into_iter().filter(|file| is_due(&file.state())) {
            if self.meta.attributes(file.ino) == Err(meta::Error::NotFound) {
                self.forget_content(&mut file.state());
            }
        }
    }

    /// Drops the uncommitted content of a removed file.
    fn forget_content(&self, state: &mut FileState) {
        (state.gone, state.lacks_data, state.lacks_pages) = (true, false, false);
        state.buffer.modified = None;
        self.change_buffer(state, |buffer| buffer.forget(0..u64::MAX));
    }

    /// Renames a file.
    ///
    /// # Errors
    /// Those of [`meta::Meta::rename`].
    pub fn rename(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), mode: RenameMode) -> Result<()> {
        self.in_this_session(|| self.rename_in_session(from, to, mode))
    }

    fn rename_in_session(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), mode: RenameMode) -> Result<()> {
        self.writable()?;
        loop {
            let replaced = match self.meta.lookup(to.0, to.1) {
                Ok(attributes) => Some(attributes.ino),
                Err(meta::Error::NotFound) => None,
                Err(error) => return Err(error.into()),
            };
            let result = self.rename_once(from, to, mode, replaced)?;
            match result {
                // Another file had the new name by then.
                Err(meta::Error::NotFound) if !self.cannot_rename(from, to, mode)? => {}
                result => return Ok(result?),
            }
        }
    }

    /// Renames a file over one that must have the new name: what others did to that name meanwhile
    /// is not undone.
    ///
    /// # Errors
    /// `NotFound` when another file has the new name, or none; others as [`rename`](Self::rename).
    pub fn replace(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), there: Ino) -> Result<()> {
        self.in_this_session(|| {
            self.writable()?;
            Ok(self.rename_once(from, to, RenameMode::Replace, Some(there))??)
        })
    }

    /// Renames a file if `replaced` has the new name.
    fn rename_once(
        &self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        mode: RenameMode,
        replaced: Option<Ino>,
    ) -> Result<meta::Result<()>> {
        self.commit_before_replacing(from, replaced, mode)?;
        let file = replaced.map(|ino| self.table.enter(ino));
        let _turn = file.as_ref().map(|file| file.naming());
        let keep = file.as_ref().is_some_and(|file| self.is_needed(file.ino, &file.state()));
        let change = Rename { from: (from.0, from.1.to_vec()), to: (to.0, to.1.to_vec()), mode, replaced, keep };
        let result = self.meta.rename(&change, self.stamp());
        if let (Ok((Some(removed), _)), Some(file)) = (&result, &file) {
            self.after_removal(&mut file.state(), removed.clone());
        }
        Ok(result.map(|_| ()))
    }

    /// Whether a rename lacks the file, the directory that it goes to, or the file to exchange it
    /// with. To look again at which file has the new name is not enough: it may have come and gone.
    fn cannot_rename(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), mode: RenameMode) -> Result<bool> {
        let is_there = |found: meta::Result<Attributes>| match found {
            Ok(found) => Ok(Some(found)),
            Err(meta::Error::NotFound) => Ok(None),
            Err(error) => Err(error),
        };
        let is_named = |(parent, name)| Ok::<_, meta::Error>(is_there(self.meta.lookup(parent, name))?.is_some());
        let takes_names = is_there(self.meta.attributes(to.0))?.is_some_and(|directory| directory.links > 0);
        Ok(!(takes_names && is_named(from)? && (mode != RenameMode::Exchange || is_named(to)?)))
    }

    /// Programs often replace a file by writing a new one and renaming it, without a sync. Commit
    /// the content of the new file first, so that a crash does not leave an empty file in place of
    /// a full one. Fails if the new file lost some of its content.
    fn commit_before_replacing(&self, from: (Ino, &[u8]), replaced: Option<Ino>, mode: RenameMode) -> Result<()> {
        if replaced.is_none() || mode != RenameMode::Replace {
            return Ok(());
        }
        let attributes = match self.meta.lookup(from.0, from.1) {
            // The rename says so, or finds a newer file.
            Err(meta::Error::NotFound) => return Ok(()),
            found => found?,
        };
        if let Some(file) = self.table.find(attributes.ino) {
            self.commit(std::slice::from_ref(&*file), false)?;
        }
        self.lacks_nothing(attributes.ino)
    }

    /// The path of a file from the root, without a leading slash. None for a file with several
    /// names or none, and where the metadata cannot be read.
    pub fn path_of(&self, ino: Ino) -> Option<Vec<u8>> {
        self.meta.describe(ino).ok()?.1
    }

    /// The parent directory of a directory; the root is its own parent.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn parent(&self, ino: Ino) -> Result<Ino> {
        Ok(self.meta.parent(ino)?)
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn attribute(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        Ok(self.meta.attribute(ino, name)?)
    }

    /// The names of the extended attributes.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn attribute_names(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        Ok(self.meta.attribute_names(ino)?)
    }

    /// Sets an extended attribute. `must_exist` says whether it must exist or must not; None allows
    /// both.
    ///
    /// # Errors
    /// Those of [`meta::Meta::set_attribute`].
    pub fn set_attribute(&self, ino: Ino, name: &[u8], value: &[u8], must_exist: Option<bool>) -> Result<()> {
        self.writable()?;
        self.check_metadata_space()?;
        self.in_this_session(|| self.meta.set_attribute(ino, name, value, must_exist, self.stamp()))?;
        Ok(())
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn remove_attribute(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.writable()?;
        self.in_this_session(|| self.meta.remove_attribute(ino, name, self.stamp()))?;
        Ok(())
    }

    /// Counts one more opener of a file or directory. Every `open` needs a `close`. `write` says
    /// that the opener may write. After `open`, the caller sees what other clients wrote before.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn open(&self, ino: Ino, write: bool) -> Result<()> {
        let stale = |error: meta::Error| if error == meta::Error::NotFound { Error::Stale } else { error.into() };
        let file = self.table.enter(ino);
        if !self.is_shared() {
            // Take the naming lock, so that a later removal sees that the file is open.
            let _turn = file.naming();
            let links = self.meta.attributes(ino).map_err(stale)?.links;
            let mut state = file.state();
            // A file without a name that is not kept here is about to be removed.
            if state.gone || links == 0 && !state.orphan {
                return Err(Error::Stale);
            }
            state.openers += 1;
            return Ok(());
        }
        // Count it before asking: a removal by another thread meanwhile sees that the file is open.
        let changes = {
            let mut state = file.state();
            state.openers += 1;
            state.changes
        };
        let found = self.sharing().open(ino, write);
        // A removal that began before the count has ended when this lock is free.
        let turn = file.naming();
        let mut state = file.state();
        let found = match found {
            // It was removed. Other clients may have it open.
            Ok(_) if state.gone => {
                drop((state, turn));
                self.close(ino);
                return Err(Error::Stale);
            }
            Ok(found) => found,
            Err(error) => {
                self.one_opener_less(ino, &mut state);
                return Err(stale(error));
            }
        };
        drop(turn);
        let is_overtaken = state.changes != changes;
        if let Some(found) = found.filter(|found| found.kind == FileKind::File && !is_overtaken) {
            self.learn_size(&mut state, found.size);
        }
        drop(state);
        if is_overtaken {
            // The file is open. If its attributes cannot be read now, they are read when they are
            // needed.
            let _ = self.attributes_of(&file);
        }
        Ok(())
    }

    /// Counts one opener less. The last one releases a file without a name.
    pub fn close(&self, ino: Ino) {
        let Some(file) = self.table.find(ino) else { return };
        let turn = file.naming();
        self.one_opener_less(ino, &mut file.state());
        drop(turn);
        drop(file);
        if let Err(error) = self.sharing().close(ino) {
            self.volume.warn(&error.to_string());
        }
    }

    fn one_opener_less(&self, ino: Ino, state: &mut FileState) {
        state.openers = state.openers.saturating_sub(1);
        self.let_go(ino, state);
    }
}
