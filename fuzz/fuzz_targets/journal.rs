//! Opening metadata whose files on the targets are anything, as they stand and with the checksums
//! of their frames right.
#![no_main]

#[path = "../../meta/tests/hostile/frames.rs"]
mod frames;

use meta::journal::{Access, JournalLimits, Journaled, Options};
use meta::kv::{Batch, Kv, MemoryIndex};
use plan::{TargetId, TxId};
use std::io::IoSlice;
use std::sync::Arc;
use volume::target::{Durable, Holder, Memory, Target, TargetFile};

type Files = Vec<(TargetFile, Vec<u8>)>;

fn open(files: [Files; 2], accept_loss: bool) {
    let target = |files: Files| {
        let target = Memory::default();
        for (file, bytes) in files {
            target.write(file, 0, &[IoSlice::new(&bytes)], Durable::Later).unwrap();
        }
        Arc::new(target) as Arc<dyn Target>
    };
    let options = Options {
        volume: frames::VOLUME,
        targets: (0..).map(TargetId).zip(files.map(target)).collect(),
        voters: vec![TargetId(0), TargetId(1)],
        losses: 1,
        generation: 1,
        holder: Holder::default(),
        lease: None,
        access: Access::Write,
        index: Box::new(MemoryIndex::default()),
        merge: meta::MERGE,
        limits: JournalLimits::default(),
        accept_loss,
        local_wal: None,
    };
    if let Ok(journal) = Journaled::open(options) {
        let mut batch = Batch::default();
        batch.put(*b"a key", *b"a value");
        let _ = journal.commit(batch);
        let _ = journal.close();
    }
}

fn plain(bytes: &[u8]) -> Files {
    let (first, second) = bytes.split_at(bytes.len() / 2);
    [
        (TargetFile::Journal { first: TxId(1) }, bytes),
        (TargetFile::Journal { first: TxId(2) }, first),
        (TargetFile::Snapshot { last: TxId(1) }, second),
    ]
    .map(|(file, bytes)| (file, bytes.to_vec()))
    .to_vec()
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((&how, bytes)) = bytes.split_first() else { return };
    let accept_loss = how % 2 == 0;
    // The panics of threads, which become errors of the engine, end the fuzzer, too.
    if how % 8 < 2 {
        open([plain(bytes), plain(bytes)], accept_loss);
    } else {
        open(frames::files(bytes), accept_loss);
    }
});
