//! Cleans up after a crash, or after a client that is gone: files without names, and stripes that
//! no transaction names.

use crate::{FileSystem, Result};
use plan::{SetId, TxId};

impl FileSystem {
    /// Passes removed files that no client keeps to the collector.
    pub(crate) fn let_go_after_grace(&self) {
        self.leases.take_settled().into_iter().for_each(|ino| self.collector.add_orphan(ino));
    }

    /// Removes what a crash left: open files without a name, and stripes that no transaction names.
    pub(crate) fn clean_up(&self) -> Result<()> {
        for ino in self.engine()?.meta.orphans()? {
            self.leases.set_aside(ino);
        }
        self.let_go_after_grace();
        let (mut from, mut open) = (SetId::default(), Vec::new());
        loop {
            let sets = self.engine()?.meta.sets(from, 256)?;
            let Some((last, _)) = sets.last() else { break };
            from = last.next();
            for (set, record) in sets {
                let stripes = self.engine()?.meta.stripes(set)?;
                let dead = stripes.into_iter().filter(|(_, stripe)| stripe.live == 0);
                let dead = dead.map(|(record, stripe)| meta::DeadStripe { set, record, block: stripe.block });
                self.collector.add(dead.collect(), TxId(0));
                match record.sealed {
                    true if self.leases.is_held(set) => {}
                    true => _ = self.delete_if_empty(set)?,
                    false => open.push(set),
                }
            }
        }
        // Others work meanwhile, compaction, too. Each of these sets that this process writes to
        // has its writer from here on, and one without a writer never gets one.
        self.store.wait_for_begun();
        open.into_iter().try_for_each(|set| self.give_up_without_writer(set))
    }

    /// Gives up a set that was open at a crash, if neither a client nor this process writes to it.
    fn give_up_without_writer(&self, set: SetId) -> Result<()> {
        let is_written = self.leases.is_held(set) || self.store.has_writer(set);
        if is_written || !self.table.uncommitted_in(set).is_empty() {
            return Ok(());
        }
        match self.engine()?.meta.set(set) {
            Ok(record) if record.sealed => return Ok(()),
            Err(meta::Error::NotFound) => return Ok(()),
            found => found?,
        };
        self.engine()?.meta.seal_set(set, self.end_of(set)?)?;
        self.punch_orphans(set)?;
        self.delete_if_empty(set).map(drop)
    }

    /// Where the last stripe of a set that a transaction names ends, in bytes.
    fn end_of(&self, set: SetId) -> Result<u32> {
        let last = self.engine()?.meta.stripes(set)?.pop();
        Ok(last.map_or(0, |(record, stripe)| volume::record_range(record, stripe.block).end) as u32)
    }

    /// Gives up a set whose writer is gone: seals it, and has the collector free what no
    /// transaction names of it.
    pub(crate) fn abandon_set(&self, set: SetId) -> Result<()> {
        let engine = self.engine()?;
        let record = engine.meta.set(set)?;
        if !record.sealed {
            if engine.meta.stripes(set)?.is_empty() {
                self.store.balance.given_back(&record.places.iter().flatten().copied().collect::<Vec<_>>());
            }
            engine.meta.seal_set(set, self.end_of(set)?)?;
        }
        self.collector.abandon(set);
        Ok(())
    }

    /// Frees what no transaction names of an abandoned set. Waits for targets.
    pub(crate) fn give_back_abandoned(&self, set: SetId) -> Result<()> {
        if !self.delete_if_empty(set)? {
            self.punch_orphans(set)?;
            self.compactor.suspect(set);
        }
        Ok(())
    }

    /// Punches what no transaction names out of a set that was open when the volume was not closed
    /// properly.
    fn punch_orphans(&self, set: SetId) -> Result<()> {
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
        // Nobody waits for it.
        let _ = volume::Sealing::of_set(&self.store.targets, &layout);
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

#[cfg(test)]
mod tests {
    use crate::testing::{Lab, Way, make};
    use plan::SetId;
    use session::port::{Entry, Remote, Session, VERSION};
    use std::time::Duration;

    /// It may have got a name after the collector heard of it.
    #[test]
    fn who_opens_a_file_that_is_about_to_be_deleted_waits() {
        let lab = Lab::new("rs:2+1", 3);
        let server = lab.serve(Duration::from_secs(600));
        let ino = make(server.volume(), "file");
        let entry = Entry { name: "client".into(), ..Entry::default() };
        let entered = Remote(Way(server.clone(), None)).enter(VERSION, &entry).unwrap();
        let client = Remote(Way(server.clone(), Some(entered.welcome.session)));
        std::thread::scope(|scope| {
            let opener = server.volume().leases.delete(vec![ino], |inos| {
                assert_eq!(inos, [ino]);
                let opener = scope.spawn(|| client.open(ino, 0));
                std::thread::sleep(Duration::from_millis(50));
                assert!(!opener.is_finished() && !server.has_open(ino));
                opener
            });
            opener.join().unwrap().unwrap();
        });
        server.volume().leases.delete(vec![ino], |inos| assert!(inos.is_empty()));
    }

    /// The grace period may end while this process writes, as compaction does.
    #[test]
    fn what_this_process_writes_is_not_cleaned_up() {
        let lab = Lab::new("rs:2+1", 3);
        let fs = lab.open();
        let written = |name: &str, byte: u8| {
            let ino = make(&fs, name);
            fs.write(ino, 0, &[byte; 100_000]).unwrap();
            fs.sync_all().unwrap();
            fs.clean_up().unwrap();
            (ino, byte)
        };
        let files = [("one", 7), ("other", 8)].map(|(name, byte)| written(name, byte));
        let sets = fs.engine().unwrap().meta.sets(SetId(0), 10).unwrap();
        assert!(matches!(&*sets, [(_, set)] if !set.sealed), "both are in one set: {sets:?}");
        for (ino, byte) in files {
            let mut found = vec![0; 100_000];
            assert_eq!(fs.read(ino, 0, &mut found).unwrap(), found.len());
            assert!(found.iter().all(|other| *other == byte));
        }
        fs.close_volume().unwrap();
    }
}
