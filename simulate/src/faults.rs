//! What fails in a run, and when: by the seed.

use crate::lab::{LEASE, Lab};
use crate::network::Host;
use crate::scenario::Crew;
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
    /// A client's machine loses power; it starts again.
    ClientDies(usize),
    ClientStops(usize),
    /// A client reaches the server no more, in one direction or both.
    ClientCut(usize, bool),
    /// A store's machine loses power, or its process only ends.
    StoreDies(usize, bool),
    /// Someone reaches a store no more.
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

/// A run's character: which faults it has, how often.
pub struct Faults {
    dice: Dice,
    /// Pause between two faults, on average, in milliseconds.
    pause: u64,
    /// What keeps stores from answering now.
    broken_stores: Vec<usize>,
    only: Option<u64>,
}

impl Faults {
    pub fn new() -> Self {
        let mut dice = Dice::new(world::roll(Dice::next), 7);
        let pause = *dice.choose(&[1_000, 4_000, 12_000, 60_000]).expect("there are some");
        let only = dice.one_in(2).then(|| dice.below(12));
        world::note(format_args!("a fault each {pause} ms; only: {only:?}"));
        Self { dice, pause, broken_stores: Vec::new(), only }
    }

    fn kind(&mut self, lab: &Lab) -> Kind {
        let client = self.dice.below(CLIENTS as u64) as usize;
        let store = self.dice.below(lab.stores.len() as u64) as usize;
        let kind = self.only.unwrap_or_else(|| self.dice.below(12));
        match kind {
            0 => Kind::MetaDies,
            1 => Kind::MetaStops,
            2 => Kind::ClientDies(client),
            3 => Kind::ClientStops(client),
            4 => Kind::ClientCut(client, self.dice.one_in(2)),
            5 => Kind::StoreDies(store, self.dice.one_in(2)),
            6 => Kind::StoreCut(store, if self.dice.one_in(2) { Host::Meta } else { Host::Client(client) }),
            7 => Kind::StoreFull(store),
            8 => Kind::StoreSlow(store),
            9 => Kind::StoreUnsynced(store),
            10 => Kind::Lossy(client),
            _ => Kind::Clock(client),
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
        while world::now() < until {
            sleep(Duration::from_millis(self.dice.within(self.pause / 4..self.pause * 7 / 4)));
            if world::now() >= until {
                break;
            }
            let kind = self.kind(lab);
            // The volume goes on without `spare` stores: of the others none is touched.
            if let Kind::StoreDies(store, _) | Kind::StoreCut(store, _) | Kind::StoreFull(store) | Kind::StoreUnsynced(store) = kind
                && !self.broken_stores.contains(&store)
                && self.broken_stores.len() >= lab.spare
            {
                continue;
            }
            let lasts = self.lasts();
            world::note(format_args!("fault: {kind:?} for {lasts:?}"));
            let begun = lab.history.now();
            self.break_it(lab, crew, kind);
            sleep(lasts);
            self.mend(lab, crew, kind);
            world::note(format_args!("over: {kind:?}"));
            // Its consequences last longer: leases, suspicions, grace periods.
            let over = lab.history.now() + (4 * LEASE).as_nanos() as u64;
            lab.history.with(|all| all.disturbed.push((begun, over)));
        }
    }

    fn break_it(&mut self, lab: &Arc<Lab>, crew: &mut Crew, kind: Kind) {
        match kind {
            Kind::MetaDies => lab.kill_server(),
            Kind::MetaStops => _ = lab.serving().inspect(|server| server.process.stop(true)),
            Kind::ClientDies(client) => crew.kill(lab, client),
            Kind::ClientStops(client) => _ = crew.process(client).inspect(|process| process.stop(true)),
            Kind::ClientCut(client, both) => {
                lab.network.cut(Host::Client(client), Host::Meta, true);
                lab.network.cut(Host::Meta, Host::Client(client), both);
            }
            Kind::StoreDies(store, loses) => {
                self.broken_stores.push(store);
                match loses {
                    true => lab.stores[store].lose_power().expect("a disk in memory works"),
                    false => lab.stores[store].stop(),
                }
            }
            Kind::StoreCut(store, host) => {
                self.broken_stores.push(store);
                lab.network.cut(host, Host::Store(store), true);
                lab.network.cut(Host::Store(store), host, self.dice.one_in(2));
            }
            Kind::StoreFull(store) => {
                self.broken_stores.push(store);
                lab.stores[store].set(|faults| faults.full = true);
            }
            Kind::StoreSlow(store) => {
                let slow = Duration::from_millis(self.dice.within(5..1500));
                lab.stores[store].set(|faults| faults.slow = slow);
            }
            Kind::StoreUnsynced(store) => {
                self.broken_stores.push(store);
                lab.stores[store].set(|faults| faults.unsynced = true);
            }
            Kind::Lossy(client) => {
                let (slow, loses) = (Duration::from_millis(self.dice.below(300)), self.dice.within(2..20));
                for (from, to) in [(Host::Client(client), Host::Meta), (Host::Meta, Host::Client(client))] {
                    lab.network.degrade(from, to, slow, loses);
                }
            }
            Kind::Clock(client) => {
                let wrong = self.dice.within(0..7_200) as i64 - 3_600;
                _ = crew.process(client).inspect(|process| process.set_wall_clock(wrong * 1_000_000_000));
            }
        }
    }

    fn mend(&mut self, lab: &Arc<Lab>, crew: &mut Crew, kind: Kind) {
        match kind {
            Kind::MetaDies => lab.start_server(),
            Kind::MetaStops => _ = lab.serving().inspect(|server| server.process.stop(false)),
            Kind::ClientDies(client) => crew.start(lab, client),
            Kind::ClientStops(client) => _ = crew.process(client).inspect(|process| process.stop(false)),
            Kind::ClientCut(client, _) => {
                lab.network.cut(Host::Client(client), Host::Meta, false);
                lab.network.cut(Host::Meta, Host::Client(client), false);
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
                for (from, to) in [(Host::Client(client), Host::Meta), (Host::Meta, Host::Client(client))] {
                    lab.network.degrade(from, to, Duration::ZERO, 0);
                }
            }
            Kind::Clock(_) => {}
        }
        // A store that lacks something is repaired only later, so it counts as broken: of those
        // that were, one is forgotten now and then.
        if self.broken_stores.len() > lab.spare {
            self.broken_stores.remove(0);
        }
    }
}
