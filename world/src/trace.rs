//! What happened in a run: a hash of all of it, and the last lines.

use std::collections::VecDeque;

/// Number of lines that are kept for a failure.
const MAX_KEPT_LINES: usize = 200;

/// The events of a run. Two runs with one seed have the same hash.
#[derive(Debug)]
pub(crate) struct Trace {
    hash: u64,
    last: VecDeque<String>,
    /// Every line is printed, too.
    pub loud: bool,
}

impl Trace {
    pub fn new(loud: bool) -> Self {
        Self { hash: 0xcbf2_9ce4_8422_2325, last: VecDeque::new(), loud }
    }

    /// Takes a number into the hash: a choice of the scheduler.
    pub fn mix(&mut self, number: u64) {
        // FNV-1a, with words instead of bytes.
        self.hash = (self.hash ^ number).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(17);
    }

    pub fn note(&mut self, line: String) {
        line.bytes().for_each(|byte| self.mix(u64::from(byte)));
        if self.loud {
            eprintln!("{line}");
        }
        if self.last.len() == MAX_KEPT_LINES {
            self.last.pop_front();
        }
        self.last.push_back(line);
    }

    pub fn hash(&self) -> u64 {
        self.hash
    }

    pub fn last(&self) -> impl Iterator<Item = &String> {
        self.last.iter()
    }
}
