//! Cleans up after a crash, or after a client that is gone: files without names, and stripes that
//! no transaction names.

use crate::{FileSystem, Result};

impl FileSystem {
    /// Removes what a crash left: open files without a name, and stripes that no transaction names.
    pub(crate) fn clean_up(&self) -> Result<()> {
        for ino in self.engine()?.meta.orphans()? {
            self.leases.set_aside(ino);
        }
        self.let_go_after_grace();
        let mut from = 0;
        loop {
            let sets = self.engine()?.meta.sets(from, 256)?;
            let Some((last, _)) = sets.last() else { return Ok(()) };
            from = last + 1;
            for (set, record) in sets {
                let stripes = self.engine()?.meta.stripes(set)?;
                let end = stripes.last().map_or(0, |(record, stripe)| volume::record_range(*record, stripe.block).end);
                let dead = stripes.into_iter().filter(|(_, stripe)| stripe.live == 0);
                let dead = dead.map(|(record, stripe)| meta::DeadStripe { set, record, block: stripe.block });
                self.collector.add(dead.collect(), 0);
                if self.leases.is_held(set) {
                    continue;
                }
                if !record.sealed {
                    self.engine()?.meta.seal_set(set, end as u32)?;
                    self.punch_orphans(set)?;
                }
                self.delete_if_empty(set)?;
            }
        }
    }

    /// Gives up a set whose writer is gone: seals it, and has the collector free what no
    /// transaction names of it.
    pub(crate) fn abandon_set(&self, set: u64) -> Result<()> {
        let engine = self.engine()?;
        if !engine.meta.set(set)?.sealed {
            let last = engine.meta.stripes(set)?.pop();
            let end = last.map_or(0, |(record, stripe)| volume::record_range(record, stripe.block).end);
            engine.meta.seal_set(set, end as u32)?;
        }
        self.collector.abandon(set);
        Ok(())
    }

    /// Frees what no transaction names of an abandoned set. Waits for targets.
    pub(crate) fn give_back_abandoned(&self, set: u64) -> Result<()> {
        if !self.delete_if_empty(set)? {
            self.punch_orphans(set)?;
            self.compactor.suspect(set);
        }
        Ok(())
    }

    /// Punches what no transaction names out of a set that was open when the volume was not closed
    /// properly.
    fn punch_orphans(&self, set: u64) -> Result<()> {
        let layout = self.store.layout(set)?;
        let mut gaps = Vec::new();
        let mut at = volume::format::CHUNK_HEADER_BYTES as u64;
        for (record, stripe) in self.engine()?.meta.stripes(set)? {
            let range = volume::record_range(record, stripe.block);
            if at < range.start {
                gaps.push(at..range.start);
            }
            at = range.end;
        }
        gaps.push(at..u64::from(self.volume.label().chunk_bytes).max(at + 1));
        self.punch_ranges(&layout, gaps);
        Ok(())
    }

    /// Frees everything that can be freed, before the volume is closed. For a client, the server
    /// does that.
    pub(crate) fn give_back_all(&self) -> Result<()> {
        if self.is_shared() {
            return Ok(());
        }
        self.collect(true)?;
        self.collect(true)?;
        self.remove_orphan_chunks(false).map(drop)
    }
}
