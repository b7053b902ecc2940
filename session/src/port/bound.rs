//! Work that belongs to one session, or to one opening of the volume: its requests are carried out
//! there or not at all. A client may begin work and then lose its lease. The work must not continue
//! in the client's next session. All requests of a piece of work leave from its own thread.

use plan::SessionId;
use std::cell::Cell;

thread_local! {
    static SESSION: Cell<Option<SessionId>> = const { Cell::new(None) };
    static OPENING: Cell<Option<u64>> = const { Cell::new(None) };
    static ANSWERED: Cell<u64> = const { Cell::new(0) };
}

/// Restores the previous session when dropped, also after a panic.
struct Before(Option<SessionId>);

impl Drop for Before {
    fn drop(&mut self) {
        SESSION.set(self.0);
    }
}

/// Runs `work`; its requests belong to `session`, if given. Nested work keeps the session of the
/// outer work.
pub fn within_session<T>(session: Option<SessionId>, work: impl FnOnce() -> T) -> T {
    let _before = Before(SESSION.get());
    SESSION.set(SESSION.get().or(session));
    work()
}

/// The same for work that belongs to `session`, whatever the work around it belongs to.
pub fn only_within_session<T>(session: SessionId, work: impl FnOnce() -> T) -> T {
    let _before = Before(SESSION.replace(Some(session)));
    work()
}

/// The session that the requests of this thread belong to. `None` means the current session.
pub fn session_of_work() -> Option<SessionId> {
    SESSION.get()
}

/// Restores the previous opening when dropped, also after a panic.
struct OpeningBefore(Option<u64>);

impl Drop for OpeningBefore {
    fn drop(&mut self) {
        OPENING.set(self.0);
    }
}

/// Runs `work`, whose requests are only for this opening of the volume: they tell its server what
/// another one learns in another way.
pub fn within_opening<T>(opening: u64, work: impl FnOnce() -> T) -> T {
    let _before = OpeningBefore(OPENING.get());
    OPENING.set(Some(opening));
    work()
}

/// The opening that the requests of this thread are for. `None` means the current one.
pub fn opening_of_work() -> Option<u64> {
    OPENING.get()
}

/// A [`Call`](super::Call) that returns an answer notes whose it is: the number of the opening.
pub fn answered_by(opening: u64) {
    ANSWERED.set(opening);
}

/// The opening whose server gave the last answer to this thread; 0 when that is not known.
pub fn opening_of_answer() -> u64 {
    ANSWERED.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_for_an_opening_ends_with_it() {
        assert_eq!(within_opening(3, || within_opening(4, opening_of_work)), Some(4));
        assert_eq!(opening_of_work(), None);
        answered_by(7);
        assert_eq!(opening_of_answer(), 7);
    }

    #[test]
    fn the_outer_work_says_whose_the_inner_is() {
        let seen = within_session(Some(SessionId(7)), || {
            let inner = within_session(Some(SessionId(8)), session_of_work);
            assert_eq!(only_within_session(SessionId(8), session_of_work), Some(SessionId(8)));
            (session_of_work(), inner, within_session(None, session_of_work))
        });
        assert_eq!(seen, (Some(SessionId(7)), Some(SessionId(7)), Some(SessionId(7))));
        assert_eq!(session_of_work(), None);
        assert!(std::panic::catch_unwind(|| within_session(Some(SessionId(7)), || panic!("as it happens"))).is_err());
        assert_eq!(within_session(None, session_of_work), None);
    }
}
