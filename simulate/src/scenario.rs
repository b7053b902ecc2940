//! One run: clients work while things fail; then all works again, everything is synced, and the
//! contents are compared with the history. At last all machines lose power and as many stores are
//! lost as the code allows.

use crate::broken::Broken;
use crate::check;
use crate::client::Client;
use crate::crew::Crew;
use crate::faults::Faults;
use crate::history::{All, Sync};
use crate::lab::{LEASE, Lab, SERVER_LEASE};
use crate::work::{self, CLIENTS, COUNTERS, CUT_LOG, DIRECTORIES, FILES, FIRST_COUNTER, LOG, Places, RECORD};
use crate::worker::mix;
use fs::{FileSystem, OpenOptions};
use meta::kv::MemoryIndex;
use plan::Ino;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use volume::Control;
use volume::lock;
use volume::target::simulate_boot_time;
use world::Process;

/// Things fail for this time.
const FAULT_TIME: Duration = Duration::from_secs(40);
/// The clients go on for this time after that.
const CALM_TIME: Duration = Duration::from_secs(12);
/// How often everything is repaired at the end, at most, and the pause between.
const REPAIRS: usize = 20;
/// How often a client tries to sync at the end. One that cannot has lost its stripes on more stores
/// than the code allows, and says so for ever: its data does not count.
const MAX_SYNC_TRIES: usize = 4;
const SYNC_RETRY_PAUSE: Duration = Duration::from_secs(5);

/// The wall clock of the process that asks, which the simulation may have set wrong.
fn clock() -> fs::Time {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    fs::Time { seconds: now.as_secs() as i64, nanoseconds: now.subsec_nanos() }
}

/// Runs a seed; to be called in a world. With `takeovers`, several servers have the volume in turn.
pub fn run(broken: Broken, takeovers: bool) -> (All, Vec<String>) {
    let panicked = Arc::new(AtomicBool::new(false));
    std::panic::set_hook(Box::new(move |why| {
        if !panicked.swap(true, Ordering::SeqCst) {
            world::fail(&format!("a panic: {why}\n{}", std::backtrace::Backtrace::force_capture()));
        }
    }));
    fs::simulate_clock(clock);
    simulate_boot_time(world::boot_time);
    let lab = Lab::new(broken);
    lab.start_server();
    let places = {
        let lab = lab.clone();
        let first = Process::new("first");
        let prepared = first.spawn(move || {
            let client = Client::connect(&lab, CLIENTS);
            let places = work::prepare(&lab.history, &client.fs).expect("nothing fails yet");
            client.fs.close_volume().expect("nothing fails yet");
            places
        });
        Arc::new(prepared.join().expect("it does not panic"))
    };
    let mut crew = Crew::new(places.clone());
    (0..CLIENTS).for_each(|client| crew.start(&lab, client));
    let until = world::now() + FAULT_TIME;
    Faults::new(&lab, takeovers).run(&lab, &mut crew, until);
    world::note(format_args!("all works again"));
    sleep(CALM_TIME);
    crew.finish();
    let wrong = end(&lab, &crew, &places);
    (lab.history.with(std::mem::take), wrong)
}

/// Has a client sync and close the volume.
fn close(client: &Arc<Client>) {
    let (number, history) = (client.number, &client.connection.lab.history);
    for _ in 0..MAX_SYNC_TRIES {
        let span = history.begin();
        // The first ones may say what was lost.
        match client.fs.sync_all() {
            Ok(()) => {
                let sync = Sync { client: number, file: None, span: history.end(&span) };
                history.with(|all| all.syncs.push(sync));
                if let Err(why) = client.fs.close_volume() {
                    world::fail(&format!("a client cannot close the volume when all works: {why}"));
                }
                return;
            }
            Err(why) => world::note(format_args!("a client cannot sync: {why}")),
        }
        history.failed(number);
        sleep(SYNC_RETRY_PAUSE);
    }
    world::note(format_args!("a client cannot sync though all works"));
    client.fs.abandon();
}

/// Syncs everything, compares what there is with the history, and again after the loss of stores.
fn end(lab: &Arc<Lab>, crew: &Crew, places: &Arc<Places>) -> Vec<String> {
    for client in &crew.clients {
        let client = lock(client).clone().expect("all clients run");
        let done = client.process.spawn(move || close(&client));
        done.join().expect("it does not panic");
    }
    // A client that could not sync has stripes that no file refers to: they go with its session.
    sleep(2 * LEASE);
    let mut wrong = Vec::new();
    let server = lab.serving().expect("it runs");
    let (its_places, volume) = (places.clone(), server.sessions.volume().clone());
    let seen = server.process.spawn(move || {
        sound(&volume, "at the server");
        contents(&volume, &its_places)
    });
    let seen = seen.join().expect("it does not panic");
    wrong.extend(compare(lab, &seen, "at the server"));
    lab.kill_server();
    for store in &lab.stores {
        store.lose_power().expect("a disk in memory works");
        store.start();
    }
    let mut lost: Vec<usize> = (0..lab.stores.len()).collect();
    while lost.len() > lab.spare {
        let which = world::roll(|dice| dice.below(lost.len() as u64));
        lost.remove(which as usize);
    }
    // Nobody gives the volume back.
    sleep(2 * SERVER_LEASE);
    world::note(format_args!("stores {lost:?} are lost"));
    let (its, its_places) = (lab.clone(), places.clone());
    let last = Process::new("last").spawn(move || {
        let places = its.places(its.host(), None).into_iter().filter(|(id, _)| !lost.contains(&usize::from(id.0)));
        let index = Box::new(MemoryIndex::default());
        let volume = FileSystem::open_on(its.label.clone(), places.collect(), index, OpenOptions::default())
            .unwrap_or_else(|why| world::fail(&format!("without stores {lost:?} the volume cannot be opened: {why}")));
        contents(&volume, &its_places)
    });
    let last = last.join().expect("it does not panic");
    wrong.extend(compare(lab, &last, "without the lost stores"));
    if seen.names != last.names {
        wrong.push(format!("names before and after the loss: {:?}, {:?}", seen.names, last.names));
    }
    wrong
}

/// Files, references and chunks agree, and every block is as it was written.
fn sound(volume: &FileSystem, when: &str) {
    // What could not be repaired while a store was away.
    for _ in 0..REPAIRS {
        let done =
            volume.repair(&Control::default()).unwrap_or_else(|why| world::fail(&format!("{when}: repair: {why}")));
        if done.failed.is_empty() && volume.count_queued().is_ok_and(|queued| queued == 0) {
            break;
        }
        sleep(SYNC_RETRY_PAUSE);
    }
    let checked = volume.check().unwrap_or_else(|why| world::fail(&format!("{when}: fsck: {why}")));
    if !checked.problems.is_empty() {
        world::fail(&format!("{when}: {:#?}", checked.problems));
    }
    let verified =
        volume.verify(&Control::default()).unwrap_or_else(|why| world::fail(&format!("{when}: verify: {why}")));
    if !verified.is_sound() {
        world::fail(&format!("{when}: {:#?}", verified.problems));
    }
}

/// What is in the volume at the end.
struct Contents {
    names: Vec<Vec<(u8, Ino)>>,
    files: Vec<Vec<u8>>,
}

fn contents(volume: &FileSystem, places: &Places) -> Contents {
    let names = places.directories.iter().map(|&directory| {
        let all = volume.list(directory, 0, 100).unwrap_or_else(|why| world::fail(&format!("at the end: {why}")));
        let mut all: Vec<(u8, Ino)> = all.iter().map(|entry| (entry.name[0] - b'a', entry.attributes.ino)).collect();
        all.sort_unstable();
        all
    });
    let names = names.collect();
    let file = |&ino: &Ino| {
        let size = volume.attributes(ino).unwrap_or_else(|why| world::fail(&format!("at the end: {why}"))).size;
        let mut bytes = vec![0; size as usize];
        let found =
            volume.read(ino, 0, &mut bytes).unwrap_or_else(|why| world::fail(&format!("at the end: {ino}: {why}")));
        bytes.truncate(found);
        bytes
    };
    Contents { names, files: places.files.iter().map(file).collect() }
}

/// What the history does not allow of the contents.
fn compare(lab: &Lab, contents: &Contents, when: &str) -> Vec<String> {
    lab.history.with(|all| {
        let mut wrong = Vec::new();
        let versions = (0..FILES).map(|file| (file, check::registers::least(all, file)));
        let counters = (0..COUNTERS).map(|counter| (FIRST_COUNTER + counter, check::counters::least(all, counter)));
        for (file, least) in versions.chain(counters) {
            match work::version(&contents.files[file]) {
                None => wrong.push(format!("{when}: file {file} is a mix: {}", mix(&contents.files[file]))),
                Some(version) if version < least => {
                    wrong.push(format!("{when}: file {file} has version {version}, and {least} was synced"));
                }
                Some(_) => {}
            }
        }
        for log in [LOG, CUT_LOG] {
            let records = contents.files[log].chunks(RECORD).map(|record| {
                let mixed = || world::fail(&format!("{when}: a record of log {log} is a mix: {}", mix(record)));
                work::version(record).unwrap_or_else(mixed)
            });
            let records: Vec<u64> = records.collect();
            wrong.extend(check::appends::check(all, log, &records).into_iter().map(|line| format!("{when}: {line}")));
        }
        // The names are one more look at each directory.
        for directory in 0..DIRECTORIES {
            let span = crate::history::Span { begin: u64::MAX - 2, end: Some(u64::MAX - 1) };
            let found = crate::history::Found::All(contents.names[directory].clone());
            let act = crate::history::Act::List;
            all.namings.push(crate::history::Naming { directory, client: CLIENTS, span, act, found });
        }
        wrong
    })
}
