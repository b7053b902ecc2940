//! Files that lose their last name while the kernel of a mount knows them: they can be opened until
//! the kernel forgets them, and then they are removed.

use crate::lab::cluster::{Cluster, Wire, lock};
use crate::lab::{Lab, content, make, pattern, within};
use fs::{Error, FileSystem, ROOT, RenameMode};
use plan::Ino;
use session::port::HEARTBEAT;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The operations by which a client asks for attributes, opens a file, and reports what it did
/// about removals.
const ATTRIBUTES: u16 = 1;
const OPEN: u16 = 69;
const REPORT_REMOVED: u16 = 81;

/// A file with some committed bytes.
fn write(fs: &FileSystem, name: &str, bytes: &[u8]) -> Ino {
    let ino = make(fs, name);
    fs.write(ino, 0, bytes).unwrap();
    fs.sync(ino).unwrap();
    ino
}

/// Looks up a file as a mount does for its kernel.
fn look_up(fs: &FileSystem, name: &str) -> Ino {
    let _until_it_is_known = fs.looking_up();
    let ino = fs.lookup(ROOT, name.as_bytes()).unwrap().ino;
    fs.looked_up(ino);
    ino
}

/// Opens a file by its number and reads it.
fn read(fs: &FileSystem, ino: Ino) -> Vec<u8> {
    fs.open(ino, false).unwrap();
    let bytes = content(fs, ino).unwrap();
    fs.close(ino);
    bytes
}

/// Waits until the volume has this many files, including the root.
fn until_files(fs: &Arc<FileSystem>, count: u64) {
    let fs = fs.clone();
    within(300, move || {
        while fs.usage().unwrap().files != count {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
}

/// Waits until a client has sent a request more often than `before`.
fn until_asked(way: &Arc<Wire>, operation: u16, before: u32) {
    let way = way.clone();
    within(300, move || {
        while way.asked(operation) <= before {
            std::thread::sleep(Duration::from_millis(5));
        }
    });
}

/// Waits until a request of a client is held.
fn until_waiting(way: &Arc<Wire>) {
    let way = way.clone();
    within(300, move || {
        while way.waiting.load(Ordering::SeqCst) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

#[test]
fn a_mount_of_its_own_volume_keeps_what_its_kernel_knows() {
    let mut lab = Lab::new("rs:2+1", 3);
    let fs = lab.open();
    let bytes = pattern(1, 200_000);
    let (old, new) = (write(&fs, "t", &bytes), write(&fs, "new", &[2; 100]));
    // Written, and not committed yet.
    fs.write(old, 0, &[9; 10]).unwrap();
    [old, old, new].iter().for_each(|&ino| fs.looked_up(ino));
    fs.rename((ROOT, b"new"), (ROOT, b"t"), RenameMode::Replace).unwrap();
    let expected = [&[9; 10], &bytes[10..]].concat();
    assert_eq!(read(&fs, old), expected);
    assert_eq!(fs.attributes(old).unwrap().links, 0);
    // Pages of the kernel's cache may arrive after the last name is gone.
    fs.write(old, 0, &[8; 10]).unwrap();
    fs.forget(old, 1);
    assert_eq!(read(&fs, old)[..10], [8; 10]);
    fs.forget(old, 1);
    until_files(&fs, 2);
    assert!(fs.open(old, false).is_err());
    // When the mount ends, its kernel's knowledge ends, too.
    fs.unlink(ROOT, b"t").unwrap();
    assert_eq!(read(&fs, new), [2; 100]);
    fs.close_volume().unwrap();
    drop(fs);
    until_files(&lab.open(), 1);
}

/// Its many extents are removed later, beside other work.
#[test]
fn a_fragmented_file_that_was_removed_is_not_opened() {
    let mut lab = Lab::new("rs:2+1", 3);
    let fs = lab.open();
    let mut last = ROOT;
    for round in 0..10 {
        let ino = make(&fs, "t");
        last = ino;
        for extent in 0..40 {
            fs.write(ino, extent * 200_000, &pattern(extent, 10_000)).unwrap();
            fs.sync(ino).unwrap();
        }
        assert_eq!(fs.lookup(ROOT, b"t").unwrap().ino, ino);
        fs.unlink(ROOT, b"t").unwrap();
        let opened = fs.open(ino, false);
        assert!(matches!(opened, Err(Error::Stale)), "round {round}: {opened:?}");
    }
    until_files(&fs, 1);
    // Who asks for an attribute learns that the file is gone, and not that it has none.
    assert_eq!(fs.attribute(last, b"user.a").unwrap_err().errno(), 2);
    fs.close_volume().unwrap();
}

#[test]
fn a_client_opens_what_it_looked_up_though_another_removed_it() {
    let cluster = Cluster::new("rs:2+1", 3);
    let (a, (b, way)) = (cluster.client("a"), cluster.wired_client("b"));
    let bytes = pattern(2, 150_000);
    write(&a, "t", &bytes);
    write(&a, "u", &bytes);
    let (t, u) = (look_up(&b, "t"), look_up(&b, "u"));
    a.unlink(ROOT, b"t").unwrap();
    a.unlink(ROOT, b"u").unwrap();
    assert_eq!(b.lookup(ROOT, b"t").unwrap_err().errno(), 2);
    assert_eq!(read(&b, t), bytes);
    b.forget(t, 1);
    // All files that no kernel knows any more are removed, and no others.
    until_files(&cluster.volume(), 2);
    assert!(b.open(t, false).is_err());
    assert_eq!(read(&b, u), bytes);
    b.forget(u, 1);
    until_files(&cluster.volume(), 1);
    // A lookup whose answer is on its way counts as knowledge.
    write(&a, "v", &bytes);
    let asked = b.looking_up();
    let v = b.lookup(ROOT, b"v").unwrap().ino;
    let told = way.asked(REPORT_REMOVED);
    a.unlink(ROOT, b"v").unwrap();
    // It hears of the removal, and gives nothing up in later heartbeats.
    until_asked(&way, REPORT_REMOVED, told);
    until_asked(&way, HEARTBEAT, way.asked(HEARTBEAT) + 1);
    b.looked_up(v);
    drop(asked);
    assert_eq!(read(&b, v), bytes);
    b.forget(v, 1);
    until_files(&cluster.volume(), 1);
    a.close_volume().unwrap();
    b.close_volume().unwrap();
}

#[test]
fn what_clients_know_outlives_the_server_and_not_the_clients() {
    let cluster = Cluster::new("rs:2+1", 3);
    let (a, (b, way)) = (cluster.client("a"), cluster.wired_client("b"));
    let bytes = pattern(3, 150_000);
    let names = ["open", "noted", "just"];
    names.iter().for_each(|name| _ = write(&a, name, &bytes));
    let [open, noted, just] = names.map(|name| look_up(&b, name));
    b.open(open, false).unwrap();
    a.unlink(ROOT, b"open").unwrap();
    a.unlink(ROOT, b"noted").unwrap();
    // One more file that no kernel knows: when it is removed, all clients have processed all
    // earlier removals.
    write(&a, "last", &bytes);
    a.unlink(ROOT, b"last").unwrap();
    until_files(&cluster.volume(), 4);
    a.unlink(ROOT, b"just").unwrap();
    a.sync_all().unwrap();
    cluster.kill();
    cluster.start();
    cluster.until_clients(2);
    for ino in [open, noted, just] {
        assert_eq!(read(&b, ino), bytes);
    }
    // A client that is gone keeps nothing.
    way.cut.store(true, Ordering::SeqCst);
    b.abandon();
    until_files(&cluster.volume(), 1);
    assert_eq!(lock(&cluster.server).as_ref().unwrap().clients().len(), 1);
    a.close_volume().unwrap();
}

/// Gateways and programs read objects that others replace at the same moment.
#[test]
fn a_file_that_loses_its_name_while_it_is_opened_can_be_read() {
    let cluster = Cluster::new("rs:2+1", 3);
    let ((a, way), (b, other)) = (cluster.wired_client("a"), cluster.wired_client("b"));
    let bytes = pattern(4, 150_000);
    let t = write(&a, "t", &bytes);
    // The server keeps the file, as another client may know it.
    other.held.store(REPORT_REMOVED, Ordering::SeqCst);
    way.held.store(OPEN, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let opener = scope.spawn(|| a.open(t, false));
        until_waiting(&way);
        a.unlink(ROOT, b"t").unwrap();
        way.held.store(0, Ordering::SeqCst);
        opener.join().unwrap().unwrap();
    });
    assert_eq!(content(&a, t).unwrap(), bytes);
    // It is not opened when it was removed before that, while a read of it is under way.
    let u = write(&a, "u", &bytes);
    way.held.store(ATTRIBUTES, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| a.read(u, 0, &mut [0; 10]));
        until_waiting(&way);
        let removed = a.unlink(ROOT, b"u");
        let opened = a.open(u, false);
        way.held.store(0, Ordering::SeqCst);
        let _ = reader.join().unwrap();
        removed.unwrap();
        assert!(matches!(opened, Err(Error::Stale)), "{opened:?}");
    });
    // What nobody has open is removed.
    other.held.store(0, Ordering::SeqCst);
    until_files(&cluster.volume(), 2);
    a.close(t);
    until_files(&cluster.volume(), 1);
    a.close_volume().unwrap();
    b.close_volume().unwrap();
}

/// The answer to a client's lookup is on its way while another one, which has not committed what it
/// wrote, takes the last name away.
#[test]
fn what_was_not_committed_of_a_removed_file_is_there_for_who_looked_it_up() {
    let cluster = Cluster::new("rs:2+1", 3);
    let (a, b) = (cluster.client("a"), cluster.client("b"));
    write(&a, "new", &[2; 100]);
    for (seed, length, replaces) in [(1, 1000, false), (2, 3000, true), (3, 150_000, false)] {
        let bytes = pattern(seed, length);
        let ino = make(&a, "t");
        a.looked_up(ino);
        a.open(ino, true).unwrap();
        a.write(ino, 0, &bytes).unwrap();
        a.close(ino);
        let asked = b.looking_up();
        if replaces {
            a.rename((ROOT, b"new"), (ROOT, b"t"), RenameMode::Replace).unwrap();
        } else {
            a.unlink(ROOT, b"t").unwrap();
        }
        a.forget(ino, 1);
        b.looked_up(ino);
        drop(asked);
        assert!(read(&b, ino) == bytes, "{length}");
        b.forget(ino, 1);
        if replaces {
            a.unlink(ROOT, b"t").unwrap();
        }
    }
    until_files(&cluster.volume(), 1);
    // A file that no kernel knows is not written any more.
    let ino = make(&a, "t");
    a.write(ino, 0, &[1; 3000]).unwrap();
    a.unlink(ROOT, b"t").unwrap();
    assert_eq!(a.uncommitted(), (0, 0));
    until_files(&cluster.volume(), 1);
    a.close_volume().unwrap();
    b.close_volume().unwrap();
}

/// A restarted server knows only of the clients that have reconnected so far: another one may have
/// the file open.
#[test]
fn what_a_client_has_open_that_is_not_back_yet_is_kept() {
    let cluster = Cluster::new("rs:2+1", 3);
    let (a, (b, wire)) = (cluster.client("a"), cluster.wired_client("b"));
    let bytes = pattern(1, 100_000);
    let ino = write(&a, "file", &bytes);
    b.open(ino, false).unwrap();
    wire.cut.store(true, Ordering::SeqCst);
    cluster.kill();
    cluster.start();
    a.unlink(ROOT, b"file").unwrap();
    wire.cut.store(false, Ordering::SeqCst);
    assert_eq!(b.attributes(ino).unwrap().links, 0);
    assert!(content(&b, ino).unwrap() == bytes);
    b.close(ino);
    // It is removed with its last opener.
    until_files(&cluster.volume(), 1);
    [a, b].iter().for_each(|client| client.close_volume().unwrap());
}

/// A removal of a certain file does not remove another one that has its name by now.
#[test]
fn a_name_goes_only_if_it_is_that_of_the_file_that_is_meant() {
    let cluster = Cluster::new("rs:2+1", 3);
    let (a, b) = (cluster.client("a"), cluster.client("b"));
    let first = make(&a, "file");
    b.unlink(ROOT, b"file").unwrap();
    let second = make(&b, "file");
    assert!(matches!(a.unlink_file(ROOT, b"file", first), Err(fs::Error::Meta(meta::Error::NotFound))));
    assert_eq!(a.lookup(ROOT, b"file").unwrap().ino, second);
    a.unlink_file(ROOT, b"file", second).unwrap();
    assert!(b.lookup(ROOT, b"file").is_err());
}
