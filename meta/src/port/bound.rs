//! Work that belongs to one session: its requests are carried out in that session or not at all. A
//! client may begin work and then lose its lease. The work must not continue in the client's next
//! session. All requests of a piece of work leave from its own thread.

use std::cell::Cell;

thread_local! {
    static SESSION: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Restores the previous session when dropped, also after a panic.
struct Before(Option<u64>);

impl Drop for Before {
    fn drop(&mut self) {
        SESSION.set(self.0);
    }
}

/// Runs `work`; its requests belong to `session`, if given. Nested work keeps the session of the
/// outer work.
pub fn within_session<T>(session: Option<u64>, work: impl FnOnce() -> T) -> T {
    let _before = Before(SESSION.get());
    SESSION.set(SESSION.get().or(session));
    work()
}

/// The session that the requests of this thread belong to. `None` means the current session.
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
