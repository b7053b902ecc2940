//! The copies of a file on its mirrors: the same frames at the same offsets. Each frame is read
//! from a copy in which it is valid.

use super::super::frame::{FRAME_BYTES, Frame, MAX_PAYLOAD_BYTES, VolumeId};
use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::Arc;
use volume::target::{Durable, ReadAt, Target, TargetFile};

const WINDOW_BYTES: usize = 1 << 20;

/// One mirror's copy of a file.
#[derive(Debug)]
pub(in crate::journal) struct Copy {
    /// The index of the target in the list of the volume's targets.
    pub place: usize,
    target: Arc<dyn Target>,
    /// The file.
    pub file: TargetFile,
    /// The length of the file, in bytes.
    pub bytes: u64,
    /// Its head is valid.
    pub headed: bool,
    /// The last error of a read. It may have more than what was read then.
    pub failed: Option<io::Error>,
    at: u64,
    window: Vec<u8>,
}

/// A range of a file that is damaged or missing in one copy and valid in another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::journal) struct Miss {
    pub place: usize,
    pub range: Range<u64>,
    /// The copy in which the range is valid.
    pub from: usize,
}

impl Copy {
    pub fn new(place: usize, target: Arc<dyn Target>, file: TargetFile, bytes: u64) -> Self {
        Self { place, target, file, bytes, headed: true, failed: None, at: 0, window: Vec::new() }
    }

    /// Reads `bytes` bytes at an offset, if the file has them and they can be read. The buffer is
    /// never larger than the file.
    fn read(&mut self, offset: u64, bytes: usize) -> Option<&[u8]> {
        if offset.checked_add(bytes as u64)? > self.bytes {
            return None;
        }
        let end = self.at + self.window.len() as u64;
        if offset < self.at || offset + bytes as u64 > end {
            let want = (self.bytes - offset).min(WINDOW_BYTES.max(bytes) as u64);
            self.window.resize(want as usize, 0);
            self.at = offset;
            match self.target.read_at(self.file, offset, &mut self.window) {
                Ok(have) => self.window.truncate(have),
                Err(why) => {
                    self.window.clear();
                    self.failed = Some(why);
                }
            }
        }
        let start = (offset - self.at) as usize;
        self.window.get(start..start + bytes)
    }

    /// The frame of an epoch with this id at an offset, if it is valid.
    pub fn frame(&mut self, volume: &VolumeId, id: u128, offset: u64) -> Option<(Frame, &[u8])> {
        let frame = Frame::parse(self.read(offset, FRAME_BYTES)?)?;
        Frame::proven(volume, id, self.read(offset, FRAME_BYTES + frame.payload)?)
    }

    /// Whether a valid frame that `wanted` accepts is at or behind an offset. It reads a limited
    /// amount, so that it does not take long.
    pub fn any_behind(&mut self, volume: &VolumeId, id: u128, offset: u64, wanted: impl Fn(&Frame) -> bool) -> bool {
        let (mut at, mut budget) = (offset, 4 * MAX_PAYLOAD_BYTES);
        while let Some(bytes) = self.read(at, FRAME_BYTES) {
            let mut frame = Frame::parse(bytes);
            frame.iter_mut().for_each(|frame| frame.epoch.id = id);
            if let Some(frame) = frame.filter(&wanted) {
                if self.frame(volume, id, at).is_some() {
                    return true;
                }
                budget = budget.saturating_sub(frame.payload);
            }
            budget = budget.saturating_sub(1);
            if budget == 0 {
                break;
            }
            at += 8;
        }
        false
    }

    /// Passes all valid frames at or behind an offset to `visit`. It reads a limited amount, too.
    pub fn each_behind(&mut self, volume: &VolumeId, id: u128, offset: u64, mut visit: impl FnMut(&Frame)) {
        let (mut at, mut budget) = (offset, 4 * MAX_PAYLOAD_BYTES);
        while let Some(bytes) = self.read(at, FRAME_BYTES).filter(|_| budget > 0) {
            let payload = Frame::parse(bytes).map_or(0, |frame| frame.payload);
            budget = budget.saturating_sub(payload + 1);
            at += match self.frame(volume, id, at) {
                Some((frame, _)) => {
                    visit(&frame);
                    frame.bytes() as u64
                }
                None => 8,
            };
        }
    }
}

/// Passes the frames behind the head, of an epoch with this id, to `visit`, in order. It stops when
/// no copy has the next frame, or none that `accept` accepts, or when `visit` returns `false`.
/// Returns where it stopped, and what some copies are missing before that.
pub(in crate::journal) fn walk<E>(
    copies: &mut [Copy],
    (volume, id, head): (&VolumeId, u128, usize),
    accept: impl Fn(&Frame) -> bool,
    mut visit: impl FnMut(&Frame, &[u8]) -> Result<bool, E>,
) -> Result<(u64, Vec<Miss>), E> {
    let mut offset = head as u64;
    let mut misses: Vec<Miss> = Vec::new();
    let mut expected = 0;
    loop {
        let sound = |copy: &mut Copy| copy.frame(volume, id, offset).map(|(frame, _)| frame).filter(|f| accept(f));
        let frames: Vec<Option<Frame>> = copies.iter_mut().map(sound).collect();
        // The numbers go up by one; a frame left from an earlier use of the space does not fit.
        let fits = |frame: &Frame| expected == 0 || frame.number == expected;
        let Some((good, frame)) = frames.iter().enumerate().find_map(|(n, frame)| Some((n, frame.filter(fits)?)))
        else {
            return Ok((offset, misses));
        };
        let range = offset..offset + frame.bytes() as u64;
        let from = copies[good].place;
        for (other, copy) in frames.iter().zip(&*copies) {
            if *other != Some(frame) {
                match misses.iter_mut().rfind(|miss| miss.place == copy.place) {
                    Some(miss) if miss.range.end == offset && miss.from == from => miss.range.end = range.end,
                    _ => misses.push(Miss { place: copy.place, range: range.clone(), from }),
                }
            }
        }
        let Some((_, payload)) = copies[good].frame(volume, id, offset) else { return Ok((offset, misses)) };
        if !visit(&frame, payload)? {
            return Ok((offset, misses));
        }
        expected = frame.number + 1;
        offset = range.end;
    }
}

/// Copies a range of a file to a target, each part of it from a copy that is valid there.
///
/// # Errors
/// When a part is valid nowhere, or a target fails.
pub(in crate::journal) fn spread(
    copies: &[Copy],
    misses: &[Miss],
    range: Range<u64>,
    to: &dyn Target,
) -> io::Result<()> {
    let mut at = range.start;
    while at < range.end {
        let bad = |copy: &&Copy| misses.iter().any(|miss| miss.place == copy.place && miss.range.contains(&at));
        let Some(copy) = copies.iter().find(|copy| !bad(copy)) else {
            return Err(io::Error::other("no sound copy"));
        };
        let ends = misses.iter().filter(|miss| miss.place == copy.place && miss.range.start > at);
        let end = ends.map(|miss| miss.range.start).min().unwrap_or(range.end).min(range.end);
        transfer(&*copy.target, to, copy.file, at..end)?;
        at = end;
    }
    Ok(())
}

/// Copies the head of a file to a target, from a copy whose head is valid.
///
/// # Errors
/// When it is valid nowhere, or a target fails.
pub(in crate::journal) fn spread_head(copies: &[Copy], head: usize, to: &dyn Target) -> io::Result<()> {
    let copy = copies.iter().find(|copy| copy.headed).ok_or_else(|| io::Error::other("no sound head"))?;
    transfer(&*copy.target, to, copy.file, 0..head as u64)
}

/// Copies a range of a file from one target to another.
///
/// # Errors
/// When either fails.
fn transfer(from: &dyn Target, to: &dyn Target, file: TargetFile, range: Range<u64>) -> io::Result<()> {
    let mut buffer = vec![0; WINDOW_BYTES.min((range.end - range.start) as usize)];
    let mut at = range.start;
    while at < range.end {
        let bytes = buffer.len().min((range.end - at) as usize);
        let have = from.read_at(file, at, &mut buffer[..bytes])?;
        // The padding behind the last frame may not have been written.
        buffer[have..bytes].fill(0);
        to.write(file, at, &[IoSlice::new(&buffer[..bytes])], Durable::Later)?;
        at += bytes as u64;
    }
    Ok(())
}
