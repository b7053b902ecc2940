//! Repairs already worked out, by pattern: an inversion or an XOR program is made once, then found.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Patterns remembered for one code; a failing disk makes a few, a scrub over many failures many.
const MAX_PATTERNS: usize = 1024;

type Pattern = (Vec<usize>, Vec<usize>);

/// Values by (lost, have).
pub(crate) struct Cache<T> {
    values: Mutex<HashMap<Pattern, Arc<T>>>,
}

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self { values: Mutex::default() }
    }
}

impl<T> Cache<T> {
    /// The value of a pattern over `blocks` blocks, made when it is not there yet.
    ///
    /// # Panics
    /// When a block is out of range, repeated, or both lost and there: programmer errors.
    pub fn get<E>(
        &self,
        blocks: usize,
        lost: &[usize],
        have: &[usize],
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        let mut seen = vec![false; blocks];
        for &block in lost.iter().chain(have) {
            assert!(!std::mem::replace(&mut seen[block], true), "block {block} is named twice");
        }
        let pattern = (lost.to_vec(), have.to_vec());
        if let Some(value) = self.values.lock().unwrap_or_else(PoisonError::into_inner).get(&pattern) {
            return Ok(value.clone());
        }
        // Made without the lock: it may take a millisecond, and two makers of one pattern do no
        // harm.
        let value = Arc::new(make()?);
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        if values.len() >= MAX_PATTERNS {
            values.clear();
        }
        values.insert(pattern, value.clone());
        Ok(value)
    }
}
