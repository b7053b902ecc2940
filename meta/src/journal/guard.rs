//! The threads of the engine.

use super::panics::caught;
use super::shared::Shared;
use crate::kv::KvError;

/// Runs a thread of the engine. A panic fails the engine.
pub(super) fn guarded(shared: &Shared, thread: &str, run: impl FnOnce()) {
    if let Err(why) = caught(thread, run) {
        shared.fail(&KvError::Unavailable(why));
    }
}
