//! Who has which direct connection. They are made beside a shared connection once that has been
//! used, and end with it. Nobody listens on one that is idle.

use super::Response;
use super::channel::Channel;
use super::direct::Direct;
use crate::error::Error;
use crate::frame::{Header, Limits};
use crate::lock;
use std::io::IoSlice;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::Instant;

/// After so long without use a connection is given up, before the server asks whether anybody is
/// there.
const IDLE: Duration = Duration::from_secs(10);
/// The wait after one could not be made.
const AGAIN: Duration = Duration::from_secs(5);

/// The direct connections beside a shared one.
pub(super) struct Directs {
    channel: Weak<Channel>,
    most: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Those that nobody uses, and since when; the one that was used last is the last.
    idle: Vec<(Direct, Instant)>,
    /// All that there are, and that are being made.
    open: usize,
    /// None is made before.
    next: Option<Instant>,
    is_over: bool,
}

impl State {
    fn forget_idle(&mut self) {
        self.open -= self.idle.len();
        self.idle.clear();
    }
}

/// A connection that is given back when this is dropped, if it is still of use then.
pub(super) struct Loan {
    directs: Arc<Directs>,
    direct: Option<Direct>,
}

impl Directs {
    /// At most so many of a channel.
    pub fn new(channel: Weak<Channel>, most: usize) -> Arc<Self> {
        Arc::new(Self { channel, most, state: Mutex::default() })
    }

    /// One that nobody uses. When there is none, one more is made for the next time, where that is
    /// allowed.
    pub fn lend(self: &Arc<Self>, runtime: &Handle) -> Option<Loan> {
        let now = Instant::now();
        let mut state = lock(&self.state);
        if let Some((direct, since)) = state.idle.pop() {
            if now.duration_since(since) < IDLE {
                return Some(Loan { directs: self.clone(), direct: Some(direct) });
            }
            // The others were not used for even longer.
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
        let made = self.channel.upgrade().map(|channel| channel.make_direct());
        let mut state = lock(&self.state);
        match made {
            Some(Ok(direct)) if !state.is_over => state.idle.push((direct, Instant::now())),
            _ => {
                state.open -= 1;
                state.next = Some(Instant::now() + AGAIN);
            }
        }
    }

    /// Closes all that nobody uses, and the others as soon as they are given back.
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
            // The others would find the same, one after the other. The shared connection finds it
            // for all.
            let mut state = lock(&self.directs.state);
            state.forget_idle();
            state.next = Some(Instant::now() + AGAIN);
        }
        answer
    }

    /// The longest request that the server takes.
    pub fn limits(&self) -> Limits {
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
