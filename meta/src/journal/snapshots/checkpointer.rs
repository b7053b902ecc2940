//! The checkpointer thread moves committed changes to the index and starts snapshots. A second
//! thread writes each snapshot, so neither waits for the other, and commits wait for neither.

use super::super::guard::guarded;
use super::super::shared::Shared;
use super::snapshot::{self, Aim};
use crate::kv::{Index, KvError, Layer, View};
use plan::TxId;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// The name of the thread that writes a snapshot.
const SNAPSHOT: &str = "weft-snapshot";

/// Runs until the engine stops or fails.
pub(in crate::journal) fn run(shared: &Arc<Shared>) {
    let mut writing: Option<JoinHandle<()>> = None;
    while let Ok(tasks) = shared.wait_tasks(|tasks| tasks.stop || tasks.flush || tasks.snapshot && !tasks.busy) {
        if tasks.stop {
            break;
        }
        let snapshot = tasks.snapshot && !tasks.busy;
        drop(tasks);
        shared.task(|tasks| {
            tasks.flush = false;
            tasks.snapshot &= !snapshot;
            tasks.busy |= snapshot;
        });
        let aim = Aim::now(shared);
        let begun = flush(shared).and_then(|mut last| {
            // A commit that has its number reaches memory at once, but may not be there yet.
            while snapshot && last < aim.committed {
                thread::yield_now();
                last = flush(shared)?;
            }
            shared.task(|tasks| tasks.flushes += 1);
            if !snapshot {
                return Ok(());
            }
            if let Some(thread) = writing.take() {
                // The thread has ended, or the task would still be busy.
                let _ = thread.join();
            }
            let view = shared.index.view()?;
            let checkpointer = shared.clone();
            let write = move || guarded(&checkpointer, SNAPSHOT, || write(&checkpointer, &aim, &*view, last));
            let thread = thread::Builder::new().name(SNAPSHOT.into()).spawn(write);
            writing = Some(thread.map_err(|error| KvError::Unavailable(error.to_string()))?);
            Ok(())
        });
        if let Err(error) = begun {
            shared.fail(&error);
            break;
        }
    }
    if let Some(thread) = writing {
        let _ = thread.join();
    }
}

fn write(shared: &Arc<Shared>, aim: &Aim, view: &dyn View, last: TxId) {
    let begun = Instant::now();
    let result = snapshot::write(shared, aim, view, last);
    {
        let mut files = shared.files();
        files.last_try = Some((begun, begun.elapsed(), result.is_ok()));
        files.underway = 0;
        if let Err(error) = result {
            files.last_error = Some(format!("snapshot: {error}"));
        }
        files.due = files.written + shared.limits.snapshot_bytes.max(files.snapshot_bytes);
        files.snapshotting.clear();
    }
    // A mirror may be whole now, and a target that took a part of it may be used again.
    shared.ask();
    shared.task(|tasks| {
        tasks.busy = false;
        tasks.snapshots += 1;
    });
}

/// Brings the index up to what was committed when the flush began, and returns the last transaction
/// in it.
fn flush(shared: &Shared) -> Result<TxId, KvError> {
    let frozen = {
        let mut layers = shared.layers_mut();
        let last = layers.active.last;
        let frozen = Arc::new(std::mem::replace(&mut layers.active, Layer::after(last)));
        layers.frozen = Some(frozen.clone());
        frozen
    };
    // The index must never be ahead of the journal: it would have transactions that the mirrors
    // lack.
    shared.sync_at_last(frozen.last)?;
    let state = shared.state_at(frozen.last);
    shared.index.apply(&mut frozen.iter(), state, true)?;
    shared.layers_mut().frozen = None;
    Ok(frozen.last)
}
