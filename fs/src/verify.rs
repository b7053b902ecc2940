//! Verifying: every block against its checksum, every stripe's parity against its data.

use crate::{Error, FileSystem, Result};
use std::collections::BTreeSet;
use volume::{BlockState, Control};

/// What a verification found.
#[derive(Clone, Debug, Default)]
pub struct Verified {
    /// Stripes that were read.
    pub stripes: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// What is wrong.
    pub problems: Vec<Problem>,
    /// More that is wrong than is listed.
    pub unlisted: u64,
    /// Stripes of which too little is left.
    pub lost: u64,
}

/// Something wrong with a block or a stripe.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The chunk set.
    pub set: u64,
    /// Where the stripe's record begins.
    pub record: u32,
    /// The position of the block; None when it is the whole stripe.
    pub position: Option<usize>,
    /// What is wrong with it.
    pub what: String,
}

/// No more are listed.
const LISTED: usize = 1000;

impl Verified {
    fn add(&mut self, problem: Problem) {
        if self.problems.len() < LISTED {
            self.problems.push(problem);
        } else {
            self.unlisted += 1;
        }
    }

    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }
}

impl FileSystem {
    /// Reads and checks every block that a file refers to. What is wrong is queued for repair.
    ///
    /// # Errors
    /// When it was cancelled or the metadata cannot be read; damage is no error but a result.
    pub fn verify(&self, control: &Control) -> Result<Verified> {
        if !self.is_read_only() {
            self.sync_all()?;
        }
        let mut total = 0;
        self.each_set(|set, record| {
            let stripes = self.engine()?.meta.stripes(set)?;
            total += stripes.iter().map(|(_, s)| u64::from(s.block)).sum::<u64>() * record.places.len() as u64;
            Ok(())
        })?;
        control.start(total);
        let mut found = Verified::default();
        self.each_set(|set, record| {
            let damaged = self.verify_set(set, record.places.len(), &mut found, control)?;
            if !damaged.is_empty() && !self.is_read_only() {
                self.meta.queue_repair(set, &damaged.into_iter().collect::<Vec<u16>>())?;
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Checks the stripes of a set; returns the positions with damage.
    pub(crate) fn verify_set(
        &self,
        set: u64,
        blocks: usize,
        found: &mut Verified,
        control: &Control,
    ) -> Result<BTreeSet<u16>> {
        let mut damaged = BTreeSet::new();
        let layout = match self.store.layout(set) {
            // The collector deleted it meanwhile.
            Err(Error::Meta(meta::Error::NotFound)) => return Ok(damaged),
            layout => layout?,
        };
        for (record, stripe) in self.engine()?.meta.stripes(set)? {
            control.go_on()?;
            let report = volume::verify_stripe(&self.store.targets, &layout, record, stripe.block);
            // What was given up while it was looked at is no damage.
            let engine = self.engine()?;
            let still_there = || engine.meta.stripe(set, record).is_ok_and(|s| s.is_some_and(|s| s.live > 0));
            let sound =
                report.blocks.iter().all(|state| *state == BlockState::Sound) && report.parity_fits != Some(false);
            if !sound && still_there() {
                for (position, state) in report.blocks.iter().enumerate() {
                    if *state != BlockState::Sound {
                        damaged.insert(position as u16);
                        found.add(Problem { set, record, position: Some(position), what: state.to_string() });
                    }
                }
                if report.parity_fits == Some(false) {
                    found.add(Problem { set, record, position: None, what: "the parity does not fit the data".into() });
                }
                if !report.recoverable {
                    found.lost += 1;
                    found.add(Problem { set, record, position: None, what: "too little is left of the stripe".into() });
                }
            }
            let bytes = u64::from(stripe.block) * blocks as u64;
            found.stripes += 1;
            found.bytes += bytes;
            control.count(bytes as usize);
        }
        Ok(damaged)
    }
}
