//! The clients of a run and their workers: they start, die, and come to their end.

use crate::client::Client;
use crate::lab::Lab;
use crate::work::{CLIENTS, Places, WORKERS};
use crate::worker::Worker;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::Duration;
use volume::lock;
use world::{Dice, Process};

/// All operations end within this time after that: the longest that a client waits for a server.
const FINISH_TIMEOUT: Duration = Duration::from_secs(400);
/// The clients, and their workers.
pub struct Crew {
    places: Arc<Places>,
    stop: Arc<AtomicBool>,
    /// Workers that work, by client.
    at_work: [Arc<AtomicUsize>; CLIENTS],
    pub clients: [Arc<Mutex<Option<Arc<Client>>>>; CLIENTS],
    processes: [Option<Process>; CLIENTS],
}

impl Crew {
    /// No client runs yet.
    pub fn new(places: Arc<Places>) -> Self {
        Self {
            places,
            stop: Arc::default(),
            at_work: Default::default(),
            clients: Default::default(),
            processes: [None; CLIENTS],
        }
    }

    /// The process of a client, if it runs.
    pub fn process(&self, client: usize) -> Option<Process> {
        self.processes[client]
    }

    /// A client's machine loses power.
    pub fn kill(&mut self, lab: &Lab, client: usize) {
        let Some(process) = self.processes[client].take() else { return };
        process.kill();
        // What it had not synced is lost.
        lab.history.failed(client);
        self.at_work[client] = Arc::default();
        let gone = std::mem::take(&mut self.clients[client]);
        // Its end would commit.
        std::mem::forget(gone);
    }

    /// It starts again, and so do its workers.
    pub fn start(&mut self, lab: &Arc<Lab>, number: usize) {
        if self.processes[number].is_some() {
            return;
        }
        let process = Process::new(&format!("client{number}"));
        process.set_drift(world::roll(|dice| dice.below(4000) as i64 - 2000));
        self.processes[number] = Some(process);
        let (lab, places, stop) = (lab.clone(), self.places.clone(), self.stop.clone());
        let (at_work, client) = (self.at_work[number].clone(), self.clients[number].clone());
        let seed = world::roll(Dice::next);
        at_work.fetch_add(WORKERS, Ordering::SeqCst);
        process.spawn(move || {
            let found = Client::connect(&lab, number);
            *lock(&client) = Some(found.clone());
            for worker in 0..WORKERS {
                let worker = Worker {
                    lab: lab.clone(),
                    client: found.clone(),
                    places: places.clone(),
                    number: number * WORKERS + worker,
                    stop: stop.clone(),
                    dice: Dice::new(seed, worker as u64),
                };
                let at_work = at_work.clone();
                std::thread::spawn(move || {
                    worker.run();
                    at_work.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
    }

    /// Waits until no worker works any more.
    pub fn finish(&self) {
        self.stop.store(true, Ordering::SeqCst);
        let end = world::now() + FINISH_TIMEOUT;
        while self.at_work.iter().any(|count| count.load(Ordering::SeqCst) > 0) {
            if world::now() > end {
                let left: Vec<usize> = self.at_work.iter().map(|count| count.load(Ordering::SeqCst)).collect();
                world::fail(&format!("workers do not come to their end: {left:?}"));
            }
            sleep(Duration::from_millis(500));
        }
    }
}
