//! A simulation of a metadata server and a client. The server is the real one, on targets in
//! memory, and executes requests where they arrive. The client's requests take the same path as
//! those of a mount and are repeated in the same way. Each of several workers at the client has a
//! directory and knows what it must contain.
//!
//! The simulation checks, whatever fails: no request fails, none is executed twice, and none after
//! a later one. Synced data survives the death of the server. Once nothing fails any more,
//! everything continues. The client pauses between attempts to reach a server that is down.
//!
//! With even seeds the server's machine loses power, and unsynced data is gone. With odd seeds only
//! its process dies, and nothing is lost.

mod lab;
mod model;
mod mount;
mod worker;

use crate::simulation::{Faults, Hosts, for_seeds, world};
use lab::Lab;
use mount::Mount;
use std::sync::atomic::Ordering;
use std::time::Duration;
use worker::Worker;

const WORKERS: usize = 3;

/// Faults happen until this time.
const FAULTS_UNTIL: Duration = Duration::from_secs(60);
/// Everything works again by this time.
const WORKS: Duration = Duration::from_secs(95);
/// The simulation ends at this time.
const END: Duration = Duration::from_secs(105);
/// The client connects at most this often within this time.
const MAX_CONNECTS: (usize, Duration) = (100, Duration::from_secs(10));

fn now() -> Duration {
    turmoil::sim_elapsed().unwrap_or_default()
}

/// Runs the simulation; returns the hash of its record.
fn run(seed: u64) -> blake3::Hash {
    let lab = Lab::new(seed);
    let mut sim = world(seed);
    let hosts = Hosts { servers: vec!["meta".into()], clients: vec!["client".into()], dead: 1, clients_die: false };
    let server = lab.clone();
    sim.host("meta", move || server.clone().serve());
    let client = lab.clone();
    sim.host("client", move || {
        let lab = client.clone();
        async move {
            let mount = Mount::begin(lab).await;
            for number in 0..WORKERS {
                let mount = mount.clone();
                tokio::spawn(async move { Worker::begin(mount, number, seed).await.run().await });
            }
            std::future::pending().await
        }
    });
    let faults = Faults::new(seed, &hosts, FAULTS_UNTIL);
    faults.run(&mut sim, &lab.network, &lab.record, END, |_| lab.dies()).unwrap();
    drop(sim);
    if let Some(volume) = lab.open.lock().unwrap().take() {
        std::thread::spawn(move || volume.abandon());
    }
    let (attempts, who) = lab.network.most_attempts("client", MAX_CONNECTS.1);
    if attempts > MAX_CONNECTS.0 {
        lab.record.wrong(format_args!("{who} connected {attempts} times in {:?}", MAX_CONNECTS.1));
    }
    let (done, after) = (lab.done.load(Ordering::Relaxed), lab.after.load(Ordering::Relaxed));
    lab.record.note(format_args!("{done} actions, {after} at the end; {attempts} connections at most in a while"));
    let through = lab.through.load(Ordering::Relaxed);
    if after < WORKERS || through < WORKERS {
        lab.record
            .wrong(format_args!("only {after} things were done when all worked again, and {through} workers ended"));
    }
    lab.record.finish()
}

#[test]
fn every_request_is_carried_out_once_whatever_fails() {
    for_seeds(24, |seed| _ = run(seed));
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in [3, 4] {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
    assert_ne!(run(3), run(5));
}
