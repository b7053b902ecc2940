//! The record of a simulation: all events in order. Two runs with the same seed have the same
//! record.

use std::collections::VecDeque;
use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard};

/// Number of lines that are printed of a failed run.
const MAX_PRINTED_LINES: usize = 60;

/// The events so far. Clones share one record.
#[derive(Clone, Default)]
pub struct Record(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    hash: blake3::Hasher,
    last: VecDeque<String>,
    wrong: Option<String>,
}

impl Record {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    /// Records an event.
    pub fn note(&self, what: impl Display) {
        let when = turmoil::sim_elapsed().map_or(String::new(), |time| format!("{:9.3} ", time.as_secs_f64()));
        let line = format!("{when}{what}");
        if std::env::var_os("WEFT_SIM_TRACE").is_some() {
            eprintln!("{line}");
        }
        let mut inner = self.inner();
        inner.hash.update(line.as_bytes());
        if inner.last.len() == MAX_PRINTED_LINES {
            inner.last.pop_front();
        }
        inner.last.push_back(line);
    }

    /// Records an error.
    pub fn wrong(&self, what: impl Display) {
        self.note(format_args!("WRONG: {what}"));
        self.inner().wrong.get_or_insert(what.to_string());
    }

    /// Whether an error was recorded.
    pub fn is_wrong(&self) -> bool {
        self.inner().wrong.is_some()
    }

    /// The hash of the record.
    ///
    /// # Panics
    /// When an error was recorded; the events before it are printed.
    pub fn finish(&self) -> blake3::Hash {
        let inner = self.inner();
        if let Some(wrong) = &inner.wrong {
            inner.last.iter().for_each(|line| eprintln!("{line}"));
            panic!("{wrong}");
        }
        inner.hash.finalize()
    }
}
