//! Requests of clients that may come again, though they were carried out by a server that was killed before its answer arrived. A transaction that must not
//! happen twice says in itself which request it is.

use crate::transaction::{Transaction, run};
use crate::{Meta, Result, keys};
use std::collections::BTreeSet;

/// Requests that were answered are forgotten with one in so many (a power of two), and no more than so many at a time.
const FORGET_EVERY: u64 = 16;
const FORGET_AT_ONCE: usize = 256;

/// Whether those before are forgotten with a request. Not with every sixteenth number: requests that are noted may come with the same number of others between
/// them each time, and then never have such a number.
fn forgets(request: u64) -> bool {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    request.wrapping_mul(GOLDEN) >> (u64::BITS - FORGET_EVERY.trailing_zeros()) == 0
}

/// A request of a session that is carried out once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Once {
    /// The session.
    pub session: u64,
    /// The number of the request in it.
    pub request: u64,
    /// All requests below will not come again.
    pub answered: u64,
}

impl Once {
    /// Notes, in a transaction, that it is this request's.
    pub(crate) fn note(&self, t: &mut Transaction<'_>) -> Result<()> {
        t.put_bytes(keys::request(self.session, self.request), Vec::new());
        if forgets(self.request) {
            let answered = keys::request(self.session, 0)..keys::request(self.session, self.answered);
            for (key, _) in t.scan(&answered, FORGET_AT_ONCE)? {
                t.delete(key);
            }
        }
        Ok(())
    }
}

impl Meta {
    /// Whether a request was carried out.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn was_done(&self, once: &Once) -> Result<bool> {
        Ok(self.kv.get(&keys::request(once.session, once.request))?.is_some())
    }

    /// Forgets the requests of all sessions but these.
    ///
    /// # Errors
    /// When the metadata cannot be written.
    pub fn forget_requests(&self, but: &BTreeSet<u64>) -> Result<()> {
        let found = self.scan_all(keys::under(vec![keys::REQUEST]))?;
        let gone: Vec<Vec<u8>> =
            found.into_iter().map(|(key, _)| key).filter(|key| !but.contains(&keys::number(key, 1))).collect();
        for some in gone.chunks(FORGET_AT_ONCE) {
            run(&*self.kv, |t| {
                some.iter().for_each(|key| t.delete(key.clone()));
                Ok(())
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::Memory;
    use crate::{ContentEdit, Time};
    use std::sync::Arc;

    #[test]
    fn requests_are_known_until_they_were_answered() {
        let meta = Meta::open(Arc::new(Memory::new(crate::MERGE)), (0, 0), Time::default()).unwrap();
        let once = |session, request, answered| Once { session, request, answered };
        let carry_out = |once: Once| meta.change_contents_once(&[] as &[(u64, ContentEdit)], Some(&once)).unwrap();
        let last = (10..).find(|request| forgets(*request)).unwrap();
        for request in 1..=last {
            carry_out(once(7, request, request.saturating_sub(2)));
        }
        carry_out(once(8, 3, 0));
        assert!((1..last - 2).all(|request| !meta.was_done(&once(7, request, 0)).unwrap()));
        assert!((last - 2..=last).all(|request| meta.was_done(&once(7, request, 0)).unwrap()));
        assert!(meta.was_done(&once(8, 3, 0)).unwrap() && !meta.was_done(&once(8, 4, 0)).unwrap());
        meta.forget_requests(&BTreeSet::from([8])).unwrap();
        assert!(!meta.was_done(&once(7, last, 0)).unwrap() && meta.was_done(&once(8, 3, 0)).unwrap());
    }
    #[test]
    fn they_do_not_pile_up_whatever_is_between_them() {
        for step in 1..40 {
            let forgetting = (1..=1000).filter(|number| forgets(number * step)).count();
            assert!(
                (20..150).contains(&forgetting),
                "{forgetting} of 1000, each the number {step} after the one before"
            );
        }
    }
}
