//! Claims on chunk sets: only one thread at a time moves or removes the chunks of a set. Otherwise
//! one thread could treat the new chunks of another as orphan chunks.

use plan::SetId;
use std::collections::HashSet;
use std::sync::{Condvar, Mutex};
use volume::{lock, unpoisoned};

/// The sets that are claimed.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    taken: Mutex<HashSet<SetId>>,
    given_back: Condvar,
}

/// An exclusive claim on the chunks of a set, until it is dropped.
pub(crate) struct Claim<'a> {
    claims: &'a Claims,
    set: SetId,
}

impl Claims {
    /// Waits until the set is free and claims it.
    pub fn take(&self, set: SetId) -> Claim<'_> {
        let taken = self.given_back.wait_while(lock(&self.taken), |taken| taken.contains(&set));
        unpoisoned(taken).insert(set);
        Claim { claims: self, set }
    }

    /// Claims the set; None when another thread has it.
    pub fn try_take(&self, set: SetId) -> Option<Claim<'_>> {
        let free = lock(&self.taken).insert(set);
        // Create the claim only if the set is free: dropping a claim frees the set.
        free.then(|| Claim { claims: self, set })
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        lock(&self.claims.taken).remove(&self.set);
        self.claims.given_back.notify_all();
    }
}
