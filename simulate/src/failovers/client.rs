//! A client: it asks one server after the other until its request is answered.

use super::lab::{Lab, SERVERS};
use super::server::{Ask, Server, pause};
use crate::network::Host;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};
use volume::{lock, unpoisoned};

/// How long it takes to learn that a machine has no holder.
const REFUSAL_DELAY: Duration = Duration::from_millis(1);

/// Makes requests until the run ends.
pub fn run(lab: &Lab, number: usize) {
    let mut server = number % SERVERS;
    for count in 1.. {
        let request = (number as u64 + 1) << 32 | count;
        let reads = world::roll(|dice| dice.one_in(3));
        loop {
            if lab.stop.load(Ordering::SeqCst) {
                return;
            }
            let before = lab.newest();
            let answer = ask(lab, number, server, if reads { Ask::Read } else { Ask::Change(request) });
            if let Some(answer) = answer {
                if reads {
                    lab.is_new(before, answer);
                } else {
                    lab.tell(request, answer);
                }
                lab.count(if reads { "reads answered" } else { "synced requests answered" }, 1);
                break;
            }
            server = (server + 1) % SERVERS;
            pause(1..15);
        }
        pause(2..60);
    }
}

/// Has a server carry something out; None without an answer that counts.
fn ask(lab: &Lab, number: usize, machine: usize, what: Ask) -> Option<u64> {
    let (own, there) = (Host::Client(number), Host::Server(machine));
    if !lab.network.send(own, there) {
        sleep(lab.lease);
        return None;
    }
    let Some(server) = lab.serving(machine) else {
        sleep(REFUSAL_DELAY);
        return None;
    };
    let answer = at_server(server, what, lab.lease * 2)?;
    lab.network.send(there, own).then_some(answer)
}

/// In the process of a server.
fn at_server(server: Arc<Server>, what: Ask, timeout: Duration) -> Option<u64> {
    let answer: Arc<(Mutex<Option<Option<u64>>>, Condvar)> = Arc::default();
    let (tell, process) = (answer.clone(), server.process);
    process.spawn(move || {
        let done = server.carry_out(what);
        world::live();
        *lock(&tell.0) = Some(done.ok());
        tell.1.notify_all();
    });
    let begun = Instant::now();
    let mut done = lock(&answer.0);
    while done.is_none() && begun.elapsed() < timeout && !process.is_dead() {
        done = unpoisoned(answer.1.wait_timeout(done, timeout / 8)).0;
    }
    (*done).flatten()
}
