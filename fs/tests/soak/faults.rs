//! Targets fail and come back, the volume is opened again, and the process or the machine dies.

use super::{Node, Soak};
use crate::lab::{assert_sound, content, dead, full};
use fs::{FileKind, FileSystem, ROOT};
use plan::Ino;
use std::time::{Duration, Instant};
use volume::Control;
use volume::target::{Faults, TargetFile};

impl Soak {
    /// Makes as many targets fail as may fail, or makes all work again and repairs everything.
    pub fn break_or_heal(&mut self) {
        if self.bad.is_empty() {
            for _ in 0..self.spare {
                let number = self.dice.usize(..self.lab.seen.len());
                let faults = match self.dice.u8(..4) {
                    0 => dead(),
                    1 => full(),
                    2 => Faults { unsynced: true, ..Faults::default() },
                    _ => self.flips(number),
                };
                self.note(format!("target {number} fails: {faults:?}"));
                self.lab.fault(number, faults);
                self.bad.push(number);
            }
        } else {
            self.heal();
        }
    }

    /// Flips some bits in some chunks of a target.
    pub fn flips(&mut self, number: usize) -> Faults {
        let all = self.lab.chunks().into_iter().filter(|(of, ..)| *of == number);
        let chunks: Vec<(TargetFile, u64)> = all.map(|(_, file, length)| (file, length)).collect();
        let mut flip = |(file, length)| {
            let at = self.dice.u64(..length);
            (file, at..at + self.dice.u64(1..5000))
        };
        Faults { flipped: chunks.into_iter().map(&mut flip).collect(), ..Faults::default() }
    }

    pub fn heal(&mut self) {
        self.note("mend".into());
        self.lab.fault_all(Faults::default);
        self.bad.clear();
        std::thread::sleep(Duration::from_millis(60));
        self.fs.verify(&Control::default()).unwrap();
        let done = self.fs.repair(&Control::default()).unwrap();
        assert!(done.failed.is_empty(), "{:?}", done.failed);
        let verified = self.fs.verify(&Control::default()).unwrap();
        assert!(verified.is_sound(), "after a repair: {:#?}", verified.problems);
        // The next targets to fail may be those that have the metadata now.
        let begun = Instant::now();
        while !self.fs.status().unwrap().is_healthy() {
            assert!(begun.elapsed() < Duration::from_secs(300), "{:#?}", self.fs.status());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn reopen(&mut self) {
        self.note("reopen".into());
        for ino in std::mem::take(&mut self.open) {
            self.fs.close(ino);
            self.dropped(ino);
        }
        self.fs.close_volume().unwrap();
        let all: Vec<Ino> = self.nodes.keys().copied().collect();
        all.into_iter().for_each(|ino| self.synced(ino));
        self.fs = self.lab.open();
        self.compare();
        // Faults belong to an opening.
        if !self.bad.is_empty() {
            self.heal();
        }
    }

    /// The process or the machine dies; what was synced survives. Ends the run: names may be those
    /// of any moment since.
    pub fn crash(&mut self) {
        let power = self.dice.bool();
        let seed = self.dice.u64(..);
        self.note(format!("crash, of the machine: {power}"));
        // All names survive; content may not.
        let named = self.named();
        let fs = self.fs.clone();
        if power {
            self.lab.lose_power(fs, seed);
        } else {
            self.lab.kill(fs);
        }
        // One more target may be lost, if none was already.
        let more = if self.bad.is_empty() { self.spare.min(1) } else { 0 };
        let missing: Vec<usize> = (0..more).map(|_| self.dice.usize(..self.lab.disks.len())).collect();
        self.fs = self.lab.try_open(&missing).unwrap();
        for (ino, node) in &self.nodes {
            let Node::File { since, .. } = node else { continue };
            if !named.contains_key(ino) {
                continue;
            }
            let found = match content(&self.fs, *ino) {
                Ok(found) => found,
                // It was created since the last sync of anything.
                Err(error) if error.errno() == 2 && since[0].is_empty() => continue,
                Err(error) => panic!("{ino} after a crash, {missing:?} missing: {error}"),
            };
            if since.len() == 1 {
                assert!(found == since[0], "{ino} was synced and has other content after a crash");
            }
            assert!(since.iter().any(|state| state.len() == found.len()), "{ino} never had {} bytes", found.len());
            for (at, byte) in found.iter().enumerate() {
                let was = |state: &Vec<u8>| state.get(at).copied().unwrap_or(0) == *byte;
                assert!(since.iter().any(was), "{ino} never had {byte} at {at}");
            }
        }
        let fs = self.fs.clone();
        self.lab.fault_all(Faults::default);
        let checked = fs.check().unwrap();
        assert!(checked.problems.is_empty(), "{:#?}", checked.problems);
        if missing.is_empty() {
            fs.repair(&Control::default()).unwrap();
            assert_sound(&fs);
        }
        fs.close_volume().unwrap();
    }

    /// Removes everything; all chunks must be deleted, too.
    pub fn remove_all(&mut self) {
        if !self.bad.is_empty() {
            self.heal();
        }
        for ino in std::mem::take(&mut self.open) {
            self.fs.close(ino);
        }
        assert_sound(&self.fs);
        remove_below(&self.fs, ROOT);
        self.fs.close_volume().unwrap();
        self.fs = self.lab.open();
        assert_eq!((self.fs.usage().unwrap().files, self.fs.status().unwrap().bytes), (1, 0));
        // Clean up what dead targets missed.
        self.fs.repair(&Control::default()).unwrap();
        self.fs.close_volume().unwrap();
        assert_eq!(self.lab.chunks(), []);
    }
}

fn remove_below(fs: &FileSystem, parent: Ino) {
    for entry in fs.list(parent, 0, 1000).unwrap() {
        if entry.attributes.kind == FileKind::Directory {
            remove_below(fs, entry.attributes.ino);
            fs.remove_directory(parent, &entry.name).unwrap();
        } else {
            fs.unlink(parent, &entry.name).unwrap();
        }
    }
}
