//! Volumes in directories.

use fs::{Create, FileSystem, OpenOptions};
use std::path::PathBuf;
use std::sync::Arc;

/// A directory that is removed when this is dropped.
pub struct Place(pub PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Place {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weft-fs-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn target(&self, number: usize) -> PathBuf {
        self.0.join(format!("disk{number}"))
    }

    pub fn volume(&self) -> PathBuf {
        self.0.join("volume")
    }

    /// A volume to be created, on this number of targets.
    pub fn planned(&self, code: &str, targets: usize) -> Create {
        in_directories(code, (0..targets).map(|number| self.target(number)).collect())
    }

    pub fn create(&self, code: &str, targets: usize) -> Arc<FileSystem> {
        self.planned(code, targets).run(&self.volume()).unwrap();
        self.open().unwrap()
    }

    pub fn open(&self) -> fs::Result<Arc<FileSystem>> {
        FileSystem::open_volume(&self.volume(), OpenOptions::default())
    }
}

/// A volume on these targets, to be created: with short chunks, and otherwise as for users.
pub fn in_directories(code: &str, targets: Vec<PathBuf>) -> Create {
    Create { chunk_bytes: 8 << 20, ..Create::new("test", code, targets) }
}
