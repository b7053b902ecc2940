//! Work that belongs to one session: what it asks for is done in that session or not at all. What a client began before its lease ran out must not be carried out in
//! the session that it has afterwards. The requests of a piece of work leave on its own thread.

use std::cell::Cell;

thread_local! {
    static SESSION: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Puts back what was there before, also after a panic.
struct Before(Option<u64>);

impl Drop for Before {
    fn drop(&mut self) {
        SESSION.set(self.0);
    }
}

/// Does work whose requests belong to this session, if any. Work inside other work belongs to the session of that.
pub fn within_session<T>(session: Option<u64>, work: impl FnOnce() -> T) -> T {
    let _before = Before(SESSION.get());
    SESSION.set(SESSION.get().or(session));
    work()
}

/// The session that the requests of this thread belong to; None for whichever there is.
pub fn session_of_work() -> Option<u64> {
    SESSION.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outer_work_says_whose_the_inner_is() {
        let seen = within_session(Some(7), || {
            let inner = within_session(Some(8), session_of_work);
            (session_of_work(), inner, within_session(None, session_of_work))
        });
        assert_eq!(seen, (Some(7), Some(7), Some(7)));
        assert_eq!(session_of_work(), None);
        assert!(std::panic::catch_unwind(|| within_session(Some(7), || panic!("as it happens"))).is_err());
        assert_eq!(within_session(None, session_of_work), None);
    }
}
