//! Control groups that hold each store to a part of the processors or of a disk. The kernel has
//! them as files, in two versions.

use super::commands::PREFIX;
use crate::failure::Failure;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use volume::Shown;

/// Where each kind of control groups is, as systems mount them.
const PROCESSORS_1: &str = "/sys/fs/cgroup/cpu";
const DISKS_1: &str = "/sys/fs/cgroup/blkio";
const ALL_2: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
/// The time in which a group has its quota of the processors, in microseconds: short, so that a
/// store is slow and not stopped.
const PERIOD: u64 = 10_000;
/// The kernel takes no less.
const LEAST_QUOTA: u64 = 1000;

/// What a store is held to.
#[derive(Clone, Debug, PartialEq)]
pub enum Limited {
    /// So much of one processor.
    Processor(f64),
    /// Bytes written in a second to the disk that a directory is on.
    Disk(PathBuf, f64),
}

/// The groups of a run, one for each store. When this goes, they are removed.
pub struct Groups(Vec<PathBuf>);

impl Groups {
    /// Makes a group for each limit of the run with this number.
    pub fn make(run: u32, limits: &[Limited]) -> Result<Self, Failure> {
        let mut groups = Self(Vec::new());
        for (number, limit) in limits.iter().enumerate() {
            let (base, settings) = settings(limit)?;
            let group = base.join(format!("{PREFIX}{run}-{number}"));
            fs::create_dir(&group).map_err(|why| cannot(&group, &why))?;
            groups.0.push(group.clone());
            for (file, value) in settings {
                let file = group.join(file);
                fs::write(&file, value).map_err(|why| cannot(&file, &why))?;
            }
        }
        Ok(groups)
    }

    /// Removes them. Their processes have ended.
    pub fn clear(&mut self) {
        self.0.drain(..).for_each(|group| _ = fs::remove_dir(group));
    }

    /// Puts processes into the groups, one into each.
    pub fn take(&self, processes: impl Iterator<Item = u32>) -> Result<(), Failure> {
        for (group, process) in self.0.iter().zip(processes) {
            let file = group.join("cgroup.procs");
            fs::write(&file, process.to_string()).map_err(|why| cannot(&file, &why))?;
        }
        Ok(())
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        self.clear();
    }
}

fn cannot(path: &Path, why: &std::io::Error) -> Failure {
    Failure::Other(format!("a control group that slows a store is not possible here: {}: {why}", Shown(path)))
}

/// Removes the groups of a run, whose processes have ended.
pub fn remove(run: u32) {
    let prefix = format!("{PREFIX}{run}-");
    for base in [PROCESSORS_1, DISKS_1].into_iter().chain(ALL_2) {
        let entries = fs::read_dir(base).into_iter().flatten().filter_map(Result::ok);
        let own = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix));
        own.for_each(|entry| _ = fs::remove_dir(entry.path()));
    }
}

/// Names of files, and what is written to them.
type Written = Vec<(&'static str, String)>;

/// Where a group with a limit is made, and what is written to which of its files.
fn settings(limit: &Limited) -> Result<(PathBuf, Written), Failure> {
    let (old, controller) = match limit {
        Limited::Processor(_) => (PROCESSORS_1, "cpu"),
        Limited::Disk(..) => (DISKS_1, "io"),
    };
    let is_old = Path::new(old).join("cgroup.procs").exists();
    let new = ALL_2.into_iter().find(|base| {
        let controllers = fs::read_to_string(Path::new(base).join("cgroup.subtree_control")).unwrap_or_default();
        controllers.split_whitespace().any(|name| name == controller)
    });
    let none = || Failure::Other(format!("this system has no control groups for {}", said(limit)));
    let base = if is_old { old } else { new.ok_or_else(none)? };
    let written = match limit {
        Limited::Processor(part) => {
            let quota = ((part * PERIOD as f64) as u64).max(LEAST_QUOTA);
            let period = (quota as f64 / part) as u64;
            match is_old {
                true => vec![("cpu.cfs_period_us", period.to_string()), ("cpu.cfs_quota_us", quota.to_string())],
                false => vec![("cpu.max", format!("{quota} {period}"))],
            }
        }
        Limited::Disk(place, bytes) => {
            let device = disk(place)?;
            match is_old {
                true => vec![("blkio.throttle.write_bps_device", format!("{device} {bytes:.0}"))],
                false => vec![("io.max", format!("{device} wbps={bytes:.0}"))],
            }
        }
    };
    Ok((base.into(), written))
}

fn said(limit: &Limited) -> &'static str {
    match limit {
        Limited::Processor(_) => "processors (cpu)",
        Limited::Disk(..) => "disks (io)",
    }
}

/// The number of the disk that a directory is on. A limit is of a whole disk, not of a partition.
fn disk(place: &Path) -> Result<String, Failure> {
    let found = fs::metadata(place).map_err(|why| cannot(place, &why))?.dev();
    let device = format!("{}:{}", rustix::fs::major(found), rustix::fs::minor(found));
    let known = Path::new("/sys/dev/block").join(&device);
    let of = if known.join("partition").exists() { known.join("../dev") } else { known.join("dev") };
    fs::read_to_string(of).map(|text| text.trim().to_owned()).map_err(|_| {
        Failure::Other(format!("{} is on no disk whose speed can be limited; give another --dir", Shown(place)))
    })
}
