//! Volumes in memory, for tests of what is not seen from outside.

use crate::label::{Label, Member};
use crate::{FileSystem, Kind, New, OpenOptions, ROOT};
use meta::kv::MemoryIndex;
use plan::TargetId;
use plan::placement::Placement;
use std::path::PathBuf;
use std::sync::Arc;
use volume::target::{Memory, Target};

/// Targets with a volume.
pub(crate) struct Lab {
    label: Label,
    pub disks: Vec<Arc<Memory>>,
}

impl Lab {
    pub fn new(code: &str, targets: usize) -> Self {
        let shape = ec::parse(code).unwrap().shape();
        let member = |number: usize| Member::new(TargetId(number as u16), PathBuf::new());
        let label = Label {
            format: 1,
            volume: format!("{:032x}", 0x7e57),
            name: "test".into(),
            code: code.into(),
            chunk_bytes: 6 << 20,
            durability: shape.k,
            placement: Placement::default(),
            coding: plan::coding::Coding::Client,
            generation: 1,
            target: None,
            targets: (0..targets).map(member).collect(),
        };
        let lab = Self { label, disks: (0..targets).map(|_| Arc::new(Memory::default())).collect() };
        FileSystem::create_on(&lab.label, lab.places()).unwrap();
        lab
    }

    fn places(&self) -> Vec<(TargetId, Arc<dyn Target>)> {
        let place = |(number, disk): (usize, &Arc<Memory>)| (TargetId(number as u16), disk.clone() as Arc<dyn Target>);
        self.disks.iter().enumerate().map(place).collect()
    }

    pub fn open(&self) -> Arc<FileSystem> {
        let index = Box::new(MemoryIndex::default());
        FileSystem::open_on(self.label.clone(), self.places(), index, OpenOptions::default()).unwrap()
    }
}

/// A new file in the root directory.
pub(crate) fn make(fs: &FileSystem, name: &str) -> u64 {
    let new = New { kind: Kind::File, mode: 0o644, uid: 1, gid: 2, device: 0, link: Vec::new() };
    fs.make(ROOT, name.as_bytes(), &new).unwrap().ino
}
