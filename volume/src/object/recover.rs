//! Gets the blocks of a stripe: stored blocks are read and verified, missing ones are rebuilt from
//! others.

use super::find::Object;
use super::problems::Problem;
use super::rows::Rows;
use crate::format::Layout;
use crate::{Error, Result, Shown};
use ec::{Repair, Unrecoverable};
use std::sync::Arc;

/// How a block of the present stripe stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not looked at yet.
    Unread,
    /// Its row has it, as it was stored.
    Good,
    /// Its row has it, made from others.
    Made,
    /// No file has it.
    Bad,
}

/// Reads stripes of an object, one after the other, into the same rows: first the stored blocks,
/// behind them, for a code that does not store the data as it is, the data blocks.
pub(super) struct StripeReader<'a> {
    object: &'a Object,
    rows: Rows,
    states: Vec<State>,
    stripe: u64,
    block_bytes: usize,
    reports: bool,
}

impl<'a> StripeReader<'a> {
    /// With `reports`, what is wrong with blocks is added to the object's problems: to be said once
    /// for each stripe.
    pub fn new(object: &'a Object, reports: bool) -> Result<Self> {
        let layout = object.header.layout;
        let extra = if object.code.systematic() { 0 } else { layout.k() };
        let header_bytes = layout.record_header_bytes(layout.block_bytes(0));
        let rows = Rows::new(layout.blocks() + extra, header_bytes, layout.block_bytes(0))?;
        Ok(Self { object, rows, states: vec![State::Bad; layout.blocks()], stripe: 0, block_bytes: 0, reports })
    }

    fn layout(&self) -> &'a Layout {
        &self.object.header.layout
    }

    /// Goes to another stripe.
    pub fn begin(&mut self, stripe: u64) {
        self.stripe = stripe;
        self.block_bytes = self.layout().block_bytes(stripe);
        for (state, files) in self.states.iter_mut().zip(&self.object.fragments) {
            *state = if files.is_empty() { State::Bad } else { State::Unread };
        }
    }

    /// Whether the block is there as it was stored; the first time, it is read.
    pub fn read(&mut self, position: usize) -> bool {
        if self.states[position] == State::Unread {
            self.states[position] = State::Bad;
            let object = self.object;
            for fragment in &object.fragments[position] {
                let (id, layout, stripe) = (object.header.object, &object.header.layout, self.stripe);
                let record = self.record_mut(position);
                match fragment.read_block(object.target_of(fragment), id, layout, stripe, record) {
                    Ok(()) => {
                        self.states[position] = State::Good;
                        break;
                    }
                    Err(problem) if self.reports => self.object.problems.add(problem),
                    Err(_) => {}
                }
            }
        }
        self.states[position] == State::Good
    }

    /// Reads everything; answers the positions whose block is not there.
    pub fn read_all(&mut self) -> Vec<usize> {
        (0..self.states.len()).filter(|&position| !self.read(position)).collect()
    }

    /// The positions that are good as far as was looked.
    fn usable(&self) -> Vec<usize> {
        (0..self.states.len()).filter(|&p| matches!(self.states[p], State::Unread | State::Good)).collect()
    }

    /// Runs the repair that `plan` finds in what is usable, with another plan when a block it wants
    /// turns out bad.
    fn run(
        &mut self,
        rows_made: &[usize],
        plan: impl Fn(&[usize]) -> std::result::Result<Arc<Repair>, Unrecoverable>,
    ) -> Result<Arc<Repair>> {
        loop {
            let repair = plan(&self.usable()).map_err(|why| self.too_degraded(why))?;
            if repair.reads().iter().all(|read| self.read(read.block)) {
                let reads = repair.reads().iter().map(|read| read.block);
                let (read, mut made) = self.rows.split(self.block_bytes, reads, rows_made.iter().copied());
                repair.run(&read, &mut made);
                return Ok(repair);
            }
        }
    }

    fn too_degraded(&self, why: Unrecoverable) -> Error {
        let stripe = self.object.header.layout.stripes() > 1;
        let stripe = if stripe { format!(", stripe {}", self.stripe) } else { String::new() };
        Error::TooDegraded { what: format!("{}{stripe}", Shown(self.object.name())), why }
    }

    /// Makes the stored blocks of these positions, which are bad, in their rows, and answers how.
    pub fn make(&mut self, lost: &[usize]) -> Result<Arc<Repair>> {
        let code = &self.object.code;
        let repair = self.run(lost, |have| code.repair(lost, have))?;
        lost.iter().for_each(|&position| self.states[position] = State::Made);
        Ok(repair)
    }

    /// Gets all data blocks into rows, from as few stored blocks as possible.
    pub fn data(&mut self) -> Result<()> {
        let (object, k) = (self.object, self.layout().k());
        if object.code.systematic() {
            loop {
                let lost: Vec<usize> = (0..k).filter(|&p| !self.read(p) && self.states[p] != State::Made).collect();
                if lost.is_empty() {
                    return Ok(());
                }
                self.make(&lost)?;
            }
        }
        let n = self.layout().blocks();
        let wanted: Vec<usize> = (0..k).collect();
        self.run(&(n..n + k).collect::<Vec<_>>(), |have| object.code.read(&wanted, have)).map(|_| ())
    }

    /// The row of a stored block.
    pub fn block(&self, position: usize) -> &[u8] {
        self.rows.row(position, self.block_bytes)
    }

    /// The row of a stored block, behind space for its record header.
    pub fn record_mut(&mut self, position: usize) -> &mut [u8] {
        let header_bytes = self.layout().record_header_bytes(self.block_bytes);
        self.rows.record_mut(position, header_bytes, self.block_bytes)
    }

    /// The user data of the stripe, piece by piece, after `data`.
    pub fn data_pieces(&self) -> Vec<&[u8]> {
        let mut left = self.layout().data_bytes(self.stripe);
        let first = if self.object.code.systematic() { 0 } else { self.layout().blocks() };
        let piece = |row| {
            let length = self.block_bytes.min(left);
            left -= length;
            self.rows.row(first + row, length)
        };
        (0..self.layout().k()).map(piece).collect()
    }

    /// All k data blocks, with the zeroes behind the data, after `data`.
    pub fn data_blocks(&self) -> Vec<&[u8]> {
        let first = if self.object.code.systematic() { 0 } else { self.layout().blocks() };
        (first..first + self.layout().k()).map(|row| self.rows.row(row, self.block_bytes)).collect()
    }

    /// Where the record of a block of this stripe begins in its file.
    pub fn record_offset(&self) -> u64 {
        self.layout().record_offset(self.stripe)
    }

    /// Adds a problem of this stripe.
    pub fn report(&self, problem: Problem) {
        self.object.problems.add(problem.at(self.stripe, self.record_offset()));
    }

    /// How a stored block follows from made ones, so that comparing it proves them.
    fn plan_of_witness(&self, witness: usize, used: &[usize], made: &[usize]) -> Option<Arc<Repair>> {
        let plan = |mut have: Vec<usize>| {
            have.sort_unstable();
            let plan = self.object.code.repair(&[witness], &have).ok()?;
            let proves = made.iter().all(|position| plan.reads().iter().any(|read| read.block == *position));
            proves.then_some(plan)
        };
        // The made blocks stand in for as many of their sources as the code allows. A local repair
        // has too few sources to say anything of other groups; then everything else that is there
        // may help.
        let others: Vec<usize> = self.usable().into_iter().filter(|p| *p != witness && !used.contains(p)).collect();
        let sources = |all: &[usize]| {
            (0..=used.len().min(made.len())).rev().find_map(|stood_in| plan([all, &used[stood_in..], made].concat()))
        };
        sources(&[]).or_else(|| sources(&others))
    }

    /// Checks that a made block and the blocks it was made from agree with a stored block that was
    /// not used; `None` when no such block is left.
    pub fn agrees_with_a_survivor(&mut self, made: &[usize], by: &Repair) -> Option<bool> {
        let used: Vec<usize> = by.reads().iter().map(|read| read.block).collect();
        let witnesses: Vec<usize> = self.usable().into_iter().filter(|p| !used.contains(p)).collect();
        let (witness, plan) = witnesses.into_iter().find_map(|witness| {
            let plan = self.plan_of_witness(witness, &used, made)?;
            (self.read(witness) && plan.reads().iter().all(|r| made.contains(&r.block) || self.read(r.block)))
                .then_some((witness, plan))
        })?;
        let reads: Vec<&[u8]> = plan.reads().iter().map(|read| self.block(read.block)).collect();
        let mut expected = vec![0; self.block_bytes];
        plan.run(&reads, &mut [&mut expected]);
        Some(expected == self.block(witness))
    }
}
