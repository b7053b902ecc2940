//! The grace period after a restart of the metadata server: clients that were there before have
//! not all come back yet.

use crate::lab;
use crate::lab::cluster::Cluster;
use crate::lab::{content, make, pattern};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// See the table of operations.
const OPEN: u16 = 69;

/// A reader that comes back first sees what a writer that comes back later had written: the server
/// does not know yet that the writer has uncommitted data.
#[test]
fn an_opener_sees_what_a_client_wrote_that_is_not_back_yet() {
    let cluster = Cluster::new("rs:2+1", 4);
    let (writer, wire) = cluster.wired_client("writer");
    let (reader, asked) = cluster.wired_client("reader");
    let ino = make(&writer, "file");
    writer.open(ino, true).unwrap();
    writer.write(ino, 0, &pattern(1, 30_000)).unwrap();
    writer.sync(ino).unwrap();
    writer.write(ino, 0, &pattern(2, 70_000)).unwrap();
    writer.close(ino);
    wire.cut.store(true, Ordering::SeqCst);
    cluster.kill();
    cluster.start();
    let opening = {
        let reader = reader.clone();
        std::thread::spawn(move || {
            reader.open(ino, false).unwrap();
            let read = content(&reader, ino);
            reader.close(ino);
            read
        })
    };
    // The writer comes back when the reader is a client again and has asked, and within the grace
    // period.
    cluster.until_clients(1);
    while asked.asked(OPEN) == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    wire.cut.store(false, Ordering::SeqCst);
    let read = lab::within(300, move || opening.join().unwrap()).unwrap();
    assert!(read == pattern(2, 70_000), "the reader saw {} bytes of before the restart", read.len());
}
