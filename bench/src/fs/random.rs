//! 4 KiB at random offsets of a file that is there already.

use super::content::{SECTOR, mixed};
use super::meter::{Doing, Fault, Meter, Work};
use super::sequential::write_file;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Writes, and then fsync.
pub fn write(meter: &mut Meter) -> Result<(), Fault> {
    let count = meter.effort.random_writes;
    let (file, mut generations) = prepare(meter)?;
    let watch = meter.start();
    overwrite(meter, &file, &mut generations, count, false)?;
    meter.record("random write 4 KiB, before fsync", Work::Operations(count), &watch);
    file.sync_all().doing("fsync")?;
    meter.record("random write 4 KiB, with one fsync", Work::Operations(count), &watch);
    check_all(meter, &file, &generations)
}

/// Writes with fsync after each.
pub fn write_sync(meter: &mut Meter) -> Result<(), Fault> {
    let count = meter.effort.random_syncs;
    let (file, mut generations) = prepare(meter)?;
    let watch = meter.start();
    overwrite(meter, &file, &mut generations, count, true)?;
    meter.record("random write 4 KiB, fsync each", Work::Operations(count), &watch);
    check_all(meter, &file, &generations)
}

/// Reads of what the kernel has not cached.
pub fn read(meter: &mut Meter) -> Result<(), Fault> {
    let count = meter.effort.random_reads;
    let (file, generations) = prepare(meter)?;
    let mut buffer = vec![0; SECTOR];
    let watch = meter.start();
    for sector in sectors(meter, generations.len(), count) {
        file.read_exact_at(&mut buffer, sector * SECTOR as u64).doing("read")?;
        meter.content.check(&buffer, sector, meter.round).doing("read")?;
    }
    meter.record("random read 4 KiB, cold", Work::Operations(count), &watch);
    Ok(())
}

/// A synchronised file that is not in the cache, and the generation of each of its sectors.
fn prepare(meter: &Meter) -> Result<(File, Vec<u64>), Fault> {
    let path = meter.directory.join("file");
    let bytes = meter.effort.random_bytes;
    write_file(meter, &path, bytes, 1 << 20)?;
    let file = File::options().read(true).write(true).open(&path).doing("open")?;
    meter.cold.drop_pages(&file).doing("dropping caches")?;
    Ok((file, vec![meter.round; bytes as usize / SECTOR]))
}

/// The same in every directory, different in every round.
fn sectors(meter: &Meter, all: usize, count: u64) -> impl Iterator<Item = u64> + use<> {
    let start = meter.round << 32;
    (0..count).map(move |at| mixed(start + at) % all as u64)
}

fn overwrite(meter: &Meter, file: &File, generations: &mut [u64], count: u64, sync: bool) -> Result<(), Fault> {
    let mut buffer = vec![0; SECTOR];
    for (at, sector) in (1..).zip(sectors(meter, generations.len(), count)) {
        let generation = meter.round + (at << 32);
        meter.content.fill(&mut buffer, sector, generation);
        file.write_all_at(&buffer, sector * SECTOR as u64).doing("write")?;
        generations[sector as usize] = generation;
        if sync {
            file.sync_all().doing("fsync")?;
        }
    }
    Ok(())
}

/// Reads the whole file from below the cache and compares it with what was written last.
fn check_all(meter: &Meter, file: &File, generations: &[u64]) -> Result<(), Fault> {
    meter.cold.drop_pages(file).doing("dropping caches")?;
    let mut buffer = vec![0; 1 << 20];
    let mut first = 0;
    for part in generations.chunks(buffer.len() / SECTOR) {
        let read = &mut buffer[..part.len() * SECTOR];
        file.read_exact_at(read, first * SECTOR as u64).doing("read back")?;
        for (sector, &generation) in read.chunks(SECTOR).zip(part) {
            meter.content.check(sector, first, generation).doing("read back")?;
            first += 1;
        }
    }
    Ok(())
}
