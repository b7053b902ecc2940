//! One file of the bytes of others: their extents are shared, many in one transaction, so that an
//! object of thousands of parts is put together without its data being read.

use crate::data::file::File;
use crate::data::write::stripe_of;
use crate::{Error, FileSystem, Result};
use meta::{ContentEdit, Resize};
use plan::{Extent, Ino};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// The most ranges that one transaction joins.
const RANGES: usize = 256;

impl FileSystem {
    /// Appends ranges of files to another file by sharing their extents, without reading or writing
    /// data. Returns the new size. When it fails, some of the ranges may be there.
    ///
    /// # Errors
    /// When a range is behind the end of its file; when one of the files is removed, is not a
    /// regular file, or is the other one.
    pub fn join(&self, sources: &[(Ino, Range<u64>)], to: Ino) -> Result<u64> {
        self.in_this_session(|| {
            self.writable()?;
            self.check_metadata_space()?;
            let mut size = self.sized(&self.table.enter(to))?.buffer.size.unwrap_or(0);
            for group in sources.chunks(RANGES) {
                size = self.join_group(group, to, size)?;
            }
            Ok(size)
        })
    }

    /// Appends some ranges in one transaction.
    fn join_group(&self, sources: &[(Ino, Range<u64>)], to: Ino, begin: u64) -> Result<u64> {
        let inos: BTreeMap<Ino, ()> = sources.iter().map(|(ino, _)| (*ino, ())).collect();
        if inos.contains_key(&to) {
            return Err(Error::Meta(meta::Error::Invalid("a file is not joined to itself".into())));
        }
        let mut files: BTreeMap<Ino, _> = inos.into_keys().map(|ino| (ino, self.table.enter(ino))).collect();
        let written: Vec<Arc<File>> = files.values().map(|file| Arc::clone(file)).collect();
        self.commit(&written, false)?;
        files.insert(to, self.table.enter(to));
        // Ask for sizes before taking the locks: a server may make other clients commit first.
        for file in files.values() {
            drop(self.sized(file)?);
        }
        let _one_at_a_time: Vec<_> = files.values().map(|file| file.content()).collect();
        let (mut joined, mut end) = (Vec::<Extent>::new(), begin);
        for (ino, range) in sources {
            let size = self.sized(&files[ino])?.buffer.size.unwrap_or(0);
            if range.end > size || range.start > range.end {
                return Err(Error::Meta(meta::Error::Invalid("a range is not in its file".into())));
            }
            let length = range.end - range.start;
            let next = end.checked_add(length).filter(|next| i64::try_from(*next).is_ok());
            let next = next.ok_or(Error::Meta(meta::Error::TooLarge))?;
            let mut rest = range.clone();
            while !rest.is_empty() {
                let (extents, covered) = self.next_extents(*ino, rest)?;
                rest = covered.end..range.end;
                let moved = |extent: Extent| Extent { offset: extent.offset - range.start + end, ..extent };
                joined.extend(extents.into_iter().map(moved));
            }
            end = next;
        }
        if end == begin {
            return Ok(begin);
        }
        let stripes: Vec<_> = joined.iter().filter_map(|extent| stripe_of(&extent.place)).collect();
        self.meta.share(&stripes, to)?;
        let target = &files[&to];
        self.sized(target)?.changing = true;
        let edit = ContentEdit {
            ranges: vec![(begin..end, joined)],
            resize: Resize::AtLeast(end),
            modified: Some(self.stamp()),
        };
        let done = self.change_content(target, &edit, false);
        let mut state = target.state();
        state.changed();
        if done.is_ok() {
            self.change_buffer(&mut state, |buffer| {
                buffer.forget(begin..end);
                buffer.size = buffer.size.max(Some(end));
            });
        }
        drop(state);
        let (_, dead, seq) = done?;
        self.collector.add(dead, seq);
        Ok(end)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Lab, make};

    #[test]
    fn a_file_of_many_is_theirs_and_stays_when_they_go() {
        let lab = Lab::new("rs:2+1", 3);
        let fs = lab.open();
        let sizes = [3000usize, 0, 1, 5 << 20, 100_000];
        let noise: Vec<u8> = (0..6_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let (mut sources, mut expected) = (Vec::new(), b"begin".to_vec());
        for n in 0..600 {
            let size = sizes[if n < 10 { n % sizes.len() } else { 0 }];
            let ino = make(&fs, &format!("part{n}"));
            fs.write(ino, 0, &noise[n..n + size]).unwrap();
            // Part of a part, too.
            let range = if n % 3 == 0 { 0..size as u64 } else { (size / 3) as u64..(size / 2) as u64 };
            expected.extend_from_slice(&noise[n..][range.start as usize..range.end as usize]);
            sources.push((ino, range));
        }
        let to = make(&fs, "whole");
        fs.write(to, 0, b"begin").unwrap();
        assert_eq!(fs.join(&sources, to).unwrap(), expected.len() as u64);
        assert!(fs.join(&[(sources[0].0, 0..3001)], to).is_err(), "behind the end");
        assert!(fs.join(&[(to, 0..1)], to).is_err(), "itself");
        fs.sync(to).unwrap();
        for n in 0..600 {
            fs.unlink(crate::ROOT, format!("part{n}").as_bytes()).unwrap();
        }
        fs.sync_all().unwrap();
        fs.abandon();
        drop(fs);
        let fs = lab.open();
        let mut read = vec![0; expected.len() + 1];
        assert_eq!(fs.read(to, 0, &mut read).unwrap(), expected.len());
        assert!(read[..expected.len()] == expected);
        assert!(fs.verify(&volume::Control::default()).unwrap().is_sound());
        fs.close_volume().unwrap();
    }
}
