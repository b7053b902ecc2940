//! What programs do with files, on the file system and in the model.

use super::{Content, MAX_FILE_BYTES, Node, Soak, empty_directory};
use crate::lab::{new, pattern};
use fs::{Allocate, FileKind, RenameMode, SetAttributes, SetTime, Time};
use plan::Ino;

impl Soak {
    pub fn make(&mut self) {
        let (parent, name) = (self.any_directory(), self.name());
        let kind = [FileKind::File, FileKind::File, FileKind::File, FileKind::Directory, FileKind::Symlink]
            [self.dice.usize(..5)];
        let mut new = new(kind);
        if kind == FileKind::Symlink {
            new.link = b"somewhere/else".to_vec();
        }
        let exists = self.directory(parent).contains_key(&name);
        match self.fs.make(parent, &name, &new) {
            Ok(made) => {
                assert!(!exists);
                self.note(format!("make {:?} {} in {parent}: {}", kind, String::from_utf8_lossy(&name), made.ino));
                self.directory(parent).insert(name, made.ino);
                let node = match kind {
                    FileKind::Directory => empty_directory(),
                    FileKind::Symlink => Node::Link(new.link),
                    _ => Node::File { now: Content::default(), since: vec![Vec::new()] },
                };
                self.nodes.insert(made.ino, node);
            }
            Err(error) => assert!(exists && error.errno() == 17, "{error}"),
        }
    }

    pub fn write(&mut self) {
        let Some(ino) = self.any_file() else { return };
        let size = self.bytes(ino).len() as u64;
        let length = match self.dice.u8(..10) {
            0..=3 => self.dice.usize(1..5_000),
            4..=8 => self.dice.usize(1..100_000),
            _ => self.dice.usize(1..1_500_000),
        };
        let append = self.dice.u8(..3) == 0;
        let offset = if append { size } else { self.dice.u64(..(size + size / 2 + 10_000).min(MAX_FILE_BYTES)) };
        let data = pattern(self.dice.u64(..), length);
        self.note(format!("write {ino} {offset}+{length}, append {append}"));
        if append {
            self.fs.append(ino, &data).unwrap();
        } else {
            self.fs.write(ino, offset, &data).unwrap();
        }
        self.change(ino, |bytes| {
            bytes.resize(bytes.len().max(offset as usize + length), 0);
            bytes[offset as usize..][..length].copy_from_slice(&data);
        });
    }

    pub fn truncate(&mut self) {
        let Some(ino) = self.any_file() else { return };
        let size = self.dice.u64(..self.bytes(ino).len() as u64 * 3 / 2 + 100);
        self.note(format!("truncate {ino} to {size}"));
        let change = SetAttributes { size: Some(size), ..SetAttributes::default() };
        assert_eq!(self.fs.set_attributes(ino, change).unwrap().size, size);
        self.change(ino, |bytes| bytes.resize(size as usize, 0));
    }

    pub fn allocate(&mut self) {
        let Some(ino) = self.any_file() else { return };
        let size = self.bytes(ino).len() as u64;
        let (offset, length) = (self.dice.u64(..size + 1000), self.dice.u64(1..size / 2 + 5000));
        let all = [Allocate::Grow, Allocate::KeepSize, Allocate::PunchHole, Allocate::Zero, Allocate::ZeroKeepSize];
        let how = all[self.dice.usize(..all.len())];
        self.note(format!("{how:?} {ino} {offset}+{length}"));
        self.fs.allocate(ino, how, offset, length).unwrap();
        self.change(ino, |bytes| {
            let end = (offset + length) as usize;
            if matches!(how, Allocate::Grow | Allocate::Zero) {
                bytes.resize(bytes.len().max(end), 0);
            }
            if !matches!(how, Allocate::Grow | Allocate::KeepSize) && (offset as usize) < bytes.len() {
                let end = end.min(bytes.len());
                bytes[offset as usize..end].fill(0);
            }
        });
    }

    pub fn copy(&mut self) {
        let (Some(from), Some(to)) = (self.any_file(), self.any_file()) else { return };
        let (size, capacity) = (self.bytes(from).len() as u64, self.bytes(to).len() as u64);
        let (start, at) = (self.dice.u64(..size + 10), self.dice.u64(..capacity + 1000));
        let length = self.dice.u64(1..size + 100);
        self.note(format!("copy {from} {start}+{length} to {to} {at}"));
        let real = length.min(size.saturating_sub(start));
        match self.fs.copy_range((from, start), (to, at), length) {
            Ok(copied) => {
                assert_eq!(copied, real);
                if real == 0 {
                    return;
                }
                let data = self.bytes(from)[start as usize..][..real as usize].to_vec();
                self.change(to, |bytes| {
                    bytes.resize(bytes.len().max((at + real) as usize), 0);
                    bytes[at as usize..][..data.len()].copy_from_slice(&data);
                });
            }
            Err(error) => assert!(from == to && error.errno() == 22, "{error}"),
        }
    }

    /// Whether a directory is, or is in, another one.
    pub fn is_within(&mut self, ino: Ino, outer: Ino) -> bool {
        let mut inside = vec![outer];
        while let Some(at) = inside.pop() {
            if at == ino {
                return true;
            }
            if let Some(Node::Directory(names)) = self.nodes.get(&at) {
                inside.extend(names.values());
            }
        }
        false
    }

    pub fn rename(&mut self) {
        let (a, b) = (self.any_directory(), self.any_directory());
        let (x, y) = (self.name(), self.name());
        let mode = [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange][self.dice.usize(..3)];
        let (old, replaced) = (self.directory(a).get(&x).copied(), self.directory(b).get(&y).copied());
        let result = self.fs.rename((a, &x), (b, &y), mode);
        self.note(format!("rename {a}/{x:?} to {b}/{y:?} {mode:?}: {result:?}"));
        let is_directory = |soak: &Self, ino| matches!(soak.nodes[&ino], Node::Directory(_));
        let full = |soak: &Self, ino| matches!(&soak.nodes[&ino], Node::Directory(names) if !names.is_empty());
        let Some(old) = old else { return assert_eq!(result.unwrap_err().errno(), 2) };
        let expected = match (mode, replaced) {
            (RenameMode::NoReplace, Some(_)) => Some(17),
            (_, Some(new)) if new == old => None,
            _ if a != b && is_directory(self, old) && self.is_within(b, old) => Some(22),
            (RenameMode::Exchange, None) => Some(2),
            (RenameMode::Exchange, Some(new)) => {
                (a != b && is_directory(self, new) && self.is_within(a, new)).then_some(22)
            }
            (_, None) => None,
            (_, Some(new)) => match (is_directory(self, old), is_directory(self, new)) {
                (true, false) => Some(20),
                (false, true) => Some(21),
                (true, true) if full(self, new) => Some(39),
                _ => None,
            },
        };
        assert_eq!(result.as_ref().err().map(fs::Error::errno), expected);
        if expected.is_some() || replaced == Some(old) {
            return;
        }
        self.directory(a).remove(&x);
        self.directory(b).insert(y, old);
        match (mode, replaced) {
            (RenameMode::Exchange, Some(new)) => _ = self.directory(a).insert(x, new),
            (_, Some(new)) => self.dropped(new),
            _ => {}
        }
    }

    pub fn link(&mut self) {
        let (Some(ino), parent, name) = (self.any_file(), self.any_directory(), self.name()) else { return };
        let exists = self.directory(parent).contains_key(&name);
        let result = self.fs.link(ino, parent, &name);
        self.note(format!("link {ino} as {parent}/{name:?}: {:?}", result.as_ref().err()));
        match result {
            Ok(_) => _ = self.directory(parent).insert(name, ino),
            Err(error) => assert!(exists && error.errno() == 17, "{error}"),
        }
    }

    pub fn remove(&mut self) {
        let parent = self.any_directory();
        let names: Vec<(Vec<u8>, Ino)> = self.directory(parent).iter().map(|(n, i)| (n.clone(), *i)).collect();
        if names.is_empty() {
            return;
        }
        let (name, ino) = names[self.dice.usize(..names.len())].clone();
        self.note(format!("remove {parent}/{name:?}, {ino}"));
        if let Node::Directory(inside) = &self.nodes[&ino] {
            let full = !inside.is_empty();
            match self.fs.remove_directory(parent, &name) {
                Ok(()) => assert!(!full),
                Err(error) => return assert!(full && error.errno() == 39, "{error}"),
            }
        } else {
            self.fs.unlink(parent, &name).unwrap();
        }
        self.directory(parent).remove(&name);
        self.dropped(ino);
    }

    pub fn open_or_close(&mut self) {
        if self.open.len() > 3 || self.dice.bool() && !self.open.is_empty() {
            let ino = self.open.swap_remove(self.dice.usize(..self.open.len()));
            self.note(format!("close {ino}"));
            self.fs.close(ino);
            self.dropped(ino);
        } else if let Some(ino) = self.any_file() {
            self.note(format!("open {ino}"));
            self.fs.open(ino, true).unwrap();
            self.open.push(ino);
        }
    }

    pub fn attribute(&mut self) {
        let Some(ino) = self.any_file() else { return };
        let (name, value) = (format!("user.{}", self.dice.u8(..3)).into_bytes(), pattern(self.dice.u64(..), 20));
        self.note(format!("attributes of {ino}"));
        let time = Time { seconds: self.dice.i64(0..1 << 30), nanoseconds: 5 };
        let change = SetAttributes {
            mode: Some(0o600),
            modified: Some(SetTime::To(time)),
            accessed: Some(SetTime::To(time)),
            ..SetAttributes::default()
        };
        let set = self.fs.set_attributes(ino, change).unwrap();
        assert_eq!((set.modified, set.accessed, set.mode), (time, time, 0o600));
        assert_eq!(self.fs.attributes(ino).unwrap().modified, time);
        let remove = self.dice.bool();
        let Some(Node::File { now, .. }) = self.nodes.get_mut(&ino) else { return };
        if remove {
            assert_eq!(self.fs.remove_attribute(ino, &name).is_ok(), now.attributes.remove(&name).is_some());
        } else {
            self.fs.set_attribute(ino, &name, &value, None).unwrap();
            now.attributes.insert(name, value);
        }
    }

    pub fn sync_one(&mut self) {
        let Some(ino) = self.any_file() else { return };
        self.note(format!("sync {ino}"));
        self.fs.sync(ino).unwrap();
        self.synced(ino);
    }

    pub fn sync_all(&mut self) {
        self.note("sync all".into());
        self.fs.sync_all().unwrap();
        let all: Vec<Ino> = self.nodes.keys().copied().collect();
        all.into_iter().for_each(|ino| self.synced(ino));
    }
}
