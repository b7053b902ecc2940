//! Who moves or removes the chunks of a set: one at a time, so that what one makes is no stray to another.

use crate::mutex::lock;
use std::collections::HashSet;
use std::sync::{Condvar, Mutex, PoisonError};

/// The sets that somebody has.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    taken: Mutex<HashSet<u64>>,
    given_back: Condvar,
}

/// Keeps the chunks of a set from others.
pub(crate) struct Claim<'a> {
    claims: &'a Claims,
    set: u64,
}

impl Claims {
    /// Waits until nobody has the set.
    pub fn take(&self, set: u64) -> Claim<'_> {
        let taken = self.given_back.wait_while(lock(&self.taken), |taken| taken.contains(&set));
        taken.unwrap_or_else(PoisonError::into_inner).insert(set);
        Claim { claims: self, set }
    }

    /// None when somebody has the set.
    pub fn try_take(&self, set: u64) -> Option<Claim<'_>> {
        let free = lock(&self.taken).insert(set);
        // Made only if it is free: giving up a claim frees the set.
        free.then(|| Claim { claims: self, set })
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        lock(&self.claims.taken).remove(&self.set);
        self.claims.given_back.notify_all();
    }
}
