//! Panics on threads that must go on.

use crate::store::Stores;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Does `what` on a thread that goes on. A panic in it is counted and told to `say`: the result is
/// None then.
pub(crate) fn caught<T>(what: &str, stores: &Stores, say: impl FnOnce(&str), work: impl FnOnce() -> T) -> Option<T> {
    // A panic leaves the same state as an error does: the next run does the work.
    let done = catch_unwind(AssertUnwindSafe(work)).ok();
    if done.is_none() {
        stores.reports.count_defect();
        let line = format!("a defect in {what}, see the message about a panic; please report it");
        let _ = catch_unwind(AssertUnwindSafe(|| say(&line)));
    }
    done
}
