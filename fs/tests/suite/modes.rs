//! Nobody but its owner gets at a volume, even with a umask that permits everything. A test alone
//! in its process, because the umask is the process's.

use crate::lab;
use fs::{FileSystem, OpenOptions, ROOT};
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

/// The entries at and below a path that others can access.
fn open_to_others(path: &Path) -> Vec<String> {
    let found = path.symlink_metadata().unwrap();
    let mut open = Vec::new();
    if found.mode() & 0o077 != 0 {
        open.push(format!("{} {:o}", path.display(), found.mode()));
    }
    if found.is_dir() {
        std::fs::read_dir(path).unwrap().for_each(|entry| open.extend(open_to_others(&entry.unwrap().path())));
    }
    open
}

#[test]
fn only_the_owner_can_access_a_volume_whatever_the_umask() {
    rustix::process::umask(rustix::fs::Mode::empty());
    let place = std::env::temp_dir().join(format!("weft-fs-modes-{}", std::process::id()));
    let (volume, again) = (place.join("volume"), place.join("again"));
    let targets: Vec<_> = (0..3).map(|number| place.join(format!("disk{number}"))).collect();
    // Two targets and both volume directories are there already, and are empty.
    for directory in [&volume, &again, &targets[0], &targets[1]] {
        std::fs::create_dir_all(directory).unwrap();
        std::fs::set_permissions(directory, Permissions::from_mode(0o777)).unwrap();
    }
    let create = lab::place::in_directories("rs:2+1", targets.clone());
    create.run(&volume).unwrap();
    // A local WAL that an earlier version left.
    let wal = volume.join("tail");
    std::fs::create_dir(&wal).unwrap();
    std::fs::set_permissions(&wal, Permissions::from_mode(0o755)).unwrap();
    std::fs::write(wal.join("1.0"), []).unwrap();
    let fs = FileSystem::open_volume(&volume, OpenOptions { serve: true, ..OpenOptions::default() }).unwrap();
    fs.write(lab::make(&fs, "file"), 0, &[7; 100_000]).unwrap();
    fs.sync_all().unwrap();
    let all = || [&volume].into_iter().chain(&targets).flat_map(|path| open_to_others(path)).collect::<Vec<_>>();
    assert_eq!(all(), Vec::<String>::new());
    fs.close_volume().unwrap();
    drop(fs);
    std::fs::remove_file(volume.join("volume.json")).unwrap();
    fs::reopen(&again, &targets, Arc::new(fs::Directories)).unwrap();
    let fs = FileSystem::open_volume(&again, OpenOptions::default()).unwrap();
    assert!(fs.lookup(ROOT, b"file").is_ok());
    assert_eq!(open_to_others(&again), Vec::<String>::new());
    drop(fs);
    assert_eq!(all(), Vec::<String>::new());
    std::fs::remove_dir_all(&place).unwrap();
}
