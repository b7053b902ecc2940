//! What was read a moment ago, so that not each request reads it: keys and their rights, and what
//! is set for buckets.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long this gateway may go on with what another one changed since.
const KNOWN_FOR: Duration = Duration::from_secs(5);
/// The most things that are known at a time.
const MAX_KNOWN: usize = 10_000;

/// What is known, by name.
pub struct Known<T>(Mutex<All<T>>);

struct All<T> {
    things: HashMap<String, (Instant, T)>,
    /// How many changes this gateway made: what was read before one is not kept.
    changes: u64,
}

impl<T> Default for Known<T> {
    fn default() -> Self {
        Self(Mutex::new(All { things: HashMap::new(), changes: 0 }))
    }
}

impl<T: Clone> Known<T> {
    fn all(&self) -> MutexGuard<'_, All<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of a thing by now.
    pub fn fresh(&self, name: &str) -> Option<T> {
        let all = self.all();
        all.things.get(name).filter(|(since, _)| since.elapsed() < KNOWN_FOR).map(|(_, thing)| thing.clone())
    }

    /// Reads a thing, and keeps it. If a change was made meanwhile, it may be older than that, and
    /// is not kept.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn read<E>(&self, name: &str, read: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        // It is as old as the beginning of the reading.
        let (since, before) = (Instant::now(), self.all().changes);
        let thing = read()?;
        let mut all = self.all();
        if all.changes == before {
            if all.things.len() >= MAX_KNOWN {
                all.things.clear();
            }
            all.things.insert(name.to_owned(), (since, thing.clone()));
        }
        Ok(thing)
    }

    /// This gateway changed a thing, made it or removed it.
    pub fn forget(&self, name: &str) {
        let mut all = self.all();
        all.changes += 1;
        all.things.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_before_a_change_is_not_kept() {
        let known = Known::default();
        let read = || known.read("b", || Ok::<_, ()>(1));
        assert_eq!((read(), known.fresh("b")), (Ok(1), Some(1)));
        // One reads, and another one changes something before that is kept.
        let changed = known.read("b", || {
            known.forget("b");
            Ok::<_, ()>(1)
        });
        assert_eq!((changed, known.fresh("b")), (Ok(1), None));
        assert_eq!((read(), known.fresh("b")), (Ok(1), Some(1)));
        assert_eq!((known.read("c", || Err::<i32, _>(())), known.fresh("c")), (Err(()), None));
    }
}
