//! One run: many takeovers, one after the other.

use super::client;
use super::figures::Figures;
use super::lab::{CLIENTS, Lab, SERVERS};
use super::server::{Ask, Server, check, pause};
use super::serving::start;
use crate::broken::Broken;
use crate::network::Host;
use meta::journal::{Access, Journaled, Options};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{JoinHandle, sleep};
use std::time::Duration;
use volume::lock;
use volume::target::{ClaimRequest, Target, simulate_boot_time};
use world::Process;

/// Rounds of a run: in each, something happens to the holder.
const ROUNDS: usize = 60;
/// With enough stores, a server has the volume within so many leases, whatever happened.
const MAX_LEASES: u32 = 400;
/// Requests of a holder that wakes up.
const WOKEN_REQUESTS: u64 = 2;
/// For how many leases it tries to make them durable when it reaches one more store.
const SPLIT_LEASES: u32 = 4;
/// The pause before it tries again.
const INSISTENCE_PAUSE: Duration = Duration::from_millis(20);
/// The first number of their requests.
const FIRST_WOKEN_REQUEST: u64 = 1 << 48;

/// What happens to the holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Killed,
    Stopped,
    /// Its machine sleeps.
    Suspended,
    /// From everything: in both directions, or in the one to it or from it.
    Cut(bool, bool),
    /// The same, but only from the stores.
    CutFromStores(bool, bool),
    /// From all but m stores, from which the others are cut off. When it reaches one more, that one
    /// is another disk: the claim of the server that took over is lost with it.
    Split,
    /// Its own disk is full, and then its process ends.
    Full,
    HandsOver,
}

impl Fault {
    fn roll() -> Self {
        world::roll(|dice| match dice.below(16) {
            0..3 => Self::Killed,
            3..6 => Self::Stopped,
            kind @ (6..10) => {
                let (to, from) = *dice.choose(&[(true, true), (true, false), (false, true)]).expect("there are some");
                if kind < 8 { Self::Cut(to, from) } else { Self::CutFromStores(to, from) }
            }
            10 => Self::Full,
            11..13 => Self::Suspended,
            13..15 => Self::Split,
            _ => Self::HandsOver,
        })
    }

    /// For reports.
    fn name(self) -> &'static str {
        match self {
            Self::Killed => "killed",
            Self::Stopped => "stopped",
            Self::Suspended => "suspended",
            Self::Cut(true, true) => "cut off",
            Self::Cut(true, false) => "cut off in the direction to it",
            Self::Cut(..) => "cut off in the direction from it",
            Self::CutFromStores(true, true) => "cut off from the stores",
            Self::CutFromStores(true, false) => "cut off from the stores in the direction to it",
            Self::CutFromStores(..) => "cut off from the stores in the direction from it",
            Self::Split => "cut off with some of the stores",
            Self::Full => "killed with a full disk",
            Self::HandsOver => "told to give it away",
        }
    }
}

/// Numbers below `count`, in random order.
fn shuffled(count: usize) -> Vec<usize> {
    let mut left: Vec<usize> = (0..count).collect();
    let next = |_| {
        let next = world::roll(|dice| dice.below(left.len() as u64));
        left.swap_remove(next as usize)
    };
    (0..count).map(next).collect()
}

/// The world of a run, as the one who makes things fail sees it.
struct Run {
    lab: Arc<Lab>,
    processes: Vec<Process>,
    woken: u64,
    /// A store that is away, or from which a machine is cut off.
    away: Option<(usize, Option<usize>)>,
    /// The stores in the order in which the last split took them.
    shuffled: Vec<usize>,
}

/// Runs a seed; to be called in a world.
pub fn run(broken: Broken) -> Figures {
    std::panic::set_hook(Box::new(move |why| {
        world::fail(&format!("a panic: {why}\n{}", std::backtrace::Backtrace::force_capture()));
    }));
    simulate_boot_time(if broken == Broken::Clocks { world::monotonic_time } else { world::boot_time });
    let lab = Lab::new(broken);
    let first = Journaled::create(lab.options(0)).unwrap_or_else(|why| world::fail(&format!("a new volume: {why}")));
    first.close().unwrap_or_else(|why| world::fail(&format!("a new volume: {why}")));
    drop(first);
    let processes = (0..SERVERS).map(|machine| start(&lab, machine)).collect();
    let clients: Vec<JoinHandle<()>> = (0..CLIENTS)
        .map(|number| {
            let lab = lab.clone();
            Process::new(&format!("client{number}")).spawn(move || client::run(&lab, number))
        })
        .collect();
    let mut run = Run { lab: lab.clone(), processes, woken: FIRST_WOKEN_REQUEST, away: None, shuffled: Vec::new() };
    for _ in 0..ROUNDS {
        run.round();
    }
    run.bring_back();
    lab.stop.store(true, Ordering::SeqCst);
    clients.into_iter().for_each(|client| client.join().expect("it does not panic"));
    run.end();
    lock(&lab.figures).clone()
}

impl Run {
    /// The server that has the volume: of several that believe so the newest one.
    fn holder(&self) -> Option<Arc<Server>> {
        (0..SERVERS).filter_map(|machine| self.lab.serving(machine)).max_by_key(|server| server.epoch)
    }

    /// Waits until a server has the volume with an epoch above this one.
    fn next_holder(&self, above: u64) -> Arc<Server> {
        let end = world::now() + self.lab.lease * MAX_LEASES;
        loop {
            if let Some(server) = self.holder().filter(|server| server.epoch > above) {
                return server;
            }
            if world::now() > end {
                self.describe();
                world::fail("no server takes the volume over");
            }
            sleep(Duration::from_millis(5));
        }
    }

    fn round(&mut self) {
        let holder = self.next_holder(0);
        if world::roll(|dice| dice.one_in(2)) {
            self.harm_a_store();
        }
        let lease = self.lab.lease.as_millis() as u64;
        pause(1..lease);
        // With other stores that do not count, nobody could take over.
        let can_split = self.away.is_none() && self.harmed() == 0;
        let fault = match Fault::roll() {
            Fault::Split if !can_split => Fault::Killed,
            other => other,
        };
        let (machine, epoch) = (holder.machine, holder.epoch);
        world::note(format_args!("server{machine}, epoch {epoch}, is {}", fault.name()));
        self.begin(fault, &holder);
        // Its process may be stopped while its value lives on there.
        std::mem::forget(holder.clone());
        // Some faults are over before anybody has noticed.
        let is_short = world::roll(|dice| dice.one_in(8));
        if is_short {
            pause(1..lease);
        } else {
            let next = self.next_holder(epoch);
            let mut figures = lock(&self.lab.figures);
            match fault {
                Fault::HandsOver => figures.add("handovers", 1),
                _ if next.machine == machine => figures.add("the same server once more", 1),
                _ => figures.failover(fault.name()),
            }
            drop(figures);
            if world::roll(|dice| dice.one_in(3)) {
                pause(1..2 * lease);
            }
        }
        self.heal(fault, &holder, !is_short);
        if world::roll(|dice| dice.one_in(2)) {
            self.bring_back();
        }
    }

    /// Cuts a machine off, or heals that.
    fn cut(&self, machine: usize, only_stores: bool, (to, from): (bool, bool)) {
        let own = Host::Server(machine);
        let stores = (0..self.lab.stores.len()).map(Host::Store);
        for other in stores.chain((0..CLIENTS).filter(|_| !only_stores).map(Host::Client)) {
            self.lab.network.cut(other, own, to);
            self.lab.network.cut(own, other, from);
        }
    }

    /// Forgets the server of a process that is dead: its end would close the volume.
    fn forget(&self, machine: usize) {
        std::mem::forget(world::atomically(|| lock(&self.lab.machines[machine].serving).take()));
    }

    fn kill(&self, machine: usize) {
        self.processes[machine].kill();
        self.forget(machine);
    }

    fn begin(&mut self, fault: Fault, holder: &Arc<Server>) {
        let machine = holder.machine;
        match fault {
            Fault::Killed => self.kill(machine),
            Fault::Stopped => holder.process.stop(true),
            Fault::Suspended => holder.process.suspend(true),
            Fault::Cut(to, from) => self.cut(machine, false, (to, from)),
            Fault::CutFromStores(to, from) => self.cut(machine, true, (to, from)),
            Fault::Split => {
                self.shuffled = shuffled(self.lab.stores.len());
                for (place, &store) in self.shuffled.iter().enumerate() {
                    let is_kept = place < self.lab.losses;
                    for server in (0..SERVERS).filter(|server| is_kept != (*server == machine)) {
                        self.lab.network.cut(Host::Server(server), Host::Store(store), true);
                    }
                }
            }
            Fault::Full => {
                self.lab.machines[machine].index.set_full(true);
                pause(1..2 * self.lab.lease.as_millis() as u64);
                self.kill(machine);
            }
            Fault::HandsOver => holder.leaves.store(true, Ordering::SeqCst),
        }
    }

    fn heal(&mut self, fault: Fault, holder: &Arc<Server>, over: bool) {
        let machine = holder.machine;
        if fault == Fault::Split && over {
            let store = self.shuffled[self.lab.losses];
            self.lab.stores[store].lose_everything();
            self.lab.count("stores lost everything", 1);
            self.lab.network.cut(Host::Server(machine), Host::Store(store), false);
        }
        let tries = match fault {
            Fault::Split => self.try_to_write(holder, self.lab.lease * SPLIT_LEASES),
            Fault::Stopped | Fault::Suspended | Fault::Cut(..) | Fault::CutFromStores(..) => {
                self.try_to_write(holder, Duration::ZERO)
            }
            _ => Vec::new(),
        };
        match fault {
            Fault::Killed => self.start(machine),
            Fault::Stopped => holder.process.stop(false),
            Fault::Suspended => holder.process.suspend(false),
            Fault::Cut(..) => self.cut(machine, false, (false, false)),
            Fault::CutFromStores(..) => self.cut(machine, true, (false, false)),
            Fault::Full => {
                self.lab.machines[machine].index.set_full(false);
                self.start(machine);
            }
            Fault::HandsOver | Fault::Split => {}
        }
        for request in tries {
            let answered = request.join().expect("it does not panic");
            match (over, answered) {
                (true, Some(request)) => world::fail(&format!(
                    "a woken holder answered request {request}, and another server had the volume"
                )),
                (true, None) => self.lab.count("writes of woken holders refused", 1),
                (false, _) => {}
            }
        }
        if fault == Fault::Split {
            for server in 0..SERVERS {
                for &store in &self.shuffled {
                    self.lab.network.cut(Host::Server(server), Host::Store(store), false);
                }
            }
        }
    }

    fn start(&mut self, machine: usize) {
        self.processes[machine] = start(&self.lab, machine);
    }

    /// A holder that was away gets requests at the moment in which it goes on. Each returns the
    /// number of its request if it was answered.
    fn try_to_write(&mut self, holder: &Arc<Server>, insists: Duration) -> Vec<JoinHandle<Option<u64>>> {
        let requests = self.woken..self.woken + WOKEN_REQUESTS;
        self.woken = requests.end;
        let end = world::now() + insists;
        let ask = |request| {
            let (holder, lab) = (holder.clone(), self.lab.clone());
            holder.process.spawn(move || {
                let before = lab.newest();
                if let Ok(found) = holder.carry_out(Ask::Read) {
                    lab.is_new(before, found);
                }
                let position = loop {
                    match holder.carry_out(Ask::Change(request)) {
                        Ok(position) => break position,
                        Err(_) if world::now() > end => return None,
                        Err(_) => sleep(INSISTENCE_PAUSE),
                    }
                };
                lab.tell(request, position);
                Some(request)
            })
        };
        requests.map(ask).collect()
    }

    /// Stores that are away, or have lost everything and do not count yet.
    fn harmed(&self) -> usize {
        let is_harmed = |store: &&Arc<crate::store::Store>| store.faults().down || !store.counts();
        self.lab.stores.iter().filter(is_harmed).count()
    }

    /// Something happens to a store, if the volume can miss one more.
    fn harm_a_store(&mut self) {
        if self.away.is_some() || self.harmed() >= self.lab.losses {
            return;
        }
        let (store, kind, machine) = world::roll(|dice| {
            (dice.below(self.lab.stores.len() as u64) as usize, dice.below(4), dice.below(SERVERS as u64) as usize)
        });
        let there = &self.lab.stores[store];
        world::note(format_args!("store {store}: {kind}"));
        match kind {
            0 => {
                // After a clean end of an opening, nobody may change files: what waited is lost.
                _ = there.lose_power();
                self.away = Some((store, None));
            }
            1 => {
                there.lose_everything();
                self.lab.count("stores lost everything", 1);
            }
            2 => {
                let slow = Duration::from_micros(world::roll(|dice| dice.within(100..20_000)));
                there.set(|faults| faults.slow = slow);
                self.away = Some((store, None));
            }
            _ => {
                self.lab.network.cut(Host::Server(machine), Host::Store(store), true);
                self.away = Some((store, Some(machine)));
            }
        }
    }

    /// The store works again.
    fn bring_back(&mut self) {
        let Some((store, machine)) = self.away.take() else { return };
        self.lab.stores[store].set(|faults| (faults.slow, faults.down) = (Duration::ZERO, false));
        if let Some(machine) = machine {
            self.lab.network.cut(Host::Server(machine), Host::Store(store), false);
        }
    }

    /// Notes what is on the stores, for a failure.
    fn describe(&self) {
        for store in &self.lab.stores {
            let claim = store.disk.claim(&ClaimRequest::Read);
            let claim = claim.ok().and_then(|state| Some((state.claim?.epoch.number, state.blank)));
            let files = store.disk.list().unwrap_or_default();
            // The newest ones are enough to see what is missing.
            let files: Vec<String> = files.iter().rev().take(6).map(|file| format!("{file:?}")).collect();
            let faults = store.faults();
            world::note(format_args!("store {}: {faults:?}, claim {claim:?}, {}", store.number, files.join(", ")));
        }
    }

    /// All machines lose power, as many stores are lost as may be, and everything is compared.
    fn end(&self) {
        let lab = &self.lab;
        let settled = world::now() + lab.lease * MAX_LEASES;
        while self.harmed() > 0 {
            if world::now() > settled {
                world::fail("a store that has lost everything never counts again");
            }
            sleep(lab.lease);
        }
        (0..SERVERS).for_each(|machine| self.kill(machine));
        lab.stores.iter().for_each(|store| {
            _ = store.lose_power();
            store.start();
        });
        sleep(2 * lab.lease);
        let mut left: Vec<usize> = (0..lab.stores.len()).collect();
        for _ in 0..lab.losses {
            let lost = world::roll(|dice| dice.below(left.len() as u64));
            left.remove(lost as usize);
        }
        let mut options = lab.options(0);
        options.targets.retain(|(id, _)| left.contains(&usize::from(id.0)));
        let options = Options { access: Access::Read, ..options };
        let kv = Journaled::open(options).unwrap_or_else(|why| {
            self.describe();
            world::fail(&format!("with stores {left:?}: {why}"))
        });
        if let Err(why) = check(&kv, lock(&lab.told).all()) {
            world::fail(&format!("with stores {left:?}: {why}"));
        }
        std::mem::forget(kv);
    }
}
