//! Listings.

use super::Handler;
use crate::files::Files;
use fs::{Ino, Listed};
use fuser::Errno;

/// Cookies of entries start here; smaller ones are for `.` and `..`.
pub(super) const FIRST_COOKIE: u64 = 256;
/// How many entries to ask for at first, and at most. It is not known beforehand how many fit into
/// an answer: with attributes 20 to 200, without 80 to 800. Asking for more each time wastes little
/// in either case.
const BATCH_ENTRIES: std::ops::RangeInclusive<usize> = 32..=512;

impl<F: Files> Handler<F> {
    /// Hands the entries behind a cookie to `add` until it says that the answer is full.
    pub(super) fn list(&self, ino: Ino, offset: u64, mut add: impl FnMut(&Listed) -> bool) -> Result<(), Errno> {
        for (cookie, name) in [(1, "."), (2, "..")] {
            if offset < cookie {
                let attributes = self.caller.call("listing", ino, |files| {
                    files.attributes(if cookie == 1 { ino } else { files.parent(ino)? })
                })?;
                if add(&Listed { cookie, name: name.into(), attributes }) {
                    return Ok(());
                }
            }
        }
        let mut cookie = if offset < FIRST_COOKIE { 0 } else { offset };
        let mut limit = *BATCH_ENTRIES.start();
        loop {
            let batch = self.caller.call("listing", ino, |files| files.list(ino, cookie, limit))?;
            if batch.iter().any(&mut add) || batch.len() < limit {
                return Ok(());
            }
            cookie = batch.last().map_or(cookie, |last| last.cookie);
            limit = (2 * limit).min(*BATCH_ENTRIES.end());
        }
    }
}
