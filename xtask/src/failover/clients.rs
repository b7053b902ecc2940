//! The clients, a process of their own. It reads orders from standard input, a line each, and
//! answers each with a line: `begin` (a round begins), `wait` (until each client has gone on since;
//! the answer has the longest wait of an operation in microseconds), `check` (all that was
//! acknowledged is read). What is wrong is the answer to the next order.

mod client;
mod dirty;
mod handles;
mod locks;
mod writers;

use crate::lock::lock;
use crate::torture::MAX_WAIT;
use client::{Client, State, Work};
use dirty::Dirty;
use handles::Handles;
use locks::{Contended, Locker};
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use writers::Writer;

/// The clients of a mount.
const OF_A_MOUNT: [Kind; 5] = [Kind::Writer, Kind::Writer, Kind::Locker, Kind::Handles, Kind::Dirty];
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Makes each change durable at once.
    Writer,
    /// Has a lock that a client of another mount wants, too.
    Locker,
    /// Keeps files open, some of which have no name any more.
    Handles,
    /// Has data that is not durable while a server is killed.
    Dirty,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Writer => "writer",
            Self::Locker => "locker",
            Self::Handles => "handles",
            Self::Dirty => "dirty",
        }
    }
}

/// Works until standard input ends.
///
/// # Errors
/// When there is no mount to work in.
pub fn run(arguments: &[&str]) -> Result<(), String> {
    let [pace, kept, mounts @ ..] = arguments else {
        return Err("failover-clients MILLISECONDS FILES MOUNT...".into());
    };
    let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{text:?} is not a number"));
    let (pace, kept) = (Duration::from_millis(number(pace)?), number(kept)? as usize);
    let mut state = State { pace, kept, mounts: mounts.iter().map(PathBuf::from).collect(), ..State::default() };
    let count = mounts.len() * OF_A_MOUNT.len();
    state.turns.resize_with(count, AtomicU64::default);
    let state: &State = Box::leak(Box::new(state));
    let contended: &Contended = Box::leak(Box::new(Contended::new(state)?));
    let mut clients = Vec::new();
    for number in 0..count {
        let kind = OF_A_MOUNT[number / mounts.len()];
        let client = Client::new(state, number, kind.name())?;
        clients.push(std::thread::spawn(move || {
            let name = client.name.clone();
            if let Err(why) = work(client, kind, contended) {
                *lock(&state.failure) = Some(format!("{name}: {why}"));
            }
        }));
    }
    let mut before = Vec::new();
    for order in io::stdin().lines().map_while(Result::ok) {
        let answer = match order.as_str() {
            "begin" => {
                before = state.turns.iter().map(|turns| turns.load(SeqCst)).collect();
                *lock(&state.longest_wait) = Duration::ZERO;
                state.in_round.store(true, SeqCst);
                state.round.fetch_add(1, SeqCst);
                Ok("began".into())
            }
            "wait" => all_go_on(state, &before),
            "check" => end(state, &mut clients).and_then(|()| check(state)),
            order => Err(format!("what is {order:?}?")),
        };
        let failure = lock(&state.failure).clone();
        let line = failure.map_or(answer, Err).unwrap_or_else(|why| format!("fail {}", why.replace('\n', "; ")));
        let mut out = io::stdout().lock();
        writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|why| why.to_string())?;
    }
    Ok(())
}

/// Waits until each client has done what it was doing, and one thing more.
fn all_go_on(state: &State, before: &[u64]) -> Result<String, String> {
    let goes_on = |(turns, before): (&AtomicU64, &u64)| turns.load(SeqCst) >= before + 2;
    until(state, "go on", || state.turns.iter().zip(before).all(goes_on))?;
    state.in_round.store(false, SeqCst);
    Ok(format!("waited {}", lock(&state.longest_wait).as_micros()))
}

/// Waits for the last turn of each client. From then on nothing is written or open.
fn end(state: &State, clients: &mut Vec<JoinHandle<()>>) -> Result<(), String> {
    state.has_ended.store(true, SeqCst);
    until(state, "end", || clients.iter().all(JoinHandle::is_finished))?;
    clients.drain(..).try_for_each(|client| client.join().map_err(|_| "a client panicked".to_owned()))
}

fn until(state: &State, what: &str, done: impl Fn() -> bool) -> Result<(), String> {
    let begun = Instant::now();
    while !done() {
        if lock(&state.failure).is_some() || begun.elapsed() > MAX_WAIT {
            let turns: Vec<u64> = state.turns.iter().map(|turns| turns.load(SeqCst)).collect();
            return Err(format!("not all {what} within {MAX_WAIT:?}; turns: {turns:?}"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Reads each file through each mount.
fn check(state: &State) -> Result<String, String> {
    let files = lock(&state.files);
    let mut total = 0;
    for (name, content) in &*files {
        for mount in &state.mounts {
            let path = mount.join(name);
            let read = fs::read(&path).map_err(|why| format!("{}: {why}", path.display()))?;
            content.is(&read).map_err(|why| format!("{}: {why}", path.display()))?;
            total += read.len();
        }
    }
    let turns: u64 = state.turns.iter().map(|turns| turns.load(SeqCst)).sum();
    let [failed, refused, older] = [&state.failed, &state.refused, &state.older].map(|count| count.load(SeqCst));
    let count = files.len() * state.mounts.len();
    Ok(format!(
        "checked {turns} turns of clients; {count} files with {total} bytes are as they were written; {failed} \
         operations said EIO and were repeated, {refused} locks were another client's, {older} did not show what was \
         never synced"
    ))
}

/// Works until the run ends.
fn work(client: Client, kind: Kind, contended: &Contended) -> Result<(), String> {
    let (state, number) = (client.state, client.number);
    let mut work: Box<dyn Work + '_> = match kind {
        Kind::Writer => Box::new(Writer::new(client)),
        Kind::Locker => Box::new(Locker::new(client, contended)?),
        Kind::Handles => Box::new(Handles::new(client)?),
        Kind::Dirty => Box::new(Dirty::new(client)),
    };
    while !state.has_ended() {
        work.turn()?;
        state.turns[number].fetch_add(1, SeqCst);
        std::thread::sleep(state.pace);
    }
    work.end()
}
