//! Lists the segments and snapshots on the targets, with the volume that each belongs to.

use super::copies::Copy;
use super::frame::{END_BYTES, Epoch, Frame, HEAD_BYTES, Kind, NO_NUMBER, VolumeId};
use super::guard::caught;
use super::options::Place;
use plan::late::patience;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};
use volume::target::{Target, TargetFile};

/// The name of the threads that read a target.
const INVENTORY: &str = "weft-inventory";

/// The volume that a file belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// This volume, in the given epoch.
    Ours(Epoch),
    /// Another volume.
    Foreign,
    /// Nothing in the file says.
    Unknown,
}

/// A segment or snapshot on a target.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub file: TargetFile,
    pub bytes: u64,
    pub owner: Owner,
    /// A snapshot that has its end frame.
    pub complete: bool,
}

/// Lists the segments and snapshots on a target.
pub(super) fn take(target: &Arc<dyn Target>, volume: &VolumeId) -> io::Result<Vec<Found>> {
    let mut all = Vec::new();
    for (file, bytes) in target.list()? {
        // Transactions begin with 1.
        if !matches!(file, TargetFile::Journal { first: 1..NO_NUMBER } | TargetFile::Snapshot { last: 0..NO_NUMBER }) {
            continue;
        }
        let mut copy = Copy::new(0, target.clone(), file, bytes);
        let owner = owner(&mut copy, target, volume)?;
        let complete = matches!(file, TargetFile::Snapshot { .. })
            && bytes >= (HEAD_BYTES + END_BYTES) as u64
            && copy.frame(volume, bytes - END_BYTES as u64).is_some_and(|(frame, _)| frame.kind == Kind::End);
        all.push(Found { file, bytes, owner, complete });
    }
    Ok(all)
}

fn owner(copy: &mut Copy, target: &Arc<dyn Target>, volume: &VolumeId) -> io::Result<Owner> {
    let mut head = [0; HEAD_BYTES];
    let have = match target.read(copy.file, 0, &mut head) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        other => other?,
    };
    if let Some((frame, owner)) = Frame::proven_head(&head[..have]) {
        return Ok(if owner == *volume { Owner::Ours(frame.epoch) } else { Owner::Foreign });
    }
    // When the head is damaged, the first frame behind it names the epoch.
    let first = copy.frame(volume, HEAD_BYTES as u64);
    Ok(first.map_or(Owner::Unknown, |(frame, _)| Owner::Ours(frame.epoch)))
}

/// [`take`] on all targets in parallel. A target that exceeds the deadline has failed.
pub(super) fn take_all(places: &[Place], volume: &VolumeId, deadline: Duration) -> Vec<io::Result<Vec<Found>>> {
    take_most(places, usize::MAX, volume, deadline)
}

/// As `take_all`, but once `enough` targets have answered, stragglers have failed.
pub(super) fn take_most(
    places: &[Place],
    enough: usize,
    volume: &VolumeId,
    deadline: Duration,
) -> Vec<io::Result<Vec<Found>>> {
    let (sender, receiver) = channel();
    let mut all = Vec::new();
    for (number, (_, target)) in places.iter().enumerate() {
        let (sender, target, volume) = (sender.clone(), target.clone(), *volume);
        let started = thread::Builder::new().name(INVENTORY.into()).spawn(move || {
            // After a deadline the receiver may be gone.
            let found = caught(INVENTORY, || take(&target, &volume));
            let _ = sender.send((number, found.unwrap_or_else(|why| Err(io::Error::other(why)))));
        });
        all.push(Err(started.err().unwrap_or_else(|| io::ErrorKind::TimedOut.into())));
    }
    drop(sender);
    let (begun, mut took) = (Instant::now(), Vec::new());
    let left = |took: &[Duration]| patience(took, enough, enough, deadline).saturating_sub(begun.elapsed());
    while let Ok((number, found)) = receiver.recv_timeout(left(&took)) {
        if found.is_ok() {
            took.push(begun.elapsed());
        }
        all[number] = found;
    }
    all
}
