//! Recognizes repeated requests. A client repeats a request when the server was killed before its
//! answer arrived, although it carried the request out. A transaction that must not happen twice
//! therefore records which request it is, and its answer. The client confirms answers with later
//! requests; their records are then removed.

use crate::kv::Batch;
use crate::record::{decode, encode};
use crate::transaction::{Transaction, run};
use crate::{Error, Meta, Result, keys};
use plan::{SessionId, TxId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Mutex;
use volume::lock;

/// One in `FORGET_PERIOD` requests (a power of two) removes the records of answered ones, at most
/// `FORGET_BATCH` at a time.
const FORGET_PERIOD: u64 = 16;
const FORGET_BATCH: usize = 256;
/// How many sessions' floors are remembered before all floors are dropped.
const FLOORS: usize = 4096;

/// Whether this request removes earlier records. It is not simply every sixteenth number: a client
/// may send the same number of unrecorded requests between recorded ones, so that no recorded one
/// has such a number.
fn forgets(request: u64) -> bool {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    request.wrapping_mul(GOLDEN) >> (u64::BITS - FORGET_PERIOD.trailing_zeros()) == 0
}

/// A request of a session that must be carried out only once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// The session.
    pub session: SessionId,
    /// The number of the request in the session.
    pub request: u64,
    /// No request below this number will be repeated.
    pub answered: u64,
}

/// Up to which request of each session all records are removed. Without this, each search would
/// step over all keys deleted since the last checkpoint of the index.
#[derive(Default)]
pub(crate) struct Floors(Mutex<HashMap<SessionId, Floor>>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Floor {
    /// All records of requests below this are removed.
    at: u64,
    /// The last request that removed more, and the floor if its transaction was committed.
    next: Option<(u64, u64)>,
}

impl Floors {
    fn of(&self, session: SessionId) -> Floor {
        lock(&self.0).get(&session).copied().unwrap_or_default()
    }

    fn set(&self, session: SessionId, floor: Floor) {
        let mut floors = lock(&self.0);
        if floors.len() >= FLOORS && !floors.contains_key(&session) {
            floors.clear();
        }
        floors.insert(session, floor);
    }
}

impl Meta {
    /// Records in a transaction which request it is, if it must not be carried out twice, and its
    /// answer.
    pub(crate) fn note<T: Serialize>(
        &self,
        t: &mut Transaction<'_>,
        idempotency_key: Option<&IdempotencyKey>,
        answer: &T,
    ) -> Result<()> {
        let Some(idempotency_key) = idempotency_key else { return Ok(()) };
        t.put_bytes(keys::request(idempotency_key.session, idempotency_key.request), encode(answer));
        if forgets(idempotency_key.request) {
            self.forget_answered(t, idempotency_key)?;
        }
        Ok(())
    }

    /// Removes, in a transaction, the records of a session's requests that will not be repeated.
    fn forget_answered(&self, t: &mut Transaction<'_>, idempotency_key: &IdempotencyKey) -> Result<()> {
        let &IdempotencyKey { session, request, answered } = idempotency_key;
        let floor = self.floors.of(session);
        let at = match floor.next {
            // The record of request `by` proves that its transaction was committed. It exists until
            // a later request removes it.
            Some((by, next)) if self.kv.get(&keys::request(session, by))?.is_some() => next,
            _ => floor.at,
        };
        let found = t.scan(&(keys::request(session, at)..keys::request(session, answered.max(at))), FORGET_BATCH)?;
        let next = match found.last() {
            Some((key, _)) if found.len() == FORGET_BATCH => keys::number(key, 9) + 1,
            _ => answered.max(at),
        };
        found.into_iter().for_each(|(key, _)| t.delete(key));
        self.floors.set(session, Floor { at, next: Some((request, next)) });
        Ok(())
    }

    /// The answer of a request that was carried out; `None` if it was not.
    ///
    /// # Errors
    /// When the metadata cannot be read; `Unavailable` when the request was carried out by an
    /// earlier version, which stored no answers; `Corrupt` when the answer is another one.
    pub fn answer_of<T: DeserializeOwned>(&self, idempotency_key: &IdempotencyKey) -> Result<Option<T>> {
        let Some(stored) = self.kv.get(&keys::request(idempotency_key.session, idempotency_key.request))? else {
            return Ok(None);
        };
        decode(&stored).map(Some).map_err(|why| match stored.is_empty() {
            true => Error::Unavailable("it was done by an earlier version, and how that ended is not known".into()),
            false => why,
        })
    }

    /// The number of the last transaction.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn last(&self) -> Result<TxId> {
        Ok(self.kv.commit(Batch::default())?.seq)
    }

    /// Removes the records of all sessions except these.
    ///
    /// # Errors
    /// When the metadata cannot be written.
    pub fn forget_requests(&self, but: &BTreeSet<SessionId>) -> Result<()> {
        self.forget_requests_in(keys::under(vec![keys::REQUEST]), |session| !but.contains(&session))
    }

    /// Removes the records of a session that has ended.
    ///
    /// # Errors
    /// When the metadata cannot be written.
    pub fn forget_requests_of(&self, session: SessionId) -> Result<()> {
        self.forget_requests_in(keys::requests(session), |_| true)
    }

    fn forget_requests_in(&self, range: Range<Vec<u8>>, has_ended: impl Fn(SessionId) -> bool) -> Result<()> {
        let Range { start: mut from, end } = range;
        loop {
            let found = self.kv.scan(&from..&end, FORGET_BATCH)?;
            let is_last = found.len() < FORGET_BATCH;
            if let Some((last, _)) = found.last() {
                from = [&last[..], &[0]].concat();
            }
            let gone: Vec<Vec<u8>> = found
                .into_iter()
                .map(|(key, _)| key)
                .filter(|key| has_ended(SessionId(keys::number(key, 1))))
                .collect();
            if !gone.is_empty() {
                run(&*self.kv, |t| {
                    gone.iter().for_each(|key| t.delete(key.clone()));
                    Ok(())
                })?;
            }
            if is_last {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::Memory;
    use crate::{AttributeChange, ContentEdit, FileKind, New, ROOT, Rename, RenameMode, Resize, Time};
    use plan::Ino;
    use std::sync::Arc;

    #[test]
    fn requests_are_known_until_they_were_answered() {
        let meta = Meta::open(Arc::new(Memory::new(crate::MERGE)), (0, 0), Time::default()).unwrap();
        let idempotency_key = |session, request, answered| IdempotencyKey { session, request, answered };
        let carry_out = |idempotency_key: IdempotencyKey| {
            meta.change_contents_once(&[] as &[(Ino, ContentEdit)], Some(&idempotency_key)).unwrap()
        };
        let was_done = |idempotency_key: IdempotencyKey| meta.answer_of::<()>(&idempotency_key).unwrap().is_some();
        let last = (10..).find(|request| forgets(*request)).unwrap();
        for request in 1..=last {
            carry_out(idempotency_key(SessionId(7), request, request.saturating_sub(2)));
        }
        carry_out(idempotency_key(SessionId(8), 3, 0));
        assert!((1..last - 2).all(|request| !was_done(idempotency_key(SessionId(7), request, 0))));
        assert!((last - 2..=last).all(|request| was_done(idempotency_key(SessionId(7), request, 0))));
        assert!(was_done(idempotency_key(SessionId(8), 3, 0)) && !was_done(idempotency_key(SessionId(8), 4, 0)));
        meta.forget_requests(&BTreeSet::from([SessionId(8)])).unwrap();
        assert!(!was_done(idempotency_key(SessionId(7), last, 0)) && was_done(idempotency_key(SessionId(8), 3, 0)));
        for request in 1..=2 * FORGET_BATCH as u64 {
            [7, 9].iter().for_each(|session| _ = carry_out(idempotency_key(SessionId(*session), request, 0)));
        }
        meta.forget_requests_of(SessionId(7)).unwrap();
        let left = meta.scan_all(keys::under(vec![keys::REQUEST])).unwrap();
        assert_eq!(left.len(), 1 + 2 * FORGET_BATCH);
        meta.forget_requests(&BTreeSet::from([SessionId(8)])).unwrap();
        assert_eq!(meta.scan_all(keys::under(vec![keys::REQUEST])).unwrap().len(), 1);
    }

    #[test]
    fn each_operation_keeps_its_answer() {
        let meta = Meta::open(Arc::new(Memory::new(crate::MERGE)), (0, 0), Time::default()).unwrap();
        let now = Time { seconds: 5, nanoseconds: 6 };
        let next = std::cell::Cell::new(0);
        let idempotency_key = || {
            next.set(next.get() + 1);
            IdempotencyKey { session: SessionId(7), request: next.get(), answered: 0 }
        };
        let new = |kind| New { kind, mode: 0o755, uid: 1, gid: 2, device: 0, link: Vec::new() };
        let mut asked = idempotency_key();
        let file = meta.make_once(ROOT, b"file", &new(FileKind::File), now, Some(&asked)).unwrap().0;
        assert_eq!(meta.answer_of(&asked), Ok(Some(file)));
        asked = idempotency_key();
        let directory = meta.make_once(ROOT, b"directory", &new(FileKind::Directory), now, Some(&asked)).unwrap().0;
        assert_eq!(meta.answer_of(&asked), Ok(Some(directory)));
        asked = idempotency_key();
        let linked = meta.link_once(file.ino, ROOT, b"link", now, Some(&asked)).unwrap().0;
        assert_eq!(meta.answer_of(&asked), Ok(Some(linked)));
        let change = AttributeChange { mode: Some(0o600), ..AttributeChange::default() };
        for ino in [file.ino, directory.ino] {
            asked = idempotency_key();
            let changed = meta.set_attributes_once(ino, change, now, Some(&asked)).unwrap().0;
            assert_eq!((changed.mode, meta.answer_of(&asked)), (0o600, Ok(Some(changed))));
        }
        asked = idempotency_key();
        let edit = ContentEdit { resize: Resize::To(9), ..ContentEdit::default() };
        let changed = meta.change_content_once(file.ino, &edit, Some(&asked)).unwrap().0;
        assert_eq!((changed.size, meta.answer_of(&asked)), (9, Ok(Some(changed))));
        asked = idempotency_key();
        let removed = meta.unlink_once(ROOT, b"link", file.ino, false, now, Some(&asked)).unwrap();
        assert_eq!(meta.answer_of(&asked), Ok(Some((removed.last, removed.orphan))));
        asked = idempotency_key();
        let removed = meta.remove_directory_once(ROOT, b"directory", directory.ino, true, now, Some(&asked)).unwrap();
        assert_eq!(meta.answer_of(&asked), Ok(Some((removed.last, removed.orphan))));
        assert!(removed.last && removed.orphan);
        let other = meta.make(ROOT, b"other", &new(FileKind::File), now).unwrap().0.ino;
        let (from, to) = ((ROOT, b"file".to_vec()), (ROOT, b"other".to_vec()));
        let rename = Rename { from, to, mode: RenameMode::Replace, replaced: Some(other), keep: true };
        asked = idempotency_key();
        let removed = meta.rename_once(&rename, now, Some(&asked)).unwrap().0.unwrap();
        assert_eq!(meta.answer_of(&asked), Ok(Some(Some((removed.ino, removed.last, removed.orphan)))));
        assert_eq!(meta.answer_of::<()>(&idempotency_key()), Ok(None));
    }

    /// Scans step over deleted keys until the next checkpoint, so their number must not grow with
    /// each request.
    #[test]
    fn what_is_forgotten_is_not_looked_for_again() {
        let meta = Meta::open(Arc::new(Memory::new(crate::MERGE)), (0, 0), Time::default()).unwrap();
        let carry_out = |request: u64, fails: bool| {
            let idempotency_key = IdempotencyKey { session: SessionId(7), request, answered: request };
            let fail = |t: &mut Transaction<'_>| {
                meta.note(t, Some(&idempotency_key), &())?;
                Err::<(), Error>(Error::NotFound)
            };
            match fails {
                true => assert!(run(&*meta.kv, fail).is_err()),
                false => drop(meta.change_contents_once(&[] as &[(Ino, ContentEdit)], Some(&idempotency_key)).unwrap()),
            }
        };
        let forgetting: Vec<u64> = (1..2000).filter(|&request| forgets(request)).collect();
        for request in 1..2000 {
            let fails = forgetting.iter().position(|&other| other == request).is_some_and(|place| place % 3 == 0);
            carry_out(request, fails);
            let floor = meta.floors.of(SessionId(7));
            if let (true, Some((by, next))) = (forgets(request), floor.next) {
                assert_eq!((by, next), (request, request));
                let kept = (1..request).filter(|&request| {
                    meta.answer_of::<()>(&IdempotencyKey { session: SessionId(7), request, answered: 0 })
                        .unwrap()
                        .is_some()
                });
                assert!(fails || kept.count() == 0);
                // The start of its search: the floor that the last successful one left.
                let last = forgetting.iter().enumerate().rev();
                let last = last.map(|(place, &other)| (place % 3 == 0, other));
                let last = last.filter(|&(failed, other)| !failed && other < request).map(|(_, other)| other).next();
                assert_eq!(floor.at, last.unwrap_or(0));
            }
        }
        (0..=FLOORS as u64).for_each(|session| meta.floors.set(SessionId(session), Floor::default()));
        assert!(meta.floors.0.lock().unwrap().len() <= FLOORS);
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
