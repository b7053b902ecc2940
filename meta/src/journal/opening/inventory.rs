//! Lists the segments and snapshots on the targets, with the volume that each belongs to.

use super::super::frame::{
    END_BYTES, Frame, HEAD_BYTES, Head, NO_NUMBER, OLD_HEAD_BYTES, Origin, RecordKind, VolumeId,
};
use super::super::options::MirrorTarget;
use super::super::panics::caught;
use super::copies::Copy;
use plan::TxId;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use volume::target::{ReadAt, Target, TargetFile};
use volume::{Wait, ask_all};

/// The volume that a file belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::journal) enum Owner {
    /// This volume, with this head.
    Ours(Head),
    /// Another volume.
    Foreign,
    /// Nothing in the file says.
    Unknown,
}

/// A segment or snapshot on a target.
#[derive(Clone, Debug)]
pub(in crate::journal) struct FoundFile {
    pub file: TargetFile,
    pub bytes: u64,
    pub owner: Owner,
    /// A snapshot that has its end frame.
    pub complete: bool,
}

/// Lists the segments and snapshots on a target.
pub(in crate::journal) fn take(target: &Arc<dyn Target>, volume: &VolumeId) -> io::Result<Vec<FoundFile>> {
    let mut all = Vec::new();
    for (file, bytes) in target.list_metadata()? {
        // Transactions begin with 1.
        let (TargetFile::Journal { first: TxId(1..NO_NUMBER) } | TargetFile::Snapshot { last: TxId(..NO_NUMBER) }) =
            file
        else {
            continue;
        };
        let mut copy = Copy::new(0, target.clone(), file, bytes);
        let owner = owner(&mut copy, target, volume)?;
        let id = if let Owner::Ours(head) = &owner { head.epoch.id } else { 0 };
        let complete = matches!(file, TargetFile::Snapshot { .. })
            && bytes >= (OLD_HEAD_BYTES + END_BYTES) as u64
            && copy.frame(volume, id, bytes - END_BYTES as u64).is_some_and(|(frame, _)| frame.kind == RecordKind::End);
        match copy.failed {
            // It was removed after it was listed.
            Some(why) if why.kind() == io::ErrorKind::NotFound => continue,
            // What cannot be read now may be whole.
            Some(why) => return Err(why),
            None => {}
        }
        all.push(FoundFile { file, bytes, owner, complete });
    }
    Ok(all)
}

fn owner(copy: &mut Copy, target: &Arc<dyn Target>, volume: &VolumeId) -> io::Result<Owner> {
    let mut bytes = [0; HEAD_BYTES];
    let have = match target.read_at(copy.file, 0, &mut bytes) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        other => other?,
    };
    if let Some(head) = Frame::proven_head(&bytes[..have]) {
        return Ok(if head.volume == *volume { Owner::Ours(head) } else { Owner::Foreign });
    }
    // In format 1, the first frame behind a damaged head names the epoch. Later formats need the
    // epoch's id from the head of another copy.
    let first = copy.frame(volume, 0, OLD_HEAD_BYTES as u64);
    let head =
        |epoch| Head { volume: *volume, epoch, origin: Origin::default(), mirrors: Vec::new(), bytes: OLD_HEAD_BYTES };
    Ok(first.map_or(Owner::Unknown, |(frame, _)| Owner::Ours(head(frame.epoch))))
}

/// [`take`] on all targets in parallel. A target that exceeds the deadline has failed.
pub(in crate::journal) fn take_all(
    places: &[MirrorTarget],
    volume: &VolumeId,
    deadline: Duration,
) -> Vec<io::Result<Vec<FoundFile>>> {
    take_most(places, usize::MAX, volume, deadline)
}

/// As `take_all`, but once `enough` targets have answered, stragglers have failed.
pub(in crate::journal) fn take_most(
    places: &[MirrorTarget],
    enough: usize,
    volume: &VolumeId,
    deadline: Duration,
) -> Vec<io::Result<Vec<FoundFile>>> {
    let volume = *volume;
    ask(places, enough, enough, deadline, move |target| take(target, &volume))
}

/// Asks all targets in parallel, each on a thread of its own. Once `enough` have answered, and
/// preferably `wanted`, stragglers have failed, and so has a target that exceeds the deadline.
pub(in crate::journal) fn ask<T: Send + 'static>(
    places: &[MirrorTarget],
    enough: usize,
    wanted: usize,
    deadline: Duration,
    question: impl Fn(&Arc<dyn Target>) -> io::Result<T> + Send + Sync + 'static,
) -> Vec<io::Result<T>> {
    let question = Arc::new(question);
    let questions = places.iter().map(|(_, target)| {
        let (target, question) = (target.clone(), question.clone());
        move || caught("weft-ask", || question(&target)).unwrap_or_else(|why| Err(io::Error::other(why)))
    });
    let all = ask_all(questions, Result::is_ok, Wait { least: enough, wanted, deadline });
    all.into_iter().map(|found| found.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))).collect()
}
