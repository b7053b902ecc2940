//! A process with the metadata server: it opens the volume, serves it, and looks after it.

use crate::index::Kept;
use crate::lab::{Away, DRIFT, LEASE, Lab, SERVER_LEASE};
use crate::network::Host;
use crate::server::Server;
use fs::{FileSystem, OpenOptions, Sessions, Tenure};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread::sleep;
use std::time::Duration;
use volume::target::Holder;
use volume::{Control, lock};
use world::Process;

/// Pause between the reports to a store, which carry the fence.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);
/// Pause between two looks at what needs repair.
const REPAIR_INTERVAL: Duration = Duration::from_secs(4);
/// Pause before a failed opening is repeated.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Pause after what was open has failed.
const FAILURE_PAUSE: Duration = Duration::from_secs(5);

impl Lab {
    /// Starts a metadata server, on a machine that was restarted.
    pub fn start_server(self: &Arc<Self>) {
        let number = self.starts.fetch_add(1, Ordering::SeqCst) + 1;
        *lock(&self.meta) = Some(start(self, number));
    }

    /// The server goes away, and another one is started on another machine: it has the volume when
    /// the lease has run out. Returns whether this was done.
    pub fn leave_server(self: &Arc<Self>, away: Away) -> bool {
        let done = self.give_up_server(away);
        if done {
            self.start_server();
        }
        done
    }
}

/// Starts the process. It serves when the volume is open.
fn start(lab: &Arc<Lab>, start: u64) -> Process {
    let (process, host) = (Process::new("meta"), lab.host());
    process.set_drift(world::roll(|dice| dice.below(2 * DRIFT as u64) as i64 - DRIFT));
    let (lab, index) = (lab.clone(), lab.new_index());
    process.spawn(move || {
        loop {
            let volume = serve(&lab, process, host, &index, start);
            // As `cluster::Post` does: what has failed or was fenced is left, and the volume opened
            // again. The fence may be a claim of an opening that failed.
            let tenure = loop {
                match volume.tenure() {
                    Tenure::Fresh | Tenure::Stale => sleep(REPORT_INTERVAL),
                    ended => break ended,
                }
            };
            world::live();
            world::note(format_args!("cannot go on, {tenure:?}: {}", volume.trouble().unwrap_or_default()));
            volume.abandon();
            // It never ends: its end would wait for what has failed.
            std::mem::forget(volume);
            sleep(FAILURE_PAUSE);
            if lab.serving().is_none_or(|server| server.process != process) {
                return;
            }
        }
    });
    process
}

/// Opens the volume, and answers requests from then on.
fn serve(lab: &Arc<Lab>, process: Process, host: Host, index: &Kept, start: u64) -> Arc<FileSystem> {
    let volume = loop {
        match open(lab, host, index) {
            Ok(volume) => break volume,
            Err(why) => world::note(format_args!("cannot open the volume: {why}")),
        }
        sleep(RETRY_PAUSE);
    };
    let sessions = Sessions::new(volume.clone(), LEASE);
    sessions.keep_ticking();
    let maintained = Arc::downgrade(&volume);
    std::thread::spawn(move || maintain(&maintained));
    for number in 0..lab.stores.len() {
        let (lab, sessions) = (lab.clone(), sessions.clone());
        std::thread::spawn(move || report(&lab, host, &sessions, number));
    }
    world::live();
    world::note(format_args!("serves, start {start}"));
    lab.serve(Server::new(process, host, sessions, lab.broken));
    volume
}

fn open(lab: &Arc<Lab>, host: Host, index: &Kept) -> fs::Result<Arc<FileSystem>> {
    let Host::Server(machine) = host else { unreachable!("a server is on a machine for servers") };
    let holder = Holder { id: machine as u128 + 1, name: format!("server{machine}"), address: String::new() };
    let warn: fs::Warn = Box::new(|what| world::note(format_args!("warning: {what}")));
    let lease = Some(SERVER_LEASE);
    let options = OpenOptions { serve: true, warn: Some(warn), holder, lease, ..OpenOptions::default() };
    FileSystem::open_on(lab.label.clone(), lab.places(host, None), Box::new(index.clone()), options)
}

/// Repairs what is queued, as `cluster::keep` does, only sooner.
fn maintain(volume: &Weak<FileSystem>) {
    while let Some(volume) = volume.upgrade().filter(|volume| !volume.is_closed()) {
        if volume.count_queued().unwrap_or(0) > 0 {
            match volume.repair_queued(&Control::default()) {
                Ok(done) => world::note(format_args!("repaired {} chunks, {} failed", done.chunks, done.failed.len())),
                Err(why) => world::note(format_args!("cannot repair: {why}")),
            }
        }
        drop(volume);
        sleep(REPAIR_INTERVAL);
    }
}

/// Tells a store which sessions live, again and again.
fn report(lab: &Lab, host: Host, sessions: &Sessions, number: usize) {
    loop {
        let (next, live) = sessions.living();
        if lab.network.send(host, Host::Store(number)) {
            world::live();
            let store = &lab.stores[number];
            if !store.faults().down {
                store.hear(sessions.opening().number, next, live);
            }
        }
        sleep(REPORT_INTERVAL);
    }
}
