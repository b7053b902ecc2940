//! Opening metadata whose files on the targets are anything.
#![no_main]

use meta::journal::{Journaled, Limits, Options};
use meta::kv::MemoryIndex;
use plan::TargetId;
use std::io::IoSlice;
use std::sync::Arc;
use volume::target::{Memory, Target, TargetFile};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let (first, second) = bytes.split_at(bytes.len() / 2);
    let targets = [TargetId(0), TargetId(1)].map(|id| {
        let target = Memory::default();
        target.write(TargetFile::Journal { first: 1 }, 0, &[IoSlice::new(bytes)]).unwrap();
        target.write(TargetFile::Journal { first: 2 }, 0, &[IoSlice::new(first)]).unwrap();
        target.write(TargetFile::Snapshot { last: 1 }, 0, &[IoSlice::new(second)]).unwrap();
        (id, Arc::new(target) as Arc<dyn Target>)
    });
    let options = Options {
        volume: [7; 16],
        targets: targets.to_vec(),
        mirrors: 2,
        index: Box::new(MemoryIndex::default()),
        merge: meta::MERGE,
        limits: Limits::default(),
        accept_loss: bytes.first().is_some_and(|byte| byte % 2 == 0),
    };
    if let Ok(journal) = Journaled::open(options) {
        let _ = journal.close();
    }
});
