//! Whose turn it is: hands the turn from thread to thread. Exactly one thread of the world runs,
//! and only that one touches the state.

use crate::dice::Dice;
use crate::real;
use crate::state::{Doing, On, State};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The state. The mutex never waits: only the thread whose turn it is takes it.
static STATE: Mutex<Option<State>> = Mutex::new(None);
static ACTIVE: AtomicBool = AtomicBool::new(false);
/// Points that pass before the next interruption.
static COUNTDOWN: AtomicU64 = AtomicU64::new(u64::MAX);
/// The process of the next thread that is created, and 1; 0 for that of its creator.
static NEXT_PROCESS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The number of this thread in the world, and 1; 0 for threads that do not belong to it.
    static NUMBER: Cell<usize> = const { Cell::new(0) };
    /// While it is above 0, nobody interrupts this thread.
    static UNDISTURBED: Cell<u32> = const { Cell::new(0) };
}

/// How a world is run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// It decides everything.
    pub seed: u64,
    /// All events are printed.
    pub loud: bool,
    /// A run with more choices than this fails.
    pub most_steps: u64,
}

/// The largest number of choices, to find it without the state.
static MAX_STEPS: AtomicU64 = AtomicU64::new(u64::MAX);

/// Whether the calling thread belongs to a world, and the world goes on.
pub(crate) fn inside() -> bool {
    NUMBER.try_with(Cell::get).unwrap_or(0) != 0 && ACTIVE.load(Ordering::Relaxed)
}

/// The number of the calling thread.
pub(crate) fn me() -> usize {
    NUMBER.get() - 1
}

struct Undisturbed;

impl Undisturbed {
    fn new() -> Self {
        UNDISTURBED.set(UNDISTURBED.get() + 1);
        Self
    }
}

impl Drop for Undisturbed {
    fn drop(&mut self) {
        UNDISTURBED.set(UNDISTURBED.get() - 1);
    }
}

/// Does something to the state.
pub(crate) fn with<T>(work: impl FnOnce(&mut State) -> T) -> T {
    assert!(inside(), "there is no world here");
    let _undisturbed = Undisturbed::new();
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    work(state.as_mut().expect("a world has a state"))
}

/// Does something during which no other thread of the world runs, unless it waits or sleeps itself.
pub fn atomically<T>(work: impl FnOnce() -> T) -> T {
    let _undisturbed = Undisturbed::new();
    work()
}

/// Starts threads of a process.
pub(crate) fn within<T>(process: usize, start: impl FnOnce() -> T) -> T {
    atomically(|| {
        NEXT_PROCESS.store(process as u64 + 1, Ordering::Relaxed);
        let started = start();
        NEXT_PROCESS.store(0, Ordering::Relaxed);
        started
    })
}

/// The process of the thread that is being created, if it is not that of its creator.
pub(crate) fn next_process() -> Option<usize> {
    (NEXT_PROCESS.load(Ordering::Relaxed) as usize).checked_sub(1)
}

/// A word with which a thread is told that it is its turn. It lives as long as the program.
pub(crate) fn new_turn() -> &'static AtomicU32 {
    let _undisturbed = Undisturbed::new();
    Box::leak(Box::new(AtomicU32::new(0)))
}

/// Waits until it is this thread's turn.
pub(crate) fn wait_for_turn(turn: &AtomicU32) {
    while turn.swap(0, Ordering::Acquire) == 0 {
        let address = std::ptr::from_ref(turn) as usize;
        let wait = (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as usize;
        // SAFETY: the word lives as long as the program; without a time limit the rest is not read.
        unsafe { real::syscall(libc::SYS_futex, address, wait, 0, 0, 0, 0) };
    }
}

fn give_turn(turn: &AtomicU32) {
    turn.store(1, Ordering::Release);
    let address = std::ptr::from_ref(turn) as usize;
    let wake = (libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG) as usize;
    // SAFETY: as above; waking touches no memory.
    unsafe { real::syscall(libc::SYS_futex, address, wake, 1, 0, 0, 0) };
}

/// Lets the next thread run: returns when it is this thread's turn again, or at once if it has
/// ended.
fn switch() {
    let _undisturbed = Undisturbed::new();
    let me = me();
    let (next, own, is_gone) = {
        let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
        let state = state.as_mut().expect("a world has a state");
        let Some(next) = state.choose() else {
            let threads = state.describe();
            drop_and_fail(state, &format!("all threads wait for ever\n{threads}"));
        };
        if state.steps > MAX_STEPS.load(Ordering::Relaxed) {
            let threads = state.describe();
            drop_and_fail(state, &format!("it does not come to an end\n{threads}"));
        }
        let interruption = state.interruption;
        COUNTDOWN.store(1 + state.order.below(2 * interruption), Ordering::Relaxed);
        (state.threads[next].turn, state.threads[me].turn, state.threads[me].doing == Doing::Gone)
    };
    if std::ptr::eq(next, own) {
        return;
    }
    give_turn(next);
    if !is_gone {
        wait_for_turn(own);
    }
}

/// A place where the running thread may lose its turn; `weight` says how many allocations it counts
/// as.
pub(crate) fn point(weight: u64) {
    if !inside() || UNDISTURBED.get() > 0 {
        return;
    }
    let left = COUNTDOWN.load(Ordering::Relaxed);
    COUNTDOWN.store(left.saturating_sub(weight), Ordering::Relaxed);
    if left <= weight {
        switch();
    }
}

/// Waits. Returns whether the time was over. A thread of a dead process never returns.
pub(crate) fn block(on: On, until: Option<u64>) -> bool {
    let is_dead = with(|state| {
        let me = state.running;
        let is_dead = state.group().dead;
        if is_dead {
            state.gone(me);
        } else {
            state.threads[me].doing = Doing::Waits(on, until);
        }
        is_dead
    });
    switch();
    if is_dead {
        stay();
    }
    with(|state| state.threads[state.running].timed_out)
}

/// A thread of a dead process is kept for ever: its end would drop what it has.
fn stay() -> ! {
    let never = AtomicU32::new(0);
    loop {
        wait_for_turn(&never);
    }
}

/// The first moment of a thread of the world.
pub(crate) fn begin(number: usize, turn: &AtomicU32) {
    wait_for_turn(turn);
    NUMBER.set(number + 1);
}

/// The last moment of a thread of the world.
pub(crate) fn end() {
    with(|state| state.gone(state.running));
    switch();
    NUMBER.set(0);
}

/// Any other thread may run now.
pub fn pause() {
    if inside() && UNDISTURBED.get() == 0 {
        switch();
    }
}

/// Does nothing, unless the process of this thread is dead: then it does not return. For whatever
/// has an effect on others.
pub fn live() {
    if inside() && with(|state| state.group().dead) {
        block(On::Time, None);
    }
}

/// The time since the world began, by no process's clock.
pub fn now() -> Duration {
    Duration::from_nanos(with(|state| state.now))
}

/// Rolls the dice of the simulation.
pub fn roll<T>(roll: impl FnOnce(&mut Dice) -> T) -> T {
    with(|state| roll(&mut state.chance))
}

/// Writes an event down. It becomes part of the hash.
pub fn note(what: std::fmt::Arguments<'_>) {
    with(|state| {
        let group = &state.groups[state.threads[state.running].process].name;
        let line = format!("{:12.6} {:3} {group}: {what}", state.now as f64 / 1e9 - 1000.0, state.running);
        state.trace.note(line);
    });
}

/// The hash of everything that happened so far, and the number of choices.
pub fn trace() -> (u64, u64) {
    with(|state| (state.trace.hash(), state.steps))
}

/// Ends the program: the run has failed. Prints the last events.
pub fn fail(why: &str) -> ! {
    let _undisturbed = Undisturbed::new();
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    drop_and_fail(state.as_mut().expect("a world has a state"), why)
}

fn drop_and_fail(state: &mut State, why: &str) -> ! {
    if !state.trace.loud {
        state.trace.last().for_each(|line| eprintln!("{line}"));
    }
    let at = state.now as f64 / 1e9 - 1000.0;
    eprintln!("WRONG at {at:.6} s after {} steps, trace {:016x}: {why}", state.steps, state.trace.hash());
    // SAFETY: ends the program without running anything of it.
    unsafe { libc::_exit(1) }
}

/// Keeps this program on one processor: only one of its threads runs, and the turn passes faster.
fn stay_on_one_processor(seed: u64) {
    // SAFETY: all zeroes are an empty set.
    let mut allowed: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    let mut one = allowed;
    let length = size_of_val(&allowed);
    // SAFETY: `allowed` is a place for a set of this length, and both sets have as many processors
    // as `CPU_SETSIZE`. Without success all processors stay.
    unsafe {
        real::sched_getaffinity(0, length, &mut allowed);
        let all: Vec<usize> =
            (0..libc::CPU_SETSIZE as usize).filter(|&number| libc::CPU_ISSET(number, &allowed)).collect();
        if let Some(&processor) = all.get(seed as usize % all.len().max(1)) {
            libc::CPU_SET(processor, &mut one);
            libc::sched_setaffinity(0, length, &one);
        }
    }
}

/// Runs `work` in a world, and returns what it returns. What it has started never runs afterwards.
/// A program can do this once.
///
/// # Panics
/// When there was a world already.
pub fn run<T>(options: Options, work: impl FnOnce() -> T) -> T {
    stay_on_one_processor(options.seed);
    let turn = new_turn();
    let mut first = Dice::new(options.seed, 0);
    // Some worlds are interrupted often, some hardly ever: each finds faults that the others miss.
    let interruption = [30, 300, 3000, 30_000][first.below(4) as usize];
    {
        let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(state.is_none(), "a program has one world");
        *state = Some(State::new(options.seed, interruption, options.loud, turn));
    }
    MAX_STEPS.store(options.most_steps, Ordering::Relaxed);
    COUNTDOWN.store(interruption, Ordering::Relaxed);
    NUMBER.set(1);
    ACTIVE.store(true, Ordering::SeqCst);
    let result = work();
    // The other threads wait for a turn that never comes.
    NUMBER.set(0);
    result
}
