//! Journals and snapshots whose checksums are right and whose content is not: opening them answers,
//! and what it opens once, it opens again.

mod frames;

use meta::journal::{Access, JournalLimits, Journaled, Options};
use meta::kv::{Batch, Kv, MemoryIndex, Pair};
use plan::TargetId;
use proptest::prelude::*;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use volume::target::{Durable, Holder, Memory, Target, TargetFile};

/// Panics in threads of the engine, which makes errors of them.
static PANICS: AtomicUsize = AtomicUsize::new(0);

fn count_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.fetch_add(1, Ordering::Relaxed);
            before(info);
        }));
    });
}

fn targets(files: [Vec<(TargetFile, Vec<u8>)>; 2]) -> Vec<(TargetId, Arc<dyn Target>)> {
    let target = |files: Vec<(TargetFile, Vec<u8>)>| {
        let target = Memory::default();
        for (file, bytes) in files {
            target.write(file, 0, &[IoSlice::new(&bytes)], Durable::Later).unwrap();
        }
        Arc::new(target) as Arc<dyn Target>
    };
    (0..).map(TargetId).zip(files.map(target)).collect()
}

fn open(targets: &[(TargetId, Arc<dyn Target>)], accept_loss: bool) -> Result<Journaled, meta::kv::KvError> {
    Journaled::open(Options {
        volume: frames::VOLUME,
        targets: targets.to_vec(),
        voters: targets.iter().map(|(id, _)| *id).collect(),
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
    })
}

fn everything(journal: &Journaled) -> Vec<Pair> {
    journal.scan(&[]..&[u8::MAX; 64], usize::MAX).unwrap()
}

/// Opens what a script describes. Returns whether it was opened.
fn opened(script: &[u8], accept_loss: bool) -> bool {
    let targets = targets(frames::files(script));
    let Ok(journal) = open(&targets, accept_loss) else { return false };
    let mut batch = Batch::default();
    batch.put(*b"a key", *b"a value");
    let committed = journal.commit(batch);
    let wanted = everything(&journal);
    let committed = committed.and_then(|_| journal.close());
    drop(journal);
    if committed.is_ok() {
        let again = open(&targets, false).expect("what was made durable can be opened");
        assert!(everything(&again) == wanted, "it has something else now");
    }
    true
}

#[test]
fn a_script_of_zeroes_is_a_journal() {
    assert!(opened(&[], false));
    let script = [&[0, 0, 0, 0][..], &[0; 6], &[1], &[0; 5], &[1, 0, 1, b'k', 1, b'v']].concat();
    assert!(opened(&script, false));
    let [files, _] = frames::files(&script);
    assert_eq!(files.len(), 2);
}

proptest! {
    #[test]
    fn any_frames_with_sound_checksums_are_opened_or_refused(
        script in prop::collection::vec(prop_oneof![4 => Just(0), 2 => 0u8..4, 3 => any::<u8>()], 0..200),
        accept_loss: bool,
    ) {
        count_panics();
        let before = PANICS.load(Ordering::Relaxed);
        opened(&script, accept_loss);
        prop_assert_eq!(PANICS.load(Ordering::Relaxed), before, "a thread panicked");
    }
}
