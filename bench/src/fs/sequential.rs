//! One large file, from its beginning to its end.

use super::content::SECTOR;
use super::meter::{Doing, Fault, Meter, Work};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

/// Writes in records of 1 MiB and of 128 KiB.
pub fn write(meter: &mut Meter) -> Result<(), Fault> {
    let bytes = meter.effort.bytes;
    timed_write(meter, "write 1 MiB records", bytes, 1 << 20)?;
    timed_write(meter, "write 128 KiB records", bytes, 128 << 10)
}

/// Writes in records of 4 KiB.
pub fn dd(meter: &mut Meter) -> Result<(), Fault> {
    let bytes = (meter.effort.bytes / 4).next_multiple_of(1 << 20);
    timed_write(meter, "write 4 KiB records", bytes, 4 << 10)
}

/// Reads in records of 1 MiB: from below the cache, and again.
pub fn read(meter: &mut Meter) -> Result<(), Fault> {
    let bytes = meter.effort.bytes;
    let path = meter.directory.join("file");
    write_file(meter, &path, bytes, 1 << 20)?;
    let mut file = File::open(&path).doing("open")?;
    meter.cold.drop_pages(&file).doing("dropping caches")?;
    for name in ["read 1 MiB records, cold", "read 1 MiB records, again"] {
        let watch = meter.start();
        read_file(meter, &mut file, bytes).doing("read")?;
        meter.record(name, Work::Bytes(bytes), &watch);
        io::Seek::rewind(&mut file).doing("lseek")?;
    }
    Ok(())
}

fn timed_write(meter: &mut Meter, name: &str, bytes: u64, record: usize) -> Result<(), Fault> {
    let path = meter.directory.join("file");
    meter.settle()?;
    let watch = meter.start();
    write_file(meter, &path, bytes, record)?;
    meter.record(name, Work::Bytes(bytes), &watch);
    let length = fs::metadata(&path).doing("stat")?.len();
    if length != bytes {
        return Err(Fault { message: format!("{bytes} bytes written, {length} in the file"), errno: None });
    }
    fs::remove_file(&path).doing("unlink")
}

/// Writes a new file of generation `round` and synchronises it.
pub fn write_file(meter: &Meter, path: &Path, bytes: u64, record: usize) -> Result<(), Fault> {
    let mut file = File::create_new(path).doing("create")?;
    let mut buffer = vec![0; record];
    for first in (0..bytes / SECTOR as u64).step_by(record / SECTOR) {
        meter.content.fill(&mut buffer, first, meter.round);
        file.write_all(&buffer).doing("write")?;
    }
    file.sync_all().doing("fsync")
}

fn read_file(meter: &Meter, file: &mut File, bytes: u64) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 20];
    for first in (0..bytes / SECTOR as u64).step_by(buffer.len() / SECTOR) {
        file.read_exact(&mut buffer)?;
        meter.content.check(&buffer, first, meter.round)?;
    }
    Ok(())
}
