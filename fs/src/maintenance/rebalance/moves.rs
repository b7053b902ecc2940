//! Moves the chunks of a set.

use crate::{FileSystem, Result};
use meta::SetRecord;
use plan::placement::rebalance::Move;
use plan::{Position, RecordOffset, SetId, TargetId};
use std::collections::BTreeMap;
use volume::format::CHUNK_HEADER_BYTES;
use volume::{Control, RebuildReport};

impl FileSystem {
    /// Whether the chunks of a set may move: it is sealed and not empty, nothing writes to it, and
    /// it lacks nothing.
    pub(super) fn may_move(&self, set: SetId, record: &SetRecord) -> bool {
        let targets = &self.store.targets;
        let is_there = |id| targets.get(id).is_some() && targets.error(id).is_none() && !targets.hangs(id);
        let whole = record.places.iter().all(|place| place.is_some_and(is_there));
        let has_data = u64::from(record.length) > CHUNK_HEADER_BYTES as u64;
        record.sealed && has_data && whole && !self.is_busy(set)
    }

    /// Moves chunks of a set, as far as the set is still as it was when that was planned. Returns
    /// what was copied; None if nothing was moved.
    pub(super) fn move_chunks(&self, moves: &[Move], control: &Control) -> Result<Option<RebuildReport>> {
        let Some(set) = moves.first().map(|made| made.set) else { return Ok(None) };
        // The last place of each chunk, should it move twice.
        let last: BTreeMap<Position, TargetId> = moves.iter().map(|made| (made.position, made.to)).collect();
        let wanted: Vec<(Position, TargetId)> = last.into_iter().collect();
        let meta = &self.engine()?.meta;
        if meta.stripes(set)?.is_empty() {
            // The collector deletes it.
            return Ok(None);
        }
        let _claim = self.store.claims.take(set);
        let record = match meta.set(set) {
            Err(meta::Error::NotFound) => return Ok(None),
            record => record?,
        };
        // Where a chunk of the set is, another one may go only if that leaves with it.
        let leaves = |position: Position| wanted.iter().any(|(moving, _)| *moving == position);
        let is_free = |to| Position::placed(&record.places).all(|(position, at)| at != to || leaves(position));
        let is_new = |&(_, to): &(Position, TargetId)| {
            is_free(to) && self.store.targets.is_usable(to) && !self.store.is_closed(to)
        };
        let froms = moves.iter().filter(|made| moves.iter().find(|it| it.position == made.position) == Some(*made));
        let is_there = froms.clone().all(|made| record.places[made.position.index()] == Some(made.from));
        if !self.may_move(set, &record) || !is_there || !wanted.iter().all(is_new) {
            return Ok(None);
        }
        let mut stripes: BTreeMap<RecordOffset, u32> = self.table.uncommitted_in(set);
        stripes.extend(meta.stripes(set)?.iter().map(|(record, stripe)| (*record, stripe.block)));
        let stripes: Vec<(RecordOffset, u32)> = stripes.into_iter().collect();
        let layout = self.store.layout_of(set, &record)?;
        let report = volume::rebuild(&self.store.targets, &layout, &stripes, &wanted, control)?;
        let old: Vec<(Position, TargetId)> = froms.map(|made| (made.position, made.from)).collect();
        meta.sync(meta.repaired(set, &wanted)?)?;
        self.store.forget_layout(set);
        if wanted.iter().any(|&(_, to)| self.store.is_closed(to)) {
            // It is being emptied since, and was perhaps found empty before this: the chunks are
            // still where they were.
            meta.sync(meta.repaired(set, &old)?)?;
            self.store.forget_layout(set);
            self.remove_chunks(set, wanted);
            return Ok(None);
        }
        self.remove_chunks(set, old);
        Ok(Some(report))
    }
}
