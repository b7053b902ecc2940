//! Files that stay open while servers come and go, and are read and written through what was opened
//! long ago. Half of them have no name any more. There may be many more, which a server that takes
//! over is told of, and of which one is used in each turn.

use super::client::{Client, Content, Work};
use crate::torture::model::bytes;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;

/// Files that are open. The first half have names.
const OPEN: usize = 8;
const MAX_CELLS: usize = 1024;
/// One turn in so many opens another file instead.
const TURNS_OF_A_HANDLE: u32 = 50;

pub struct Handles<'a> {
    client: Client<'a>,
    random: fastrand::Rng,
    open: Vec<(File, Content)>,
    /// Those that are opened first and kept, each with the version of its cell.
    kept: Vec<(File, u32)>,
    version: u32,
}

impl<'a> Handles<'a> {
    pub fn new(client: Client<'a>) -> Result<Self, String> {
        let mut kept = Vec::new();
        for number in 0..client.state.kept {
            let path = client.folder.join(format!("kept{number}"));
            let open = || OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path);
            kept.push((client.insist(|_| client.timed("create", open))?, 0));
        }
        Ok(Self { random: client.random(), client, open: Vec::new(), kept, version: 0 })
    }

    /// A new file, open, and without a name if it is one of the second half.
    fn create(&mut self, slot: usize) -> Result<(File, Content), String> {
        let client = &self.client;
        let content = Content::new(client.id(slot), self.random.usize(1..MAX_CELLS), self.version);
        let (new, written) = (client.folder.join("new"), bytes(content.id, 0, content.versions.len(), self.version));
        let file = client.insist(|_| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(true);
            let file = client.timed("create", || options.open(&new))?;
            client.timed("write", || file.write_all_at(&written, 0))?;
            client.timed("sync", || file.sync_all())?;
            match slot < OPEN / 2 {
                true => client.timed("rename", || fs::rename(&new, client.path(slot)))?,
                false => client.timed("remove", || fs::remove_file(&new))?,
            }
            client.sync_folder()?;
            Ok(file)
        })?;
        Ok((file, content))
    }

    /// The same with one of those that are kept.
    fn use_kept(&mut self) -> Result<(), String> {
        if self.kept.is_empty() {
            return Ok(());
        }
        let number = self.random.usize(..self.kept.len());
        let (client, (file, version)) = (&self.client, &mut self.kept[number]);
        let id = client.id(OPEN + number);
        if *version > 0 {
            Content::new(id, 1, *version).is(&client.insist(|_| client.read(file))?)?;
        }
        let written = bytes(id, 0, 1, self.version);
        client.insist(|_| {
            client.timed("write", || file.write_all_at(&written, 0))?;
            client.timed("sync", || file.sync_data())
        })?;
        *version = self.version;
        Ok(())
    }

    /// Reads what was written last, and writes.
    fn write_over(&mut self, slot: usize) -> Result<(), String> {
        let (client, (file, content)) = (&self.client, &mut self.open[slot]);
        let read = client.insist(|_| client.read(file))?;
        content.is(&read)?;
        *content = Content::new(content.id, content.versions.len(), self.version);
        let written = bytes(content.id, 0, content.versions.len(), self.version);
        client.insist(|_| {
            client.timed("write", || file.write_all_at(&written, 0))?;
            client.timed("sync", || file.sync_data())
        })
    }
}

impl Work for Handles<'_> {
    fn turn(&mut self) -> Result<(), String> {
        self.version += 1;
        self.use_kept().map_err(|why| format!("a file that was kept open, version {}: {why}", self.version))?;
        let slot = self.random.usize(..OPEN).min(self.open.len());
        let done = if slot == self.open.len() {
            self.create(slot).map(|new| self.open.push(new))
        } else if self.random.u32(..TURNS_OF_A_HANDLE) == 0 {
            self.create(slot).map(|new| self.open[slot] = new)
        } else {
            self.write_over(slot)
        };
        done.map_err(|why| format!("file {slot} that is open, version {}: {why}", self.version))?;
        if slot < OPEN / 2 {
            self.client.state.is_now(self.client.name(slot), self.open[slot].1.clone());
        }
        Ok(())
    }
}
