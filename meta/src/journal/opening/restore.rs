//! Fills an index from a snapshot.

use super::super::frame::{Frame, RecordKind, VolumeId, take_pair, u64_at};
use super::copies::walk;
use super::recover::Group;
use crate::kv::{Index, IndexState, KvError, Layer};

/// Clears the index and fills it from the snapshot, about `batch_bytes` at a time. Each block is
/// read from a copy in which it is valid.
///
/// # Errors
/// `Corrupt` when a block is valid in no copy.
pub(in crate::journal) fn load(
    volume: &VolumeId,
    index: &dyn Index,
    batch_bytes: usize,
    group: &mut Group,
) -> Result<(), KvError> {
    index.clear()?;
    let (epoch, last) = (group.epoch, group.number);
    let accept = |frame: &Frame| {
        matches!(frame.kind, RecordKind::Block | RecordKind::End) && frame.epoch == epoch && frame.commit_index == last
    };
    let damaged = || KvError::Corrupt(format!("the snapshot of transaction {last} is damaged on all targets"));
    let (mut layer, mut pairs, mut blocks, mut complete) = (Layer::default(), 0, 0, false);
    walk(&mut group.copies, (volume, epoch.id, group.head), accept, |frame, mut payload| {
        if frame.number != blocks {
            return Ok(false);
        }
        if frame.kind == RecordKind::End {
            complete = payload.len() == 16 && u64_at(payload, 0) == pairs;
            return Ok(false);
        }
        blocks += 1;
        while !payload.is_empty() {
            let (key, value) = take_pair(&mut payload).ok_or_else(damaged)?;
            layer.insert(key, Some(value));
            pairs += 1;
        }
        if layer.bytes() > batch_bytes {
            // Set no owner yet: a half-filled index must not be taken for a complete one.
            index.apply(&mut std::mem::take(&mut layer).iter(), IndexState::default(), false)?;
        }
        Ok(true)
    })?;
    index.apply(&mut layer.iter(), IndexState::default(), false)?;
    if complete { Ok(()) } else { Err(damaged()) }
}
