//! A disk for each store of a bench: a file system in a file, on a loop device. Stores on one file
//! system share its journal, and so all of them wait for the slowest.

use super::tool::tool;
use crate::failure::Failure;
use rustix::mount::{UnmountFlags, unmount};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use volume::Shown;

/// The size of a disk. Its file takes only what is written to it; what metadata takes is little of
/// it, as on real disks, so that placement keeps nothing even for that.
const BYTES: u64 = 1 << 40;

/// The disk of a store with this number, where everything of a run is.
pub fn of(place: &Path, store: u32) -> PathBuf {
    place.join(name(store))
}

fn name(store: u32) -> String {
    format!("store{store}")
}

/// Makes the disk of a store, with a file system. It goes when it is unmounted.
pub fn make(place: &Path, store: u32) -> Result<(), Failure> {
    let (disk, image) = (of(place, store), place.join(format!("{}.img", name(store))));
    let failed = |why: std::io::Error| Failure::Other(format!("{}: {why}", Shown(&image)));
    fs::create_dir(&disk).map_err(failed)?;
    File::create_new(&image).and_then(|file| file.set_len(BYTES)).map_err(failed)?;
    let path = |path: &Path| {
        let text = path.to_str().map(str::to_owned);
        text.ok_or_else(|| Failure::Other(format!("{} is no text; give another --dir", Shown(path))))
    };
    let (disk, image) = (path(&disk)?, path(&image)?);
    let all_now = "lazy_itable_init=0,nodiscard";
    let made = tool(&["mkfs.ext4", "-q", "-F", "-m", "0", "-N", "8192", "-J", "size=16", "-E", all_now, &image])
        .and_then(|_| tool(&["mount", "-o", "loop", &image, &disk]));
    made.map(drop).map_err(|why| {
        Failure::Other(format!("a disk for each store takes root, mkfs.ext4, mount and loop devices: {why}"))
    })
}

/// Unmounts the disks of all stores. Nothing of a bench that is over is needed.
pub fn remove_all(place: &Path) {
    for store in (1..).map(|store| of(place, store)).take_while(|disk| disk.exists()) {
        let _ = unmount(store, UnmountFlags::DETACH);
    }
}
