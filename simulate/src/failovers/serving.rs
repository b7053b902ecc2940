//! The process of a metadata server: it tries to have the volume, and gives it away.

use super::lab::{DRIFT, Lab};
use super::server::{Server, check};
use meta::journal::Journaled;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::Duration;
use volume::lock;
use world::Process;

/// How often a holder looks whether it still is one.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

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

/// Has the volume until another server has it, or it is to be given away.
fn hold(lab: &Arc<Lab>, machine: usize, process: Process, kv: Journaled) {
    let told = world::atomically(|| lock(&lab.told).all().clone());
    if let Err(why) = check(&kv, &told) {
        return world::note(format_args!("it is over already: {why}"));
    }
    let epoch = kv.epoch().number;
    let server = Arc::new(Server::new(machine, process, kv, lab.broken));
    world::live();
    world::note(format_args!("has the volume, epoch {epoch}"));
    lab.count("openings", 1);
    world::atomically(|| *lock(&lab.machines[machine].serving) = Some(server.clone()));
    while !server.is_over() {
        if server.leaves.load(Ordering::SeqCst) {
            world::atomically(|| *lock(&lab.machines[machine].serving) = None);
            let closed = server.close();
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
