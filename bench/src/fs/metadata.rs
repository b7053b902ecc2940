//! Many small files, and one directory of very many.

use super::content::SECTOR;
use super::meter::{Doing, Fault, Meter, Work};
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;

/// Creates files of 4 KiB, asks for their attributes, lists them and removes them.
pub fn small_files(meter: &mut Meter) -> Result<(), Fault> {
    let count = meter.effort.files;
    let all = Work::Operations(count);
    let mut buffer = vec![0; SECTOR];
    let watch = meter.start();
    for at in 0..count {
        meter.content.fill(&mut buffer, at, meter.round);
        let mut file = File::create_new(path(meter, at)).doing("create")?;
        file.write_all(&buffer).doing("write")?;
    }
    meter.record("create 4 KiB files", all, &watch);

    rustix::fs::sync();
    if meter.cold.drop_names().doing("dropping caches")? {
        let watch = meter.start();
        stat_all(meter, count)?;
        meter.record("stat, cold", all, &watch);
    }
    let watch = meter.start();
    stat_all(meter, count)?;
    meter.record("stat, warm", all, &watch);

    meter.cold.drop_names().doing("dropping caches")?;
    let watch = meter.start();
    list(meter, count, true)?;
    meter.record("readdir and stat", all, &watch);

    let watch = meter.start();
    for at in 0..count {
        let read = fs::read(path(meter, at)).doing("read")?;
        let whole = if read.len() == SECTOR { meter.content.check(&read, at, meter.round) } else { Err(short()) };
        whole.doing("read")?;
    }
    meter.record("open, read, close 4 KiB files", all, &watch);
    remove(meter, count)?;
    Ok(())
}

/// Fills a directory: how fast it grows and is listed when it is small, and when it is large.
pub fn big_directory(meter: &mut Meter) -> Result<(), Fault> {
    let large = meter.effort.entries;
    let small = (large / 10).clamp(1, 10_000);
    let created_small = create_empty(meter, 0, small, small)?;
    let listed_small = listed(meter, small)?;

    let last = large - small;
    let rest = meter.start();
    for at in small..last {
        File::create_new(path(meter, at)).doing("create")?;
    }
    if last > small {
        meter.record("create empty files in between", Work::Operations(last - small), &rest);
    }
    let created_large = create_empty(meter, last.max(small), large, large)?;
    let listed_large = listed(meter, large)?;
    meter.note_ratio(format!("create at {large} to {small}"), created_large / created_small);
    meter.note_ratio(format!("getdents at {large} to {small}"), listed_large / listed_small);
    remove(meter, large)
}

fn short() -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::UnexpectedEof, "a file is shorter or longer than was written")
}

fn path(meter: &Meter, at: u64) -> PathBuf {
    meter.directory.join(format!("file-{at:07}"))
}

fn create_empty(meter: &mut Meter, from: u64, to: u64, entries: u64) -> Result<f64, Fault> {
    let watch = meter.start();
    for at in from..to {
        File::create_new(path(meter, at)).doing("create")?;
    }
    Ok(meter.record(format!("create empty files, up to {entries}"), Work::Operations(to - from), &watch))
}

/// Lists without asking for attributes, as `ls -f` does.
fn listed(meter: &mut Meter, count: u64) -> Result<f64, Fault> {
    rustix::fs::sync();
    meter.cold.drop_names().doing("dropping caches")?;
    let watch = meter.start();
    list(meter, count, false)?;
    Ok(meter.record(format!("getdents, {count} entries"), Work::Operations(count), &watch))
}

fn list(meter: &Meter, count: u64, attributes: bool) -> Result<(), Fault> {
    let mut seen = 0;
    for entry in fs::read_dir(&meter.directory).doing("opendir")? {
        let entry = entry.doing("readdir")?;
        if attributes {
            entry.metadata().doing("stat")?;
        }
        seen += 1;
    }
    if seen == count {
        return Ok(());
    }
    Err(Fault { message: format!("readdir: {seen} entries, {count} are there"), errno: None })
}

fn stat_all(meter: &Meter, count: u64) -> Result<(), Fault> {
    for at in 0..count {
        fs::symlink_metadata(path(meter, at)).doing("stat")?;
    }
    Ok(())
}

fn remove(meter: &mut Meter, count: u64) -> Result<(), Fault> {
    let watch = meter.start();
    for at in 0..count {
        fs::remove_file(path(meter, at)).doing("unlink")?;
    }
    meter.record(format!("unlink {count} files"), Work::Operations(count), &watch);
    Ok(())
}
