//! Which threads there are, what they wait for, and which one is next: decisions only, no threads.

use crate::dice::Dice;
use crate::trace::Trace;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU32;

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum On {
    /// A wake-up at this address.
    Futex(usize),
    /// The end of this thread.
    End(usize),
    /// Nothing but the time.
    Time,
}

/// The state of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    Ready,
    /// Waits until it is woken, or until this time, in nanoseconds of the world.
    Waits(On, Option<u64>),
    /// Its process is dead, or it has ended: it never runs again.
    Gone,
}

#[derive(Debug)]
pub(crate) struct Thread {
    pub process: usize,
    pub doing: Doing,
    /// Its last wait ended because its time was over.
    pub timed_out: bool,
    /// 1 when it is this thread's turn.
    pub turn: &'static AtomicU32,
}

/// A group of threads.
#[derive(Debug)]
pub(crate) struct Group {
    pub name: String,
    pub dead: bool,
    pub stopped: bool,
    /// Since when its machine is suspended, in nanoseconds of the world.
    pub suspended: Option<u64>,
    /// For how long it was suspended until then.
    slept: u64,
    /// The wall clock is wrong by this many nanoseconds.
    pub wall_offset: i64,
    /// The clocks run too fast by this many millionths.
    pub drift_ppm: i64,
}

impl Group {
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), dead: false, stopped: false, suspended: None, slept: 0, wall_offset: 0, drift_ppm: 0 }
    }

    /// What the monotonic clock of this group shows at a time of the world: it stands still while
    /// the machine is suspended.
    pub fn shows(&self, now: u64) -> u64 {
        self.shows_with_sleep(self.suspended.unwrap_or(now) - self.slept)
    }

    /// What the clock of this group shows that goes on while the machine is suspended.
    pub fn shows_with_sleep(&self, now: u64) -> u64 {
        (i128::from(now) * i128::from(1_000_000 + self.drift_ppm) / 1_000_000) as u64
    }

    /// The time of the world at which the monotonic clock of this group shows `shown`, or more.
    pub fn when(&self, shown: u64) -> u64 {
        self.when_with_sleep(shown) + self.slept
    }

    /// As [`Group::when`], for the clock that goes on.
    pub fn when_with_sleep(&self, shown: u64) -> u64 {
        let rate = i128::from(1_000_000 + self.drift_ppm);
        ((i128::from(shown) * 1_000_000 + rate - 1) / rate) as u64
    }
}

/// The whole world.
#[derive(Debug)]
pub(crate) struct State {
    pub threads: Vec<Thread>,
    /// Threads that are not gone.
    alive: Vec<usize>,
    pub groups: Vec<Group>,
    /// The thread whose turn it is.
    pub running: usize,
    /// Nanoseconds since the world began.
    pub now: u64,
    /// Which thread is next.
    pub order: Dice,
    /// What the program gets when it asks for random bytes.
    pub entropy: Dice,
    /// What the simulation asks for.
    pub chance: Dice,
    /// Threads by the number that the C library has for them.
    pub numbers: BTreeMap<u64, usize>,
    pub trace: Trace,
    /// How often a thread was chosen.
    pub steps: u64,
    /// Allocations between two interruptions, on average.
    pub interruption: u64,
}

/// Every choice takes at least this time, so that a busy-waiting thread gets on.
const STEP_NS: u64 = 500;

impl State {
    /// A world with one thread, which runs.
    pub fn new(seed: u64, interruption: u64, loud: bool, turn: &'static AtomicU32) -> Self {
        let first = Thread { process: 0, doing: Doing::Ready, timed_out: false, turn };
        Self {
            threads: vec![first],
            alive: vec![0],
            groups: vec![Group::new("world")],
            running: 0,
            // Some code subtracts from its first look at the clock.
            now: 1_000_000_000_000,
            order: Dice::new(seed, 1),
            entropy: Dice::new(seed, 2),
            chance: Dice::new(seed, 3),
            numbers: BTreeMap::new(),
            trace: Trace::new(loud),
            steps: 0,
            interruption,
        }
    }

    pub fn group(&self) -> &Group {
        &self.groups[self.threads[self.running].process]
    }

    /// Adds a thread to the process of the running one, or to `process`.
    pub fn add(&mut self, process: Option<usize>, turn: &'static AtomicU32) -> usize {
        let process = process.unwrap_or(self.threads[self.running].process);
        let doing = if self.groups[process].dead { Doing::Gone } else { Doing::Ready };
        self.threads.push(Thread { process, doing, timed_out: false, turn });
        let number = self.threads.len() - 1;
        if doing == Doing::Ready {
            self.alive.push(number);
        }
        number
    }

    /// A thread that never runs again.
    pub fn gone(&mut self, thread: usize) {
        self.threads[thread].doing = Doing::Gone;
        self.alive.retain(|other| *other != thread);
        for other in self.alive.clone() {
            if matches!(self.threads[other].doing, Doing::Waits(On::End(ended), _) if ended == thread) {
                self.wake(other, false);
            }
        }
    }

    pub fn wake(&mut self, thread: usize, timed_out: bool) {
        let thread = &mut self.threads[thread];
        (thread.doing, thread.timed_out) = (Doing::Ready, timed_out);
    }

    /// Wakes up to `count` threads that wait at an address, in random order; returns how many.
    pub fn wake_at(&mut self, address: usize, count: usize) -> usize {
        let waits =
            |thread: &usize| matches!(self.threads[*thread].doing, Doing::Waits(On::Futex(at), _) if at == address);
        let mut waiting: Vec<usize> = self.alive.iter().copied().filter(waits).collect();
        let mut woken = 0;
        while woken < count && !waiting.is_empty() {
            let next = self.order.below(waiting.len() as u64) as usize;
            let thread = waiting.swap_remove(next);
            self.wake(thread, false);
            woken += 1;
        }
        woken
    }

    /// Kills a process. Threads that wait are gone at once. Others run to their next wait, so that
    /// they let go of what they share with other processes; nothing that they do is seen.
    pub fn kill(&mut self, process: usize) {
        self.groups[process].dead = true;
        for thread in self.alive.clone() {
            if self.threads[thread].process == process && matches!(self.threads[thread].doing, Doing::Waits(..)) {
                self.gone(thread);
            }
        }
    }

    /// The machine of a process is suspended, or goes on. What its threads wait for comes later.
    pub fn suspend(&mut self, process: usize, suspended: bool) {
        let (now, group) = (self.now, &mut self.groups[process]);
        if suspended {
            group.suspended.get_or_insert(now);
        } else if let Some(since) = group.suspended.take() {
            group.slept += now - since;
            for thread in self.threads.iter_mut().filter(|thread| thread.process == process) {
                if let Doing::Waits(_, Some(until)) = &mut thread.doing {
                    *until += now - since;
                }
            }
        }
    }

    /// Chooses the next thread and makes it the running one. Time passes, and jumps when all wait.
    /// None if no thread ever runs again.
    pub fn choose(&mut self) -> Option<usize> {
        self.steps += 1;
        self.now += STEP_NS + self.order.below(2000);
        loop {
            let now = self.now;
            let mut next: Option<u64> = None;
            let mut ready = Vec::with_capacity(16);
            for at in 0..self.alive.len() {
                let thread = self.alive[at];
                let group = &self.groups[self.threads[thread].process];
                if let Doing::Waits(_, Some(until)) = self.threads[thread].doing
                    && group.suspended.is_none()
                {
                    if until <= now {
                        self.wake(thread, true);
                    } else {
                        next = Some(next.map_or(until, |next| next.min(until)));
                    }
                }
                let group = &self.groups[self.threads[thread].process];
                if self.threads[thread].doing == Doing::Ready
                    && (group.dead || !group.stopped && group.suspended.is_none())
                {
                    ready.push(thread);
                }
            }
            if ready.is_empty() {
                self.now = next?;
                continue;
            }
            self.running = ready[self.order.below(ready.len() as u64) as usize];
            self.trace.mix(self.now ^ (self.running as u64) << 48);
            return Some(self.running);
        }
    }

    /// What each thread does, one a line, for a failure.
    pub fn describe(&self) -> String {
        let line = |&thread: &usize| {
            let Thread { process, doing, .. } = &self.threads[thread];
            // Addresses differ from run to run.
            let does = match doing {
                Doing::Waits(On::Futex(_), until) => format!("waits for a wake-up, until {until:?}"),
                Doing::Waits(On::End(other), _) => format!("waits for the end of thread {other}"),
                Doing::Waits(On::Time, until) => format!("sleeps until {until:?}"),
                Doing::Ready => "can run".into(),
                Doing::Gone => "is gone".into(),
            };
            format!("thread {thread} of {}: {does}\n", self.groups[*process].name)
        };
        self.alive.iter().map(line).collect()
    }
}
