//! A store: its disk, which keeps synced data only when its machine loses power, and the fence that
//! the metadata server sent it.

use plan::SessionId;
use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use volume::lock;
use volume::target::{ClaimRequest, Clock, Crash, Memory, ReadAt, Refusal, Target};

/// The faults of a store.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// It answers nothing: its process does not run.
    pub down: bool,
    /// There is no space for anything.
    pub full: bool,
    /// Syncs fail.
    pub unsynced: bool,
    /// Added to what each operation takes.
    pub slow: Duration,
}

/// A store.
pub struct Store {
    pub number: usize,
    pub disk: Arc<Crash>,
    memory: Arc<Memory>,
    faults: Mutex<Faults>,
    /// Changes with each start of its machine.
    boot: AtomicU64,
    /// The number of the next session, and the live sessions; None until it has learned them.
    fence: Mutex<Option<(SessionId, BTreeSet<SessionId>)>>,
    /// The newest opening whose server has told them.
    opening: AtomicU64,
    /// Syncs do nothing: a broken rule.
    pub lies: AtomicBool,
}

impl Store {
    /// A store whose leases run by this clock.
    pub fn with_clock(number: usize, clock: Clock) -> Arc<Self> {
        let memory = Arc::new(Memory::with_clock(clock));
        Arc::new(Self {
            number,
            disk: Arc::new(Crash::new(memory.clone())),
            memory,
            faults: Mutex::default(),
            boot: AtomicU64::new(1),
            fence: Mutex::default(),
            opening: AtomicU64::new(0),
            lies: AtomicBool::new(false),
        })
    }

    pub fn faults(&self) -> Faults {
        world::atomically(|| *lock(&self.faults))
    }

    pub fn set(&self, change: impl FnOnce(&mut Faults)) {
        world::atomically(|| change(&mut lock(&self.faults)));
    }

    pub fn boot(&self) -> u64 {
        self.boot.load(Ordering::SeqCst)
    }

    /// The machine loses power: unsynced data is kept, lost or torn.
    pub fn lose_power(&self) -> io::Result<()> {
        let seed = world::roll(world::Dice::next);
        self.stop();
        self.boot.fetch_add(1, Ordering::SeqCst);
        match world::atomically(|| self.disk.crash(seed)) {
            // What waits was written under a claim that another server has taken since: it is lost.
            Err(error) if Refusal::fenced(&error).is_some() => Ok(()),
            done => done,
        }
    }

    /// Another disk, which is empty, takes the place of this one.
    pub fn lose_everything(&self) {
        let seed = world::roll(world::Dice::next);
        self.boot.fetch_add(1, Ordering::SeqCst);
        world::atomically(|| {
            // What waits to be synced is lost, too.
            _ = self.disk.crash(seed);
            self.memory.lose();
        });
    }

    /// Whether it counts in openings.
    pub fn counts(&self) -> bool {
        world::atomically(|| self.memory.claim(&ClaimRequest::Read).is_ok_and(|state| state.proof().is_some()))
    }

    /// The process ends; the machine keeps what was written.
    pub fn stop(&self) {
        self.set(|faults| faults.down = true);
        world::atomically(|| *lock(&self.fence) = None);
    }

    pub fn start(&self) {
        self.set(|faults| faults.down = false);
    }

    /// The metadata server of an opening says which sessions live. One that was taken over is not
    /// heard.
    pub fn hear(&self, opening: u64, next: SessionId, live: Vec<SessionId>) {
        if self.opening.fetch_max(opening, Ordering::SeqCst) > opening {
            return;
        }
        let mut live: BTreeSet<SessionId> = live.into_iter().collect();
        world::atomically(|| {
            let mut fence = lock(&self.fence);
            if let Some((known, before)) = &*fence {
                if next < *known {
                    return;
                }
                live.retain(|session| session >= known || before.contains(session));
            }
            *fence = Some((next, live));
        });
    }

    /// Whether a session may write.
    pub fn admits(&self, session: SessionId) -> bool {
        world::atomically(|| {
            let fence = lock(&self.fence);
            fence.as_ref().is_some_and(|(next, live)| session >= *next || live.contains(&session))
        })
    }

    /// Syncs a file of its disk as one process has that open, unless this store lies.
    pub fn sync(&self, disk: &Crash, file: volume::target::TargetFile) -> io::Result<()> {
        if self.lies.load(Ordering::Relaxed) {
            return disk.read_at(file, 0, &mut []).map(drop);
        }
        disk.sync(file).map(drop)
    }
}
