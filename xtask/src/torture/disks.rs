//! Disks that can be full, hang, and go away: each an ext4 file system in an image of its own, if
//! this machine has loop devices, else plain directories.

use crate::peers::{output_of, run};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Of an image, which takes only what is written.
const SIZE: u64 = 1 << 30;

pub struct Disk {
    point: PathBuf,
    /// Whether it is a file system of its own.
    own: bool,
}

impl Disk {
    /// A fresh disk under a directory.
    ///
    /// # Errors
    /// When the directory cannot be made.
    pub fn new(directory: &Path, number: usize, own: bool) -> Result<Self, String> {
        let point = directory.join(format!("disk{number}"));
        fs::create_dir_all(&point).map_err(|why| format!("{}: {why}", point.display()))?;
        if own {
            let image = directory.join(format!("disk{number}.img"));
            File::create(&image)
                .and_then(|file| file.set_len(SIZE))
                .map_err(|e| format!("{}: {e}", image.display()))?;
            run(Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0"]).arg(&image))?;
            run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&point))?;
        }
        let disk = Self { point, own };
        fs::create_dir(disk.target()).map_err(|why| format!("{}: {why}", disk.target().display()))?;
        Ok(disk)
    }

    /// The directory that is a target.
    pub fn target(&self) -> PathBuf {
        self.point.join("target")
    }

    fn away(&self) -> PathBuf {
        self.point.join("away")
    }

    /// Whether it can be full and hang.
    pub fn has_space_of_its_own(&self) -> bool {
        self.own
    }

    /// All that is written and synced waits from now on.
    pub fn freeze(&self) -> Result<(), String> {
        run(Command::new("fsfreeze").arg("-f").arg(&self.point)).map(drop)
    }

    pub fn thaw(&self) -> Result<(), String> {
        run(Command::new("fsfreeze").arg("-u").arg(&self.point)).map(drop)
    }

    /// Takes all the space there is.
    pub fn fill(&self) -> Result<(), String> {
        let path = self.point.join("filler");
        // Most of it at once, without writing it.
        let free = output_of(Command::new("df").args(["--output=avail", "-B1"]).arg(&self.point))?;
        if let Some(free) = free.lines().last().filter(|free| free.trim() != "0") {
            let _ = run(Command::new("fallocate").args(["-l", free.trim()]).arg(&path));
        }
        let mut file = File::options().create(true).append(true).open(&path);
        let file = file.as_mut().map_err(|why| format!("{}: {why}", path.display()))?;
        while file.write_all(&[0xff; 4096]).is_ok() {}
        Ok(())
    }

    pub fn empty(&self) -> Result<(), String> {
        fs::remove_file(self.point.join("filler")).map_err(|why| format!("removing the filler: {why}"))
    }

    /// The target's directory is gone.
    pub fn remove(&self) -> Result<(), String> {
        fs::rename(self.target(), self.away()).map_err(|why| format!("{}: {why}", self.target().display()))
    }

    pub fn bring_back(&self) -> Result<(), String> {
        // Something may have made an empty directory there meanwhile.
        let _ = fs::remove_dir(self.target());
        fs::rename(self.away(), self.target()).map_err(|why| format!("{}: {why}", self.away().display()))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.own {
            let _ = self.thaw();
            let _ = run(Command::new("umount").arg("-l").arg(&self.point));
        }
    }
}

/// Whether disks of their own can be made here, or why not.
pub fn possible(directory: &Path) -> Result<(), String> {
    let trial = directory.join("trial");
    fs::create_dir_all(&trial).map_err(|why| format!("{}: {why}", trial.display()))?;
    let made = Disk::new(&trial, 0, true).and_then(|disk| disk.freeze().and_then(|()| disk.thaw()));
    fs::remove_dir_all(&trial).map_err(|why| format!("{}: {why}", trial.display()))?;
    made
}

/// Unmounts all that an earlier run left under a directory, and removes it.
///
/// # Errors
/// When something is still mounted there.
pub fn clean(directory: &Path) -> Result<(), String> {
    let mounts = fs::read_to_string("/proc/self/mounts").map_err(|why| format!("/proc/self/mounts: {why}"))?;
    let unescaped = |point: &str| PathBuf::from(point.replace("\\040", " "));
    let mut points: Vec<PathBuf> = mounts.lines().filter_map(|line| Some(unescaped(line.split(' ').nth(1)?))).collect();
    points.retain(|point| point.starts_with(directory));
    // What is mounted last is unmounted first. A frozen file system cannot be.
    for point in points.iter().rev() {
        let _ = run(Command::new("fsfreeze").arg("-u").arg(point));
        run(Command::new("umount").arg("-l").arg(point))?;
    }
    match fs::remove_dir_all(directory) {
        Err(why) if why.kind() != std::io::ErrorKind::NotFound => Err(format!("{}: {why}", directory.display())),
        _ => Ok(()),
    }
}
