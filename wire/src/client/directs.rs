//! The pool of direct connections. They are opened next to a shared connection after its first use,
//! and close with it. No task reads from an idle one.

use super::direct::Direct;
use super::messages::Response;
use crate::error::Error;
use crate::frame::{FrameLimits, Header};
use crate::lock;
use std::io::IoSlice;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::Instant;

/// An idle connection is closed after this time, before the server sends a ping that nothing would
/// answer.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after a failed attempt to open one.
const RETRY_PAUSE: Duration = Duration::from_secs(5);

/// Opens a direct connection; None once the channel is gone.
pub(super) type Open = Box<dyn Fn() -> Option<Result<Direct, Error>> + Send + Sync>;

/// The direct connections next to a shared one.
pub(super) struct Directs {
    open: Open,
    most: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The idle connections, and since when they are idle; the most recently used one is at the
    /// end.
    idle: Vec<(Direct, Instant)>,
    /// Number of connections that are open or being opened.
    open: usize,
    /// The next one is opened no earlier.
    next: Option<Instant>,
    is_over: bool,
}

impl State {
    fn forget_idle(&mut self) {
        self.open -= self.idle.len();
        self.idle.clear();
    }
}

/// A borrowed connection. Dropping this returns the connection to the pool, if it can still be
/// used.
pub(super) struct Loan {
    directs: Arc<Directs>,
    direct: Option<Direct>,
}

impl Directs {
    /// A pool of at most `most` connections.
    pub fn new(open: Open, most: usize) -> Arc<Self> {
        Arc::new(Self { open, most, state: Mutex::default() })
    }

    /// Borrows an idle connection. If there is none, it begins to open one for the next time, if
    /// the limits permit, and returns None.
    pub fn lend(self: &Arc<Self>, runtime: &Handle) -> Option<Loan> {
        let now = Instant::now();
        let mut state = lock(&self.state);
        if let Some((direct, since)) = state.idle.pop() {
            if now.duration_since(since) < IDLE_TIMEOUT {
                return Some(Loan { directs: self.clone(), direct: Some(direct) });
            }
            // The others have been idle for even longer.
            state.open -= 1;
            state.forget_idle();
        }
        if !state.is_over && state.open < self.most && state.next.is_none_or(|next| next <= now) {
            state.open += 1;
            let directs = self.clone();
            runtime.spawn_blocking(move || directs.make());
        }
        None
    }

    fn make(&self) {
        let made = (self.open)();
        let mut state = lock(&self.state);
        match made {
            Some(Ok(direct)) if !state.is_over => state.idle.push((direct, Instant::now())),
            _ => {
                state.open -= 1;
                state.next = Some(Instant::now() + RETRY_PAUSE);
            }
        }
    }

    /// Closes all idle connections, and the others when they are returned.
    pub fn end(&self) {
        let mut state = lock(&self.state);
        state.is_over = true;
        state.forget_idle();
    }
}

impl Loan {
    /// Sends a request and waits for its answer.
    pub fn call(
        mut self,
        header: Header,
        body: &[u8],
        parts: &[IoSlice<'_>],
        until: Instant,
    ) -> Result<Response, Error> {
        let direct = self.direct.as_mut().expect("what was lent");
        let answer = direct.call(header, body, parts, until);
        let is_sound = matches!(answer, Ok(_) | Err(Error::Remote { .. }));
        if direct.retired || !is_sound {
            self.direct = None;
        }
        if !is_sound {
            // Discard the idle ones, too: each of them would fail in the same way, one after the
            // other. The shared connection detects the failure once for all callers.
            let mut state = lock(&self.directs.state);
            state.forget_idle();
            state.next = Some(Instant::now() + RETRY_PAUSE);
        }
        answer
    }

    /// The longest messages that the server accepts.
    pub fn limits(&self) -> FrameLimits {
        self.direct.as_ref().expect("what was lent").limits
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        let direct = self.direct.take();
        let mut state = lock(&self.directs.state);
        match direct {
            Some(direct) if !state.is_over && !std::thread::panicking() => state.idle.push((direct, Instant::now())),
            _ => state.open -= 1,
        }
    }
}
