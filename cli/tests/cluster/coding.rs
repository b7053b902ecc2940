//! Stripes that the stores code: what is on the disks is the same, and a Master that is killed or
//! stopped costs no client its data.

use crate::lab::{Cluster, WAIT_TIMEOUT, possible};
use crate::scratch::{Scratch, noise, run, weft};
use crate::stores::{Load, MAX_WAIT, all_there, write_synced};
use plan::{SetId, TargetId};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime};
use volume::format::{CHUNK_HEADER_BYTES, StripeHeader};

/// The chunk files on a disk: set, position, and the file.
pub fn chunks(disk: PathBuf) -> Vec<(SetId, usize, PathBuf)> {
    let list = |place: PathBuf| fs::read_dir(place).into_iter().flatten().flatten().map(|entry| entry.path());
    let chunk = |path: PathBuf| {
        let (set, position) = path.file_name()?.to_str()?.strip_suffix(".chunk")?.split_once('.')?;
        Some((SetId(u64::from_str_radix(set, 16).ok()?), position.parse().ok()?, path))
    };
    list(disk.join("chunks")).flat_map(list).filter_map(chunk).collect()
}

/// A store that codes stripes of the set that was written to last: the first in its turns. Store n
/// has target n.
fn current_master(cluster: &Cluster) -> usize {
    let mut sets: BTreeMap<SetId, (SystemTime, Vec<Option<TargetId>>)> = BTreeMap::new();
    for store in 0..cluster.stores.len() {
        for (set, position, file) in chunks(cluster.scratch.path.join(format!("disk{store}"))) {
            let Ok(modified) = file.metadata().and_then(|found| found.modified()) else { continue };
            let (newest, places) = sets.entry(set).or_insert((modified, vec![None; 6]));
            *newest = modified.max(*newest);
            places[position] = Some(TargetId(store as u16));
        }
    }
    let (set, (_, places)) = sets.into_iter().max_by_key(|(_, (modified, _))| *modified).expect("a set");
    let position = plan::coding::master(set, &places).expect("a Master");
    places[position.index()].map(|id| usize::from(id.0)).expect("it has a place")
}

/// Bytes that a process has written, to its connections above all.
fn bytes_out(process: Option<u32>) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/io", process.unwrap())).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("wchar: ")).expect("a count of written bytes");
    line.parse().unwrap()
}

/// The user data of stripes, and a block of each, in any order.
type Blocks = Vec<(u32, Vec<u8>)>;

/// The blocks in the chunks of the set with the most data, by position.
fn blocks(cluster: &Cluster) -> BTreeMap<usize, Blocks> {
    let mut all: BTreeMap<SetId, BTreeMap<usize, PathBuf>> = BTreeMap::new();
    for store in 0..cluster.stores.len() {
        for (set, position, file) in chunks(cluster.scratch.path.join(format!("disk{store}"))) {
            all.entry(set).or_default().insert(position, file);
        }
    }
    let length =
        |files: &BTreeMap<usize, PathBuf>| files.values().map(|file| file.metadata().unwrap().len()).sum::<u64>();
    let (_, files) = all.into_iter().max_by_key(|(_, files)| length(files)).expect("a set");
    let of = |file: PathBuf| {
        let (bytes, mut at, mut found) = (fs::read(file).unwrap(), CHUNK_HEADER_BYTES, Vec::new());
        while at + 64 <= bytes.len() {
            // Records begin at multiples of 64.
            let Ok(header) = StripeHeader::decode(&bytes[at..]) else {
                at += 64;
                continue;
            };
            let block = at + StripeHeader::encoded_bytes(header.block_bytes as usize);
            let end = block + header.block_bytes as usize;
            found.push((header.data_bytes, bytes[block..end].to_vec()));
            at = end.next_multiple_of(64);
        }
        // Several threads write at a time: which stripe is where differs from run to run.
        found.sort();
        found
    };
    files.into_iter().map(|(position, file)| (position, of(file))).collect()
}

#[test]
fn the_same_is_on_the_disks_whoever_codes_and_the_client_sends_less() {
    if !possible("the_same_is_on_the_disks_whoever_codes_and_the_client_sends_less") {
        return;
    }
    const FILE_BYTES: usize = 24_000_000;
    let attempt = |coding: &str| {
        let cluster = Cluster::new("rs:4+2", 6);
        let mount = cluster.mount_with("a", &["--coding", coding]);
        let before = bytes_out(mount.id());
        let mut file = File::create(mount.at("f")).unwrap();
        file.write_all(&noise(FILE_BYTES)).unwrap();
        file.sync_all().unwrap();
        drop(file);
        let sent = (bytes_out(mount.id()) - before) as f64 / FILE_BYTES as f64;
        mount.unmount();
        cluster.is_healthy();
        let reader = cluster.mount_with("b", &["-o", "ro"]);
        assert!(fs::read(reader.at("f")).unwrap() == noise(FILE_BYTES));
        reader.unmount();
        (sent, blocks(&cluster))
    };
    let (by_client, here) = &attempt("client");
    assert!(*by_client > 1.45, "{by_client}");
    // On a busy machine a Master may be silent for so long that the client codes a stripe itself.
    let mut attempts = (0..5).map(|_| attempt("server"));
    let (by_server, there) = &attempts.find(|(sent, _)| *sent < 1.1).expect("the client sends no parity");
    eprintln!("a byte written is {by_client:.2} bytes sent with client coding, {by_server:.2} with server coding");
    assert_eq!((here.len(), there.len()), (6, 6));
    for (position, stripes) in here {
        let lengths = |blocks: &Blocks| blocks.iter().map(|(data, block)| (*data, block.len())).collect::<Vec<_>>();
        assert!(!stripes.is_empty());
        assert_eq!(lengths(stripes), lengths(&there[position]), "position {position}");
        // The last data block has the manifest, in which there are times, and parity has
        // everything: verification read those, and the tests of `cluster` compare them.
        assert!(*position >= 3 || stripes == &there[position], "position {position}");
    }
}

#[test]
fn the_stripes_are_as_long_and_the_master_is_the_one_that_the_mount_says() {
    if !possible("the_stripes_are_as_long_and_the_master_is_the_one_that_the_mount_says") {
        return;
    }
    const MASTER: usize = 2;
    let cluster = Cluster::new("rs:4+2", 6);
    let master = format!("store://127.0.0.1:{}", cluster.ports[MASTER]);
    let options = ["--coding", "server", "--stripe-bytes", "64k", "--master", &master];
    let mount = cluster.mount_with("a", &options);
    let sent = || cluster.stores.iter().map(|store| bytes_out(store.id())).collect::<Vec<u64>>();
    let before = sent();
    let mut file = File::create(mount.at("f")).unwrap();
    file.write_all(&noise(6_400_000)).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let by: Vec<u64> = sent().iter().zip(before).map(|(after, before)| after - before).collect();
    mount.unmount();
    cluster.is_healthy();
    assert!(fs::read(cluster.mount_with("b", &["-o", "ro"]).at("f")).unwrap() == noise(6_400_000));
    // It sends the blocks of five others, and writes its own; they write one each.
    let others = (0..6).filter(|&store| store != MASTER).map(|store| by[store]);
    assert!(others.max().is_some_and(|most| most < 5_000_000) && by[MASTER] > 9_000_000, "{by:?}");
    let found = blocks(&cluster);
    assert_eq!(found.len(), 6);
    for (position, stripes) in found {
        let longest = stripes.iter().map(|(data, _)| *data).max();
        assert!(longest == Some(64 << 10) && stripes.len() >= 90, "position {position}: {longest:?} {}", stripes.len());
        assert!(stripes.iter().all(|(_, block)| block.len() <= 20 << 10), "position {position}");
    }
}

/// A Master has two blocks of a stripe for some stores, itself perhaps among them.
#[test]
fn a_master_codes_stripes_that_have_several_blocks_on_a_store() {
    if !possible("a_master_codes_stripes_that_have_several_blocks_on_a_store") {
        return;
    }
    let cluster = Cluster::created("rs:4+2", 4, &["--allow-sharing"], &[]);
    let mount = cluster.mount_with("a", &["--coding", "server"]);
    let write = |name: String| {
        let mut file = File::create(mount.at(name)).unwrap();
        file.write_all(&noise(3_000_000)).unwrap();
        file.sync_all().unwrap();
    };
    (0..6).for_each(|number| write(format!("f{number}")));
    // The stores report once a second. On a busy machine the client codes some stripes itself.
    let begun = Instant::now();
    loop {
        write("more".into());
        let stores = cluster.on(&["status", "--json"]).json()["stores"].clone();
        let coded = |store: &serde_json::Value| store["coded_stripes"].as_u64().unwrap();
        let coded: Vec<u64> = stores.as_array().unwrap().iter().map(coded).collect();
        if coded.iter().sum::<u64>() >= 6 && coded.iter().filter(|&&stripes| stripes > 0).count() > 1 {
            break;
        }
        assert!(begun.elapsed() < WAIT_TIMEOUT, "{coded:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
    let status = cluster.on(&["status", "--json"]);
    assert_eq!(status.status, 1, "a volume that survives less than its code says is not healthy");
    assert!(status.json()["chunk_sets_sharing_targets"].as_u64() > Some(0));
    cluster.on(&["verify"]).good();
    // Any one store may be lost, also while it is written to: it has two blocks at most.
    cluster.stores[1].kill();
    (6..9).for_each(|number| write(format!("f{number}")));
    mount.unmount();
    let reader = cluster.mount_with("b", &["-o", "ro"]);
    for number in 0..9 {
        assert!(fs::read(reader.at(format!("f{number}"))).unwrap() == noise(3_000_000), "f{number}");
    }
}

/// Thirty files in a row fill the same chunk sets: all of their stores code.
#[test]
fn the_files_of_one_client_are_coded_by_several_stores() {
    if !possible("the_files_of_one_client_are_coded_by_several_stores") {
        return;
    }
    let cluster = Cluster::new("rs:4+2", 6);
    let mount = cluster.mount_with("a", &["--coding", "server"]);
    for number in 0..30 {
        let mut file = File::create(mount.at(format!("f{number}"))).unwrap();
        file.write_all(&noise(300_000)).unwrap();
        file.sync_all().unwrap();
    }
    mount.unmount();
    // The stores report once a second. On a busy machine the client codes some stripes itself.
    let begun = Instant::now();
    let coded = loop {
        let stores = cluster.on(&["status", "--json"]).json()["stores"].clone();
        let stores = stores.as_array().unwrap();
        let all = |name: &str| stores.iter().map(|store| store[name].as_u64().unwrap()).collect::<Vec<u64>>();
        let (coded, bytes) = (all("coded_stripes"), all("coded_bytes"));
        let (sum, most) = (coded.iter().sum::<u64>(), *coded.iter().max().unwrap());
        if sum >= 24 && 2 * most <= sum && !coded.contains(&0) && bytes.iter().any(|&bytes| bytes > 300_000) {
            break coded;
        }
        assert!(begun.elapsed() < WAIT_TIMEOUT, "{coded:?}");
        std::thread::sleep(Duration::from_millis(200));
    };
    eprintln!("stripes coded by each store: {coded:?}");
    cluster.is_healthy();
}

/// Writes with server coding while something happens to the Master of the moment; returns what was
/// written.
fn written_while(cluster: &Cluster, happens: impl FnOnce(usize, &Load)) -> Vec<(String, usize)> {
    let mount = cluster.mount_with("writer", &["-o", "coding=server"]);
    let (mut files, _) = write_synced(&mount.point, "old", &AtomicBool::new(true));
    files.push(("big".into(), 20_000_000));
    fs::write(mount.at("big"), noise(20_000_000)).unwrap();
    let load = Load::default();
    let (new, wrote) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| load.write(&mount.point, "new"));
        let happened = catch_unwind(AssertUnwindSafe(|| {
            load.writes_go_on();
            happens(current_master(cluster), &load);
        }));
        load.end();
        let written = writer.join();
        happened.unwrap();
        written.unwrap()
    });
    eprintln!("{} files written; one took {wrote:.2?} at most", new.len());
    files.extend(new);
    assert!(wrote < MAX_WAIT, "a write took {wrote:?}");
    all_there(&mount.point, &files);
    mount.unmount();
    files
}

#[test]
fn the_master_is_killed_during_writes_and_nothing_fails() {
    if !possible("the_master_is_killed_during_writes_and_nothing_fails") {
        return;
    }
    let cluster = Cluster::new("rs:4+2", 7);
    let mut killed = Vec::new();
    let files = written_while(&cluster, |master, load| {
        cluster.stores[master].kill();
        killed.push(master);
        load.writes_go_on();
        // Another one has its turn now.
        let next = current_master(&cluster);
        assert_ne!(next, master);
        cluster.stores[next].kill();
        killed.push(next);
        load.writes_go_on();
    });
    // With two stores away it is decided for each stripe.
    let fresh = cluster.mount_with("fresh", &["--coding", "auto"]);
    all_there(&fresh.point, &files);
    fs::write(fresh.at("more"), noise(9_000_000)).unwrap();
    fresh.unmount();
    killed.iter().for_each(|&store| cluster.stores[store].start());
    cluster.heal();
    cluster.is_healthy();
    cluster.stores[(killed[0] + 1) % 7].kill();
    let fresher = cluster.mount("fresher");
    all_there(&fresher.point, &files);
    assert!(fs::read(fresher.at("more")).unwrap() == noise(9_000_000));
}

#[test]
fn the_master_is_stopped_and_what_it_does_later_harms_nothing() {
    if !possible("the_master_is_stopped_and_what_it_does_later_harms_nothing") {
        return;
    }
    let cluster = Cluster::new("rs:4+2", 7);
    let files = written_while(&cluster, |master, load| {
        cluster.stores[master].stop();
        load.writes_go_on();
        // Others code by now.
        load.writes_go_on();
        cluster.stores[master].go_on();
        load.writes_go_on();
    });
    cluster.heal();
    cluster.is_healthy();
    all_there(&cluster.mount("fresh").point, &files);
}

#[test]
fn who_codes_can_be_said_of_a_volume_and_of_a_mount() {
    let scratch = Scratch::new(6);
    let volume = scratch.path.join("vol");
    let create = || {
        let mut command = weft();
        command.arg("create").arg(&volume).args(&scratch.disks);
        command
    };
    let error = run(create().args(["--coding", "server"])).failed(2);
    assert!(error.contains("only storage servers can code"), "{error}");
    assert!(!volume.exists());
    let error = run(create().args(["--coding", "both"])).errors;
    assert!(error.contains("client, server or auto"), "{error}");
    run(create().args(["--coding", "auto"])).good();
    let label = fs::read_to_string(volume.join("volume.json")).unwrap();
    assert!(label.contains(r#""coding": "auto""#), "{label}");
    let point = scratch.path.join("point");
    for option in [["-o", "coding=server"], ["--coding", "server"]] {
        let error = run(weft().arg("mount").arg(&volume).arg(&point).args(option)).failed(2);
        assert!(error.contains("only storage servers can code"), "{error}");
    }
}
