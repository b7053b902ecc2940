//! Content that is superseded: another client asked for a file, did not get what this one had not
//! committed of it, and went on. It must not get into the volume any more. The server refuses it,
//! and this client drops it and tells the programs concerned.

use crate::data::file::{File, FileState};
use crate::error::lost;
use crate::{FileSystem, Result};
use meta::{Attributes, ContentEdit, DeadStripe, Error};
use plan::{Ino, TxId};
use std::sync::Arc;

impl FileSystem {
    /// Drops the uncommitted content of a file. Returns whether there was any: the next sync or
    /// close reports it.
    pub(crate) fn lose_uncommitted(&self, state: &mut FileState) -> bool {
        let lost = !state.buffer.is_clean();
        self.change_buffer(state, |buffer| {
            buffer.forget(0..u64::MAX);
            // Other clients may have changed the file.
            (buffer.modified, buffer.size) = (None, None);
        });
        state.changes += 1;
        if lost {
            state.failed = None;
            self.note_lost(state);
        }
        lost
    }

    /// If a change of these files was refused since their content is superseded, drops that content
    /// and tells the server so. What is written from then on is new, and accepted. Returns whether
    /// the change can be tried again without it. The caller holds the content locks of the files.
    pub(crate) fn drop_superseded(&self, files: &[Arc<File>], error: &Error) -> bool {
        let Error::Superseded(inos) = error else { return false };
        let superseded = || files.iter().filter(|file| inos.contains(&file.ino));
        for file in superseded() {
            if self.lose_uncommitted(&mut file.state()) {
                self.volume.warn(&format!(
                    "another client went on without what was written to inode {} and not committed: it is dropped",
                    file.ino
                ));
            }
        }
        let dropped: Vec<Ino> = superseded().map(|file| file.ino).collect();
        let reported = self.sharing().dropped(&dropped);
        reported.inspect_err(|error| self.volume.warn(&error.to_string())).is_ok() && !dropped.is_empty()
    }

    /// Changes the content of a file, whose content lock the caller holds. `again` says that the
    /// change is the same without what is not committed: it is not refused because of that.
    pub(crate) fn change_content(
        &self,
        file: &Arc<File>,
        edit: &ContentEdit,
        again: bool,
    ) -> Result<(Attributes, Vec<DeadStripe>, TxId)> {
        let done = match self.meta.change_content(file.ino, edit) {
            Err(error) if self.drop_superseded(std::slice::from_ref(file), &error) => match again {
                true => self.meta.change_content(file.ino, edit).map_err(crate::Error::from),
                false => Err(lost()),
            },
            done => done.map_err(crate::Error::from),
        };
        // Extents that were looked up before are old.
        file.state().changes += 1;
        done
    }
}
