//! A metadata server: it tries to have the volume, and carries out requests while it has.

use super::lab::{DRIFT, Lab, SUM, number};
use crate::broken::Broken;
use meta::journal::{Journaled, Standing};
use meta::kv::{Batch, Kv, KvError};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::Duration;
use volume::lock;
use world::{Dice, Process};

/// How often a holder looks whether it still is one.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// A server that has the volume, or believes so.
pub struct Server {
    pub machine: usize,
    pub process: Process,
    pub epoch: u64,
    kv: Journaled,
    /// Requests are carried out one after the other, and become durable together.
    order: Mutex<()>,
    /// It is to give the volume away.
    pub leaves: AtomicBool,
    broken: Broken,
}

/// What a client asks.
#[derive(Clone, Copy, Debug)]
pub enum Ask {
    /// Carries out the request with this number, once.
    Change(u64),
    /// The number of all that were carried out.
    Read,
}

impl Server {
    /// Starts a process on a machine. It tries to have the volume until it dies.
    pub fn start(lab: &Arc<Lab>, machine: usize) -> Process {
        let process = Process::new(&format!("server{machine}"));
        let (drift, wall) = world::roll(|dice| (dice.below(2 * DRIFT as u64), dice.below(7200)));
        process.set_drift(drift as i64 - DRIFT);
        process.set_wall_clock((wall as i64 - 3600) * 1_000_000_000);
        let lab = lab.clone();
        process.spawn(move || {
            loop {
                match Journaled::open(lab.options(machine)) {
                    Ok(kv) => hold(&lab, machine, process, kv),
                    Err(why) => world::note(format_args!("cannot open the volume: {why}")),
                }
                // Who is refused waits for a random moment.
                let most = lab.lease.as_millis() as u64 / 2;
                sleep(Duration::from_millis(world::roll(|dice| dice.within(10..most))));
            }
        });
        process
    }

    /// Carries out what a client asks. Returns the position of a request in the history, or the
    /// number of requests.
    pub fn carry_out(&self, ask: Ask) -> Result<u64, KvError> {
        match ask {
            Ask::Change(request) => self.change(request),
            Ask::Read => Ok(self.kv.get(SUM)?.as_deref().map_or(0, number)),
        }
    }

    fn change(&self, request: u64) -> Result<u64, KvError> {
        let (position, seq) = {
            let _order = lock(&self.order);
            let stored = self.kv.get(&request.to_be_bytes())?.filter(|_| self.broken != Broken::Once);
            if let Some(stored) = stored {
                // What was found need not be durable yet.
                (number(&stored), u64::MAX)
            } else {
                let position = self.kv.get(SUM)?.as_deref().map_or(0, number) + 1;
                let mut batch = Batch::default();
                batch.put(request.to_be_bytes(), position.to_le_bytes().to_vec());
                batch.merge(SUM, 1u64.to_le_bytes());
                (position, self.kv.commit(batch)?.seq)
            }
        };
        if self.broken != Broken::Sync {
            self.kv.sync(seq)?;
        }
        Ok(position)
    }

    /// Whether it knows that it has ended.
    fn is_over(&self) -> bool {
        self.kv.standing() == Standing::Fenced
    }
}

/// Has the volume until another server has it, or it is to be given away.
fn hold(lab: &Arc<Lab>, machine: usize, process: Process, kv: Journaled) {
    let told = world::atomically(|| lock(&lab.told).all().clone());
    if let Err(why) = check(&kv, &told) {
        return world::note(format_args!("it is over already: {why}"));
    }
    let (epoch, order) = (kv.epoch().number, Mutex::default());
    let server = Server { machine, process, epoch, kv, order, leaves: AtomicBool::new(false), broken: lab.broken };
    let server = Arc::new(server);
    world::live();
    world::note(format_args!("has the volume, epoch {epoch}"));
    lab.count("openings", 1);
    world::atomically(|| *lock(&lab.machines[machine].serving) = Some(server.clone()));
    while !server.is_over() {
        if server.leaves.load(Ordering::SeqCst) {
            world::atomically(|| *lock(&lab.machines[machine].serving) = None);
            let closed = server.kv.close();
            world::note(format_args!("gives the volume away: {closed:?}"));
            // The others come first.
            sleep(lab.lease);
            break;
        }
        sleep(LOOK_INTERVAL);
    }
    world::live();
    world::note(format_args!("has the volume no more, epoch {epoch}"));
    world::atomically(|| *lock(&lab.machines[machine].serving) = None);
}

/// Compares what an opening has found with what clients were told before.
///
/// # Errors
/// When it cannot be read any more.
pub fn check(kv: &Journaled, told: &BTreeMap<u64, u64>) -> Result<(), KvError> {
    let (mut requests, mut sum) = (Vec::new(), 0);
    kv.snapshot(&mut |key, value| {
        match key.try_into() {
            Ok(request) => requests.push((u64::from_be_bytes(request), number(value))),
            Err(_) => sum = number(value),
        }
        Ok(true)
    })?;
    kv.check_fresh()?;
    let positions: BTreeSet<u64> = requests.iter().map(|(_, position)| *position).collect();
    if positions.len() != requests.len() || !positions.iter().copied().eq(1..=sum) {
        world::fail(&format!("doubled, or not whole: {} requests, {sum} carried out: {requests:?}", requests.len()));
    }
    let found: BTreeMap<u64, u64> = requests.into_iter().collect();
    let lost: Vec<_> = told.iter().filter(|(request, position)| found.get(request) != Some(position)).collect();
    if !lost.is_empty() {
        world::fail(&format!("lost: of {} requests that clients know of, these are missing: {lost:?}", told.len()));
    }
    Ok(())
}

/// A wait of a random length.
pub fn pause(milliseconds: std::ops::Range<u64>) {
    sleep(Duration::from_millis(world::roll(|dice: &mut Dice| dice.within(milliseconds))));
}
