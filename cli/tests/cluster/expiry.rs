//! Capabilities of a client that lives longer than they do.

use crate::capabilities::{Secured, is_refused};
use crate::lab::{Process, WAIT_TIMEOUT, possible};
use crate::scratch::{noise, run, weft};
use crate::stores::drop_caches;
use cluster::capability::{Rights, now_ms};
use std::fs::{self, File};
use std::io::Write;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};
use volume::target::{ReadAt, Target, TargetFile};

/// Seconds. A capability is good for two leases at most, and here the clocks are the same.
const LEASE: u64 = 4;

#[test]
fn a_client_outlives_its_capabilities() {
    if !possible("a_client_outlives_its_capabilities") {
        return;
    }
    let cluster = Secured::with("rs:2+1", 3, &[], &["--clock-tolerance", "0"], LEASE);
    let point = cluster.scratch.path.join("mnt");
    fs::create_dir(&point).unwrap();
    let mut mount = weft();
    mount.arg("--identity").arg(cluster.scratch.path.join("laptop/laptop"));
    mount.args(["mount", "--foreground", "--tell", &cluster.url()]).arg(&point);
    let mount = Process::of("mount", &mut mount, &cluster.scratch.path);
    fs::write(point.join("old"), noise(9_000_000)).unwrap();
    let mut log = File::create(point.join("log")).unwrap();
    let (begun, mut rounds) = (Instant::now(), 0);
    while begun.elapsed() < 6 * Duration::from_secs(LEASE) {
        log.write_all(&noise(700_000)).unwrap();
        log.sync_all().unwrap();
        drop_caches();
        assert!(fs::read(point.join("old")).unwrap() == noise(9_000_000), "round {rounds}");
        rounds += 1;
        // Longer than a heartbeat: tokens for the requests in between were given before.
        sleep(Duration::from_millis(300));
    }
    // And after a pause: no capability survives even half of it.
    sleep(2 * Duration::from_secs(2 * LEASE));
    drop_caches();
    assert!(fs::read(point.join("old")).unwrap() == noise(9_000_000));
    log.write_all(&noise(700_000)).unwrap();
    log.sync_all().unwrap();
    drop(log);
    assert!(fs::read(point.join("log")).unwrap() == noise(700_000).repeat(rounds + 1));
    run(weft().env("TMPDIR", &cluster.scratch.path).arg("unmount").arg(&point)).good();
    assert!(mount.ended(WAIT_TIMEOUT), "{}", mount.log());

    // One that is given no others is refused with the moment of expiry.
    let everything = cluster.target(Some(cluster.key()));
    let chunk = everything.list().unwrap().into_iter().map(|(file, _)| file);
    let chunk = chunk.into_iter().find(|file| matches!(file, TargetFile::Chunk { .. })).expect("a chunk");
    let TargetFile::Chunk { set, .. } = chunk else { unreachable!() };
    let expires = now_ms() + 1500;
    let target = cluster.target(Some(Arc::new(cluster.token(set, Rights::Read, expires))));
    let read = || target.read_at(chunk, 0, &mut [0; 100]);
    let before = read();
    // The machine may have been too busy for that.
    assert!(before.is_ok() || now_ms() >= expires, "{before:?}");
    while now_ms() <= expires {
        sleep(Duration::from_millis(20));
    }
    is_refused(read(), "expired");
    cluster.heal();
}
