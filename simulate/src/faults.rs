//! What fails in a run, and when: by the seed.

use crate::crew::Crew;
use crate::lab::{Away, LEASE, Lab, MACHINES};
use crate::network::Host;
use crate::work::CLIENTS;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;
use world::Dice;

/// What can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The metadata server's machine loses power.
    MetaDies,
    /// Its process is stopped, and goes on later.
    MetaStops,
    /// It is away, and another one takes over; it goes on later.
    MetaLeaves(Away),
    /// The disk with its index is full.
    MetaFull,
    /// Its wall clock is wrong.
    MetaClock,
    /// A client's machine loses power; it starts again.
    ClientDies(usize),
    ClientStops(usize),
    /// A client no longer reaches the server, in one direction or both.
    ClientCut(usize, bool),
    /// A store's machine loses power, or its process only ends.
    StoreDies(usize, bool),
    /// A machine no longer reaches a store.
    StoreCut(usize, Host),
    StoreFull(usize),
    StoreSlow(usize),
    /// Its disk cannot sync.
    StoreUnsynced(usize),
    /// Everything that a client sends and gets is late, and some is lost.
    Lossy(usize),
    /// A client's wall clock is wrong.
    Clock(usize),
}

impl Kind {
    /// What a fault is of: no two of the same at a time.
    fn place(self) -> (u8, usize) {
        match self {
            Self::MetaDies | Self::MetaStops | Self::MetaLeaves(_) => (0, 0),
            Self::ClientDies(client) | Self::ClientStops(client) => (1, client),
            Self::ClientCut(client, _) => (2, client),
            Self::Lossy(client) => (3, client),
            Self::Clock(client) => (4, client),
            Self::StoreDies(store, _) => (5, store),
            Self::StoreCut(store, _) => (6, store),
            Self::StoreFull(store) => (7, store),
            Self::StoreSlow(store) => (8, store),
            Self::StoreUnsynced(store) => (9, store),
            Self::MetaFull => (10, 0),
            Self::MetaClock => (11, 0),
        }
    }

    /// The store that does not do its work.
    fn store(self) -> Option<usize> {
        let (5..=7 | 9, store) = self.place() else { return None };
        Some(store)
    }
}

/// The number of kinds that are rolled with one metadata server, and with several.
const KINDS: u64 = 12;
const KINDS_WITH_TAKEOVERS: u64 = 17;

/// A fault that goes on.
struct Going {
    kind: Kind,
    /// When it began, as the history has it.
    begun: u64,
    /// When it ends.
    until: Duration,
}

/// A run's character: which faults it has, how often.
pub struct Faults {
    dice: Dice,
    /// Pause between two faults, on average, in milliseconds.
    pause: u64,
    /// How many kinds there are in this run.
    kinds: u64,
    /// The only kind of this run; None: all.
    only: Option<u64>,
    /// How many stores may fail at a time.
    stores: usize,
    going: Vec<Going>,
}

impl Faults {
    pub fn new(lab: &Lab, takeovers: bool) -> Self {
        let kinds = if takeovers { KINDS_WITH_TAKEOVERS } else { KINDS };
        let mut dice = Dice::new(world::roll(Dice::next), 7);
        let pause = *dice.choose(&[600, 2_000, 6_000, 60_000]).expect("there are some");
        let only = dice.one_in(3).then(|| dice.below(kinds));
        // With more, less can be done; what was synced is there nevertheless.
        let stores = if dice.one_in(4) { lab.stores.len() } else { lab.spare };
        world::note(format_args!("a fault each {pause} ms; only: {only:?}; up to {stores} stores"));
        Self { dice, pause, kinds, only, stores, going: Vec::new() }
    }

    fn kind(&mut self, lab: &Lab) -> Kind {
        let client = self.dice.below(CLIENTS as u64) as usize;
        let store = self.dice.below(lab.stores.len() as u64) as usize;
        let kind = self.only.unwrap_or_else(|| self.dice.below(self.kinds));
        match kind {
            0 => Kind::MetaDies,
            1 => Kind::MetaStops,
            2 => Kind::ClientDies(client),
            3 => Kind::ClientStops(client),
            4 => Kind::ClientCut(client, self.dice.one_in(2)),
            5 => Kind::StoreDies(store, self.dice.one_in(2)),
            6 => Kind::StoreCut(store, if self.dice.one_in(2) { lab.host() } else { Host::Client(client) }),
            7 => Kind::StoreFull(store),
            8 => Kind::StoreSlow(store),
            9 => Kind::StoreUnsynced(store),
            10 => Kind::Lossy(client),
            11 => Kind::Clock(client),
            12 => Kind::MetaLeaves(Away::Stopped),
            13 | 14 => {
                let (to, from) = *self.dice.choose(&[(true, true), (true, false), (false, true)]).expect("some");
                let cut = if kind == 13 { Away::Cut } else { Away::CutFromStores };
                Kind::MetaLeaves(cut(to, from))
            }
            15 => Kind::MetaFull,
            _ => Kind::MetaClock,
        }
    }

    /// How long a fault lasts: mostly short, sometimes longer than a lease.
    fn lasts(&mut self) -> Duration {
        Duration::from_millis(match self.dice.below(4) {
            0 => self.dice.within(20..300),
            1 | 2 => self.dice.within(300..4_000),
            _ => self.dice.within(4_000..2 * LEASE.as_millis() as u64),
        })
    }

    /// Has things fail until this time of the world, and then work again.
    pub fn run(&mut self, lab: &Arc<Lab>, crew: &mut Crew, until: Duration) {
        let mut next = world::now() + self.pause();
        loop {
            let ends = self.going.iter().map(|going| going.until);
            let Some(time) = ends.chain((next < until).then_some(next)).min() else { return };
            sleep(time.saturating_sub(world::now()));
            while let Some(at) = self.going.iter().position(|going| going.until <= world::now()) {
                let over = self.going.remove(at);
                self.end(lab, crew, &over);
            }
            if (next..until).contains(&world::now()) {
                next = world::now() + self.pause();
                self.begin(lab, crew);
            }
        }
    }

    fn pause(&mut self) -> Duration {
        Duration::from_millis(self.dice.within(self.pause / 4..self.pause * 7 / 4))
    }

    /// Begins a fault, if it can be.
    fn begin(&mut self, lab: &Arc<Lab>, crew: &mut Crew) {
        let (kind, lasts) = (self.kind(lab), self.lasts());
        let mut stores: Vec<usize> = self.going.iter().filter_map(|going| going.kind.store()).collect();
        stores.extend(kind.store());
        stores.sort_unstable();
        stores.dedup();
        if stores.len() > self.stores || self.going.iter().any(|going| going.kind.place() == kind.place()) {
            return;
        }
        world::note(format_args!("fault: {kind:?} for {lasts:?}"));
        let begun = lab.history.now();
        if let Kind::MetaLeaves(away) = kind {
            if !lab.leave_server(away) {
                return;
            }
        } else {
            self.break_it(lab, crew, kind);
        }
        // Until its end is known.
        lab.history.with(|all| all.disturbed.push((begun, u64::MAX)));
        self.going.push(Going { kind, begun, until: world::now() + lasts });
    }

    fn end(&mut self, lab: &Arc<Lab>, crew: &mut Crew, over: &Going) {
        self.heal(lab, crew, over.kind);
        world::note(format_args!("over: {:?}", over.kind));
        // Its consequences last longer: leases, suspicions, grace periods.
        let end = lab.history.now() + (4 * LEASE).as_nanos() as u64;
        lab.history.with(|all| {
            let disturbed = all.disturbed.iter_mut().find(|(begun, _)| *begun == over.begun);
            disturbed.expect("it was noted").1 = end;
        });
    }

    fn break_it(&mut self, lab: &Arc<Lab>, crew: &mut Crew, kind: Kind) {
        match kind {
            Kind::MetaDies => lab.kill_server(),
            Kind::MetaStops => lab.stop_server(true),
            Kind::MetaLeaves(_) => unreachable!("it may not be possible"),
            Kind::MetaFull => lab.fill_server(),
            Kind::MetaClock => {
                let wrong = self.dice.within(0..7_200) as i64 - 3_600;
                lab.set_server_clock(wrong * 1_000_000_000);
            }
            Kind::ClientDies(client) => crew.kill(lab, client),
            Kind::ClientStops(client) => _ = crew.process(client).inspect(|process| process.stop(true)),
            Kind::ClientCut(client, both) => {
                for server in (0..MACHINES).map(Host::Server) {
                    lab.network.cut(Host::Client(client), server, true);
                    lab.network.cut(server, Host::Client(client), both);
                }
            }
            Kind::StoreDies(store, true) => lab.stores[store].lose_power().expect("a disk in memory works"),
            Kind::StoreDies(store, false) => lab.stores[store].stop(),
            Kind::StoreCut(store, host) => {
                lab.network.cut(host, Host::Store(store), true);
                lab.network.cut(Host::Store(store), host, self.dice.one_in(2));
            }
            Kind::StoreFull(store) => lab.stores[store].set(|faults| faults.full = true),
            Kind::StoreSlow(store) => {
                let slow = Duration::from_millis(self.dice.within(5..1500));
                lab.stores[store].set(|faults| faults.slow = slow);
            }
            Kind::StoreUnsynced(store) => lab.stores[store].set(|faults| faults.unsynced = true),
            Kind::Lossy(client) => {
                let (slow, loses) = (Duration::from_millis(self.dice.below(300)), self.dice.within(2..20));
                for server in (0..MACHINES).map(Host::Server) {
                    lab.network.degrade(Host::Client(client), server, slow, loses);
                    lab.network.degrade(server, Host::Client(client), slow, loses);
                }
            }
            Kind::Clock(client) => {
                let wrong = self.dice.within(0..7_200) as i64 - 3_600;
                _ = crew.process(client).inspect(|process| process.set_wall_clock(wrong * 1_000_000_000));
            }
        }
    }

    fn heal(&mut self, lab: &Arc<Lab>, crew: &mut Crew, kind: Kind) {
        match kind {
            Kind::MetaDies => lab.start_server(),
            Kind::MetaStops => lab.stop_server(false),
            Kind::MetaLeaves(away) => lab.wake_server(away),
            Kind::MetaFull => lab.free_server(),
            Kind::ClientDies(client) => crew.start(lab, client),
            Kind::ClientStops(client) => _ = crew.process(client).inspect(|process| process.stop(false)),
            Kind::ClientCut(client, _) => {
                for server in (0..MACHINES).map(Host::Server) {
                    lab.network.cut(Host::Client(client), server, false);
                    lab.network.cut(server, Host::Client(client), false);
                }
            }
            Kind::StoreDies(store, _) => lab.stores[store].start(),
            Kind::StoreCut(store, host) => {
                lab.network.cut(host, Host::Store(store), false);
                lab.network.cut(Host::Store(store), host, false);
            }
            Kind::StoreFull(store) => lab.stores[store].set(|faults| faults.full = false),
            Kind::StoreSlow(store) => lab.stores[store].set(|faults| faults.slow = Duration::ZERO),
            Kind::StoreUnsynced(store) => lab.stores[store].set(|faults| faults.unsynced = false),
            Kind::Lossy(client) => {
                for server in (0..MACHINES).map(Host::Server) {
                    lab.network.degrade(Host::Client(client), server, Duration::ZERO, 0);
                    lab.network.degrade(server, Host::Client(client), Duration::ZERO, 0);
                }
            }
            Kind::Clock(_) | Kind::MetaClock => {}
        }
    }
}
