//! What programs ask of a mount right after a change, whatever kind of mount it is.

use crate::scratch::noise;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Times never go backwards, the space of a file is known after a sync, and `syncfs` beside
/// removals has no error, as on a local file system.
pub fn times_space_and_syncs(point: &Path) {
    let at = |name: &str| point.join(name);
    // The kernel stamps what is written, Weft what is made: times of later changes are never
    // earlier.
    let mut written = File::create(at("written")).unwrap();
    let mut last = written.metadata().unwrap().modified().unwrap();
    for round in 0..200 {
        let made = File::create(at("made")).unwrap().metadata().unwrap().modified().unwrap();
        assert!(made >= last, "round {round}: made {:?} before", last.duration_since(made));
        fs::remove_file(at("made")).unwrap();
        written.write_all(b"x").unwrap();
        last = written.metadata().unwrap().modified().unwrap();
        assert!(last >= made, "round {round}: written {:?} before", made.duration_since(last));
    }
    // Right after a sync, `stat` shows how much space an open file takes.
    let mut file = File::create(at("room")).unwrap();
    for megabytes in 1..4 {
        file.write_all(&noise(1 << 20)).unwrap();
        file.metadata().unwrap();
        file.sync_all().unwrap();
        assert_eq!(file.metadata().unwrap().blocks(), megabytes * 2048);
    }
    drop((written, file));
    // Files are removed while their pages are being written back: that causes no error.
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..400 {
                fs::write(at("new"), noise(20_000)).unwrap();
                match round % 2 {
                    0 => fs::rename(at("new"), at("t")).unwrap(),
                    _ => fs::remove_file(at("new")).unwrap(),
                }
            }
            stop.store(true, Ordering::SeqCst);
        });
        let directory = File::open(point).unwrap();
        while !stop.load(Ordering::SeqCst) {
            rustix::fs::syncfs(&directory).unwrap();
        }
    });
}
