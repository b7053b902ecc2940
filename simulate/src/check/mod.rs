//! Checks of a history. Each returns what is wrong, one a line. None raises a false alarm: an
//! uncertain result is allowed.

pub mod appends;
pub mod counters;
pub mod names;
pub mod registers;

use crate::history::All;

/// All that is wrong with a history, without the final contents.
pub fn all(history: &All) -> Vec<String> {
    [names::check(history), registers::check(history), counters::check(history)].concat()
}
