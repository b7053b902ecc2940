//! Files that are created, replaced, written over and removed, each change durable at once.

use super::client::{Client, Content, Work};
use crate::torture::model::bytes;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;

const FILES: usize = 64;
const MAX_CELLS: usize = 1024;

pub struct Writer<'a> {
    client: Client<'a>,
    random: fastrand::Rng,
    version: u32,
}

impl<'a> Writer<'a> {
    pub fn new(client: Client<'a>) -> Self {
        Self { random: client.random(), client, version: 0 }
    }
}

impl Work for Writer<'_> {
    fn turn(&mut self) -> Result<(), String> {
        self.version += 1;
        let (file, cells) = (self.random.usize(..FILES), self.random.usize(1..MAX_CELLS));
        let (client, name) = (&self.client, self.client.name(file));
        let before = client.state.content(&name);
        let new = |cells| Content::new(client.id(file), cells, self.version);
        let change = Change { client, file, before: before.as_ref() };
        let done = match (self.random.u32(..10), &before) {
            (0, Some(_)) => change.remove().map(|()| None),
            (1..=4, Some(before)) => {
                let new = new(before.versions.len());
                change.write_over(&new, self.version).map(|()| Some(new))
            }
            _ => {
                let new = new(cells);
                change.replace(&new, self.version).map(|()| Some(new))
            }
        };
        match done.map_err(|why| format!("file {file}, version {}: {why}", self.version))? {
            Some(content) => client.state.is_now(name, content),
            None => client.state.is_no_more(&name),
        }
        Ok(())
    }
}

/// A change of one file that is durable when it is done.
struct Change<'a> {
    client: &'a Client<'a>,
    file: usize,
    before: Option<&'a Content>,
}

impl Change<'_> {
    /// Writes beside it, and renames.
    fn replace(&self, content: &Content, version: u32) -> Result<(), String> {
        let client = self.client;
        let (new, content) = (client.folder.join("new"), bytes(content.id, 0, content.versions.len(), version));
        client.insist(|_| {
            let file = client.timed("create", || File::create(&new))?;
            client.timed("write", || file.write_all_at(&content, 0))?;
            client.timed("sync", || file.sync_all())?;
            client.timed("rename", || fs::rename(&new, client.path(self.file)))?;
            client.sync_folder()
        })
    }

    fn write_over(&self, content: &Content, version: u32) -> Result<(), String> {
        let client = self.client;
        let content = bytes(content.id, 0, content.versions.len(), version);
        client.insist(|failures| {
            let path = client.path(self.file);
            let file = client.timed("open", || OpenOptions::new().read(true).write(true).open(&path))?;
            let read = client.read(&file)?;
            // A repetition may find what it wrote itself, or a part of it.
            if let Some(before) = self.before.filter(|_| failures == 0) {
                before.is(&read).map_err(io::Error::other)?;
            }
            client.timed("write", || file.write_all_at(&content, 0))?;
            client.timed("sync", || file.sync_data())
        })
    }

    fn remove(&self) -> Result<(), String> {
        let client = self.client;
        client.insist(|failures| {
            match client.timed("remove", || fs::remove_file(client.path(self.file))) {
                // It was removed, and the sync failed.
                Err(why) if failures > 0 && why.kind() == ErrorKind::NotFound => Ok(()),
                removed => removed,
            }?;
            client.sync_folder()
        })
    }
}
