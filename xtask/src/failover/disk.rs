//! The disks of the metadata servers: small file systems in memory, which can be filled.

use crate::peers::run;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Enough for the index of a run.
const SIZE: &str = "size=256m";
/// What fills a disk.
const BALLAST: &str = "ballast";

/// A disk with the directory of a metadata server. It is unmounted with this value.
pub struct Disk(PathBuf);

impl Disk {
    /// Mounts one on a directory.
    pub fn new(folder: &Path) -> Result<Self, String> {
        run(Command::new("mount").args(["-t", "tmpfs", "-o", SIZE, "weft-failover"]).arg(folder))?;
        Ok(Self(folder.into()))
    }

    /// Takes all the space that is left.
    pub fn fill(&self) -> Result<(), String> {
        let error = |why: std::io::Error| format!("{} cannot be filled: {why}", self.0.display());
        let mut ballast = File::create(self.0.join(BALLAST)).map_err(error)?;
        for length in [1 << 20, 4096, 1] {
            let block = vec![1; length];
            loop {
                match ballast.write_all(&block) {
                    Ok(()) => {}
                    Err(why) if why.kind() == ErrorKind::StorageFull => break,
                    Err(why) => return Err(error(why)),
                }
            }
        }
        Ok(())
    }

    /// Gives it back.
    pub fn empty(&self) -> Result<(), String> {
        let path = self.0.join(BALLAST);
        fs::remove_file(&path).map_err(|why| format!("{}: {why}", path.display()))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = run(Command::new("umount").arg("-l").arg(&self.0));
    }
}
