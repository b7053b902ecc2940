//! A worker does something in its directory, and knows what must be there.

use super::model::{Action, File, Model};
use super::mount::Mount;
use super::{END, WORKS, now};
use bytes::Bytes;
use fastrand::Rng;
use fs::{FileKind, ROOT};
use meta::{ContentEdit, Error, New, Rename, RenameMode, Resize, Time};
use plan::{Extent, ExtentPlace, Ino, TxId};
use session::port::Port;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::sleep;

/// One user of the mount.
pub(super) struct Worker {
    mount: Arc<Mount>,
    number: usize,
    dice: Rng,
    directory: Ino,
    model: Model,
    /// The states of the directory since the last one that is certainly durable.
    history: Vec<Model>,
    /// The deaths of the server that this worker knows of.
    deaths: u64,
    next: u32,
    clock: u32,
}

impl Worker {
    pub async fn begin(mount: Arc<Mount>, number: usize, seed: u64) -> Self {
        let name = format!("worker{number}");
        let new = New { kind: FileKind::Directory, mode: 0o755, uid: 0, gid: 0, device: 0, link: Vec::new() };
        let time = Time { seconds: 1, nanoseconds: number as u32 };
        let deaths = || mount.lab.deaths.load(Ordering::SeqCst);
        let directory = loop {
            let before = deaths();
            let made = match mount.ask(|port| port.make(ROOT, name.as_bytes(), &new, time)).await {
                Err(Error::Exists) => mount.ask(|port| port.lookup(ROOT, name.as_bytes())).await.expect("it exists"),
                made => made.expect("a directory").0,
            };
            mount.ask(|port| Port::sync(port, TxId::MAX)).await.expect("it is durable");
            // A sync at the next server does not notice what the previous one lost.
            if deaths() == before || !mount.lab.loses {
                break made.ino;
            }
        };
        Self {
            deaths: deaths(),
            dice: Rng::with_seed(seed << 8 | number as u64),
            directory,
            model: Model::default(),
            history: vec![Model::default()],
            next: 0,
            clock: 0,
            mount,
            number,
        }
    }

    pub async fn run(mut self) {
        let lab = self.mount.lab.clone();
        while now() < END - Duration::from_secs(6) {
            let (action, begun) = (self.model.choose(&mut self.dice, &mut self.next), now());
            let done = self.act(&action).await;
            let outcome = done.as_ref().map(drop).map_err(ToString::to_string);
            lab.record.note(format_args!("worker {}: {action:?}: {outcome:?}", self.number));
            self.learn(&action, done).await;
            if self.dice.u32(..5) == 0 {
                self.look().await;
            }
            lab.done.fetch_add(1, Ordering::Relaxed);
            lab.after.fetch_add(usize::from(begun > WORKS), Ordering::Relaxed);
            sleep(Duration::from_millis(self.dice.u64(..150))).await;
        }
        self.look().await;
        lab.through.fetch_add(1, Ordering::Relaxed);
    }

    /// Performs an action; returns the file that it made, if any.
    async fn act(&mut self, action: &Action) -> meta::Result<Option<Ino>> {
        self.clock += 1;
        let (mount, directory) = (&self.mount, self.directory);
        let time = Time { seconds: 1000 + i64::from(self.clock), nanoseconds: self.number as u32 };
        match action {
            Action::Make(name) => {
                let new = New { kind: FileKind::File, mode: 0o644, uid: 0, gid: 0, device: 0, link: Vec::new() };
                Ok(Some(mount.ask(|port| port.make(directory, name, &new, time)).await?.0.ino))
            }
            Action::Unlink(name, ino) => {
                mount.ask(|port| port.unlink(directory, name, *ino, false, time)).await.map(|_| None)
            }
            Action::Rename(from, to, replaced) => {
                let (from, to) = ((directory, from.clone()), (directory, to.clone()));
                let rename = Rename { from, to, mode: RenameMode::Replace, replaced: *replaced, keep: false };
                mount.ask(|port| port.rename(&rename, time)).await.map(|_| None)
            }
            Action::Link(ino, name) => mount.ask(|port| port.link(*ino, directory, name, time)).await.map(|_| None),
            Action::Write(ino, bytes) => {
                let length = bytes.len() as u64;
                let extent = Extent { offset: 0, length, place: ExtentPlace::Bytes(Bytes::from(bytes.clone())) };
                let edit = ContentEdit {
                    ranges: vec![(0..length, vec![extent])],
                    resize: Resize::To(length),
                    modified: Some(time),
                };
                mount.ask(|port| port.change_content(*ino, &edit)).await.map(|_| None)
            }
            Action::NewAttribute(ino, name, value) => {
                mount.ask(|port| port.set_attribute(*ino, name, value, Some(false), time)).await.map(|_| None)
            }
            Action::RemoveAttribute(ino, name) => {
                mount.ask(|port| port.remove_attribute(*ino, name, time)).await.map(|_| None)
            }
            Action::Sync => mount.ask(|port| Port::sync(port, TxId::MAX)).await.map(|()| None),
        }
    }

    /// Updates the model with the result of an action.
    async fn learn(&mut self, action: &Action, done: meta::Result<Option<Ino>>) {
        let deaths = self.mount.lab.deaths.load(Ordering::SeqCst);
        let lost = self.mount.lab.loses && deaths != self.deaths;
        self.deaths = deaths;
        if !lost {
            match done.as_ref().ok().and_then(|made| self.model.after(action, *made)) {
                Some(model) => self.model = model,
                None => self.wrong(format_args!("{action:?}: {done:?}")),
            }
            if matches!(action, Action::Sync) {
                self.history.clear();
            }
            return self.history.push(self.model.clone());
        }
        // Everything that was not durable may be gone, including the last action.
        let made = done.ok().flatten();
        let seen = self.seen().await;
        let with = self.history.iter().filter_map(|model| model.after(action, made.or_else(|| seen.file_of(action))));
        if !with.chain(self.history.iter().cloned()).any(|model| model == seen) {
            self.wrong(format_args!(
                "after the server lost power there is {seen:?}, and never was; before {action:?}: {:?}",
                self.history
            ));
        }
        self.model = seen;
        self.history.push(self.model.clone());
    }

    /// Compares the actual state with the expected one.
    async fn look(&mut self) {
        let seen = self.seen().await;
        let deaths = self.mount.lab.deaths.load(Ordering::SeqCst);
        let lost = self.mount.lab.loses && deaths != self.deaths;
        if lost {
            return self.learn(&Action::Sync, Ok(None)).await;
        }
        if seen != self.model {
            self.wrong(format_args!("there is {seen:?} instead of {:?}", self.model));
        }
    }

    /// The actual state, all of it from one server.
    async fn seen(&self) -> Model {
        loop {
            let before = self.mount.lab.deaths.load(Ordering::SeqCst);
            let seen = self.try_to_see().await;
            if self.mount.lab.deaths.load(Ordering::SeqCst) == before || !self.mount.lab.loses {
                return seen.unwrap_or_else(|error| {
                    self.wrong(format_args!("looking: {error}"));
                    Model::default()
                });
            }
        }
    }

    async fn try_to_see(&self) -> meta::Result<Model> {
        let (mount, mut seen) = (&self.mount, Model::default());
        for listed in mount.ask(|port| port.list(self.directory, 0, 1000)).await? {
            let ino = listed.attributes.ino;
            seen.names.insert(listed.name, ino);
            if seen.files.contains_key(&ino) {
                continue;
            }
            let mut file = File { content: Some(vec![0; listed.attributes.size as usize]), ..File::default() };
            for extent in mount.ask(|port| port.extents(ino, 0..u64::MAX)).await? {
                match (&extent.place, &mut file.content) {
                    (ExtentPlace::Bytes(bytes), Some(content)) => {
                        // The content is longer than the size when another server returned the
                        // size.
                        content.resize(content.len().max(extent.end() as usize), 0);
                        content[extent.offset as usize..extent.end() as usize].copy_from_slice(bytes);
                    }
                    _ => file.content = None,
                }
            }
            for name in mount.ask(|port| port.attribute_names(ino)).await? {
                let value = mount.ask(|port| port.attribute(ino, &name)).await?;
                file.attributes.insert(name, value);
            }
            seen.files.insert(ino, file);
        }
        Ok(seen)
    }

    fn wrong(&self, what: std::fmt::Arguments<'_>) {
        self.mount.lab.record.wrong(format_args!("worker {}: {what}", self.number));
    }
}
