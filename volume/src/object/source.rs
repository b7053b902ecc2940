//! Where the data of an object comes from: a file that is read at several places at once, or a
//! stream.

use super::rows::Rows;
use crate::format::{Layout, Timestamp};
use crate::lock;
use crate::target::read_at;
use crate::{Control, Error, Result, Shown};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::{File, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The data to encode.
#[derive(Debug)]
pub struct Source {
    path: PathBuf,
    file: File,
    found: Metadata,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// The next stripe to read.
    File(AtomicU64),
    /// The next stripe, the bytes so far, and whether the stream has ended.
    Stream(Mutex<Progress>),
}

#[derive(Debug, Default)]
struct Progress {
    stripe: u64,
    bytes: u64,
    ended: bool,
}

/// A stripe whose data is in the rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stripe {
    pub number: u64,
    pub data_bytes: usize,
}

impl Source {
    /// A regular file.
    ///
    /// # Errors
    /// When it cannot be opened or is something else.
    pub fn file(path: &Path) -> Result<Self> {
        let is = |what: &str| Err(Error::Invalid(format!("{} is {what}, not a regular file", Shown(path))));
        // Looked at before it is opened: opening a pipe would wait for a writer.
        let kind = std::fs::metadata(path).map_err(Error::io("read", path))?.file_type();
        if kind.is_dir() {
            return is("a directory");
        } else if kind.is_fifo() || kind.is_socket() {
            return is("a pipe or socket");
        } else if !kind.is_file() {
            return is("a device");
        }
        let file = File::open(path).map_err(Error::io("read", path))?;
        let found = file.metadata().map_err(Error::io("look at", path))?;
        // Files that the kernel makes up have no length; they are read until they end.
        let kind = if found.len() == 0 { Kind::Stream(Mutex::default()) } else { Kind::File(AtomicU64::new(0)) };
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Sequential);
        Ok(Self { path: path.to_path_buf(), file, found, kind })
    }

    /// A stream, read from where it is to its end; `name` stands for it in messages.
    ///
    /// # Errors
    /// When it cannot be looked at.
    pub fn stream(file: File, name: &str) -> Result<Self> {
        let path = PathBuf::from(name);
        let found = file.metadata().map_err(Error::io("look at", &path))?;
        // Where a standard stream was closed, the runtime opens this device, and for both
        // directions, as no shell does.
        let null = std::fs::metadata("/dev/null").map(|null| null.rdev());
        let both = rustix::fs::fcntl_getfl(&file).is_ok_and(|flags| flags.contains(rustix::fs::OFlags::RDWR));
        if both && found.file_type().is_char_device() && null.is_ok_and(|null| null == found.rdev()) {
            return Err(Error::Invalid(format!("{} is closed", Shown(&path))));
        }
        Ok(Self { path, file, found, kind: Kind::Stream(Mutex::default()) })
    }

    /// Its length, if that is known before it ends.
    pub fn known_bytes(&self) -> Option<u64> {
        matches!(self.kind, Kind::File(_)).then(|| self.found.len())
    }

    /// Permission bits and times for the header; a stream has today's and is its owner's.
    pub(super) fn attributes(&self) -> (u32, Timestamp, Timestamp) {
        if self.found.is_file() {
            (self.found.mode() & 0o7777, Timestamp::modified(&self.found), Timestamp::accessed(&self.found))
        } else {
            (0o600, Timestamp::now(), Timestamp::now())
        }
    }

    /// Reads the next stripe into the first k rows, filled up with zeroes; `None` at the end.
    pub(super) fn next(&self, layout: &Layout, rows: &mut Rows, control: &Control) -> Result<Option<Stripe>> {
        let stripe = match &self.kind {
            Kind::File(next) => self.next_of_file(next.fetch_add(1, Ordering::Relaxed), layout, rows)?,
            Kind::Stream(progress) => self.next_of_stream(&mut lock(progress), layout, rows, control)?,
        };
        let Some(stripe) = stripe else { return Ok(None) };
        let block_bytes = layout.block_bytes_for(stripe.data_bytes);
        for row in 0..layout.k() {
            let filled = stripe.data_bytes.saturating_sub(row * block_bytes).min(block_bytes);
            rows.row_mut(row, block_bytes)[filled..].fill(0);
        }
        Ok(Some(stripe))
    }

    fn next_of_file(&self, number: u64, layout: &Layout, rows: &mut Rows) -> Result<Option<Stripe>> {
        let data_bytes = layout.data_bytes(number);
        if data_bytes == 0 {
            return Ok(None);
        }
        let block_bytes = layout.block_bytes_for(data_bytes);
        let mut wanted = data_bytes;
        let mut blocks = rows.all_mut(block_bytes);
        blocks.truncate(layout.k());
        for block in &mut blocks {
            let (now, _) = std::mem::take(block).split_at_mut(block_bytes.min(wanted));
            wanted -= now.len();
            *block = now;
        }
        let offset = number * layout.stripe_bytes() as u64;
        let read = read_at(&self.file, offset, &mut blocks).map_err(Error::io("read", &self.path))?;
        if read < data_bytes { Err(self.changed()) } else { Ok(Some(Stripe { number, data_bytes })) }
    }

    fn next_of_stream(
        &self,
        progress: &mut Progress,
        layout: &Layout,
        rows: &mut Rows,
        control: &Control,
    ) -> Result<Option<Stripe>> {
        let full = layout.full_block_bytes();
        let mut data_bytes = 0;
        for row in 0..layout.k() {
            let mut rest = rows.row_mut(row, full);
            while !rest.is_empty() && !progress.ended {
                let read = self.read_some(rest, control)?;
                progress.ended = read == 0;
                data_bytes += read;
                rest = &mut rest[read..];
            }
        }
        if data_bytes == 0 {
            return Ok(None);
        }
        let block_bytes = layout.block_bytes_for(data_bytes);
        if block_bytes < full {
            // Only now it is known how short the last blocks are.
            let rows_used = data_bytes.div_ceil(full);
            let all = (0..rows_used).flat_map(|row| rows.row(row, full)).copied().take(data_bytes).collect::<Vec<u8>>();
            all.chunks(block_bytes)
                .enumerate()
                .for_each(|(row, piece)| rows.row_mut(row, piece.len()).copy_from_slice(piece));
        }
        let number = progress.stripe;
        progress.stripe += 1;
        progress.bytes += data_bytes as u64;
        Ok(Some(Stripe { number, data_bytes }))
    }

    /// Reads what there is, and looks out for cancellation while it waits.
    fn read_some(&self, into: &mut [u8], control: &Control) -> Result<usize> {
        use std::io::Read;
        let moment = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        loop {
            control.check()?;
            match poll(&mut [PollFd::new(&self.file, PollFlags::IN)], Some(&moment)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => continue,
                // Input that cannot be polled can be read at once.
                Ok(_) | Err(_) => {}
            }
            match (&self.file).read(into) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                result => return result.map_err(Error::io("read", &self.path)),
            }
        }
    }

    /// How many bytes the source had, now that all of it was read.
    ///
    /// # Errors
    /// When a file changed meanwhile, so that what was read may be part old, part new.
    pub(super) fn finish(&self) -> Result<u64> {
        match &self.kind {
            Kind::Stream(progress) => Ok(lock(progress).bytes),
            Kind::File(_) => {
                let now = self.file.metadata().map_err(Error::io("look at", &self.path))?;
                let state = |of: &Metadata| (of.len(), of.mtime(), of.mtime_nsec());
                if state(&now) == state(&self.found) { Ok(now.len()) } else { Err(self.changed()) }
            }
        }
    }

    fn changed(&self) -> Error {
        Error::Invalid(format!(
            "{} changed while it was read; encode it again when nothing writes to it",
            Shown(&self.path)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// What becomes of a file of 5000 bytes that changes when its first stripe was read.
    fn read_while(change: impl FnOnce(&mut File)) -> Result<u64> {
        let path =
            std::env::temp_dir().join(format!("weft-source-{}-{:?}", std::process::id(), std::thread::current().id()));
        std::fs::write(&path, [7; 5000]).unwrap();
        let source = Source::file(&path).unwrap();
        let mut writer = File::options().append(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let layout = Layout::new((2, 1), 1, 512, 512, 5000).unwrap();
        let mut rows = Rows::new(3, 0, 512).unwrap();
        let control = Control::default();
        assert_eq!(source.next(&layout, &mut rows, &control)?.unwrap().number, 0);
        change(&mut writer);
        while source.next(&layout, &mut rows, &control)?.is_some() {}
        source.finish()
    }

    #[test]
    fn a_file_that_changes_while_it_is_read_is_refused() {
        assert_eq!(read_while(|_| {}).unwrap(), 5000);
        let changes: [fn(&mut File); 3] = [
            |file| file.set_len(4999).unwrap(),
            |file| file.set_len(100).unwrap(),
            |file| file.write_all(b"more").unwrap(),
        ];
        for change in changes {
            let refused = read_while(change).unwrap_err().to_string();
            assert!(refused.contains("changed while it was read"), "{refused}");
        }
    }

    #[test]
    fn the_last_stripe_is_spread_over_all_blocks_and_filled_with_zeroes() {
        let data: Vec<u8> = (0..1029u32).map(|n| n as u8 | 1).collect();
        let (read, mut write) = std::io::pipe().unwrap();
        write.write_all(&data).unwrap();
        drop(write);
        let source = Source::stream(File::from(std::os::fd::OwnedFd::from(read)), "a pipe").unwrap();
        let layout = Layout::new((2, 1), 4, 512, 512, 0).unwrap();
        let mut rows = Rows::new(3, 0, 512).unwrap();
        let control = Control::default();
        let first = source.next(&layout, &mut rows, &control).unwrap().unwrap();
        assert_eq!((first.data_bytes, rows.row(1, 512)), (1024, &data[512..1024]));
        let last = source.next(&layout, &mut rows, &control).unwrap().unwrap();
        assert_eq!((last.number, last.data_bytes), (1, 5));
        assert_eq!([rows.row(0, 4), rows.row(1, 4)].concat(), [&data[1024..], &[0; 3]].concat());
        assert!(source.next(&layout, &mut rows, &control).unwrap().is_none());
        assert_eq!(source.finish().unwrap(), 1029);
    }
}
