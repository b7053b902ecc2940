//! Data that is written and not durable while the server that has the volume comes to its end. A
//! sync that succeeds afterwards says that all of it is there; one that fails says that it may not.

use super::client::{Client, Content, EIO, Work};
use crate::torture::model::{bytes, versions};
use std::fs::{self, File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

const FILES: usize = 8;
const CELL: usize = crate::torture::model::CELL;
const MAX_CELLS: usize = 1024;
/// Between writes that wait for the next round.
const REST: Duration = Duration::from_millis(20);

pub struct Dirty<'a> {
    client: Client<'a>,
    random: fastrand::Rng,
    version: u32,
}

impl<'a> Dirty<'a> {
    pub fn new(client: Client<'a>) -> Self {
        Self { random: client.random(), client, version: 0 }
    }

    fn create(&mut self, file: usize) -> Result<Content, String> {
        let (client, cells) = (&self.client, self.random.usize(1..MAX_CELLS));
        let content = Content::new(client.id(file), cells, self.version);
        let written = bytes(content.id, 0, cells, self.version);
        client.insist(|_| {
            let file = client.timed("create", || File::create(client.path(file)))?;
            client.timed("write", || file.write_all_at(&written, 0))?;
            client.timed("sync", || file.sync_all())?;
            client.sync_folder()
        })?;
        Ok(content)
    }

    /// Cells of a file, some of which may be behind its end, but none with a gap before them.
    fn range(&mut self, length: usize) -> Range<usize> {
        let first = self.random.usize(..=length.min(MAX_CELLS - 1));
        first..self.random.usize(first + 1..=MAX_CELLS)
    }

    /// Writes, waits for a round in some turns, and syncs.
    fn change(&mut self, number: usize, before: &Content) -> Result<Content, String> {
        let (state, path) = (self.client.state, self.client.path(number));
        let open = || OpenOptions::new().read(true).write(true).open(&path);
        let file = self.client.insist(|_| self.client.timed("open", open))?;
        let read = self.client.insist(|_| self.client.read(&file))?;
        before.is(&read)?;
        let mut after = before.clone();
        let round = state.between_rounds().filter(|_| self.random.bool());
        loop {
            let range = self.range(after.versions.len());
            let written = bytes(after.id, range.start, range.len(), self.version);
            let at = (range.start * CELL) as u64;
            self.client.insist(|_| self.client.timed("write", || file.write_all_at(&written, at)))?;
            after.versions.resize(range.end.max(after.versions.len()), 0);
            after.versions[range].fill(self.version);
            if round.is_none_or(|round| round != state.round()) || state.has_ended() {
                break;
            }
            std::thread::sleep(REST.max(state.pace));
            self.version += 1;
        }
        let client = &self.client;
        let read = client.insist(|_| client.read(&file))?;
        is_between(before, &after, &read)?;
        match client.timed("sync of what was dirty", || file.sync_data()) {
            Ok(()) => {}
            Err(why) if why.raw_os_error() == Some(EIO) => {
                // Each write may be lost, and nothing else.
                state.failed.fetch_add(1, SeqCst);
                let read = client.insist(|_| client.read(&file))?;
                is_between(before, &after, &read).map_err(|why| format!("after a sync that failed: {why}"))?;
                self.version += 1;
                after = Content::new(after.id, after.versions.len(), self.version);
                let written = bytes(after.id, 0, after.versions.len(), self.version);
                client.insist(|_| {
                    client.timed("write again", || file.write_all_at(&written, 0))?;
                    client.timed("sync again", || file.sync_data())
                })?;
            }
            Err(why) => return Err(format!("sync: {why}")),
        }
        let read = client.insist(|_| client.read(&file))?;
        after.is(&read).map_err(|why| format!("after a sync: {why}"))?;
        Ok(after)
    }
}

/// Each cell is one that was written since it was last durable, or that one.
fn is_between(before: &Content, after: &Content, read: &[u8]) -> Result<(), String> {
    let found = versions(before.id, read)?;
    if !(before.versions.len()..=after.versions.len()).contains(&found.len()) {
        let (least, most) = (before.versions.len(), after.versions.len());
        return Err(format!("{} cells instead of {least} to {most}", found.len()));
    }
    for (at, &version) in found.iter().enumerate() {
        let (least, most) = (before.versions.get(at).copied().unwrap_or(0), after.versions[at]);
        if !(least..=most).contains(&version) {
            return Err(format!("cell {at} has version {version} instead of one from {least} to {most}"));
        }
    }
    Ok(())
}

impl Work for Dirty<'_> {
    fn turn(&mut self) -> Result<(), String> {
        self.version += 1;
        let number = self.random.usize(..FILES);
        let (state, name) = (self.client.state, self.client.name(number));
        let content = match state.content(&name) {
            None => self.create(number),
            Some(before) => self.change(number, &before),
        };
        let content = content.map_err(|why| format!("file {number}, version {}: {why}", self.version))?;
        // What is durable is what others see who open it.
        for mount in state.mounts.iter().filter(|&mount| *mount != self.client.mount) {
            let read = self.client.insist(|_| fs::read(mount.join(&name)))?;
            content.is(&read).map_err(|why| format!("file {number} in {}: {why}", mount.display()))?;
        }
        state.is_now(name, content);
        Ok(())
    }
}
