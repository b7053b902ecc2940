//! A metadata server that has the volume, and carries out requests.

use super::stored::{SUM, number};
use crate::broken::Broken;
use meta::journal::{Journaled, Standing};
use meta::kv::{Batch, Kv, KvError};
use plan::TxId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::thread::sleep;
use std::time::Duration;
use volume::lock;
use world::{Dice, Process};

/// A server that has the volume, or believes so.
pub struct Server {
    pub machine: usize,
    pub process: Process,
    pub epoch: u64,
    kv: Journaled,
    /// Requests are carried out one after the other, and become durable together.
    order: Mutex<()>,
    /// It is to give the volume away.
    pub leaves: AtomicBool,
    broken: Broken,
}

/// What a client asks.
#[derive(Clone, Copy, Debug)]
pub enum Ask {
    /// Carries out the request with this number, once.
    Change(u64),
    /// The number of all that were carried out.
    Read,
}

impl Server {
    /// A server on a machine, in a process, that has opened the volume.
    pub fn new(machine: usize, process: Process, kv: Journaled, broken: Broken) -> Self {
        let (epoch, order) = (kv.epoch().number, Mutex::default());
        Self { machine, process, epoch, kv, order, leaves: AtomicBool::new(false), broken }
    }

    /// Carries out what a client asks. Returns the position of a request in the history, or the
    /// number of requests.
    pub fn carry_out(&self, ask: Ask) -> Result<u64, KvError> {
        match ask {
            Ask::Change(request) => self.change(request),
            Ask::Read => Ok(self.kv.get(SUM)?.as_deref().map_or(0, number)),
        }
    }

    fn change(&self, request: u64) -> Result<u64, KvError> {
        // This waits for a late renewal, and no other request is to wait behind it.
        self.kv.check_fresh()?;
        let (position, seq) = {
            let _order = lock(&self.order);
            let stored = self.kv.get(&request.to_be_bytes())?.filter(|_| self.broken != Broken::Once);
            if let Some(stored) = stored {
                // What was found need not be durable yet.
                (number(&stored), TxId::MAX)
            } else {
                let position = self.kv.get(SUM)?.as_deref().map_or(0, number) + 1;
                let mut batch = Batch::default();
                batch.put(request.to_be_bytes(), position.to_le_bytes().to_vec());
                batch.merge(SUM, 1u64.to_le_bytes());
                (position, self.kv.commit(batch)?.seq)
            }
        };
        if self.broken != Broken::Sync {
            self.kv.sync(seq)?;
        }
        Ok(position)
    }

    /// Whether it knows that it has ended.
    pub fn is_over(&self) -> bool {
        self.kv.standing() == Standing::Fenced
    }

    /// Closes the volume.
    pub fn close(&self) -> Result<(), KvError> {
        self.kv.close()
    }
}

/// Compares what an opening has found with what clients were told before.
///
/// # Errors
/// When it cannot be read any more.
pub fn check(kv: &Journaled, told: &BTreeMap<u64, u64>) -> Result<(), KvError> {
    let (mut requests, mut sum) = (Vec::new(), 0);
    kv.snapshot(&mut |key, value| {
        match key.try_into() {
            Ok(request) => requests.push((u64::from_be_bytes(request), number(value))),
            Err(_) => sum = number(value),
        }
        Ok(true)
    })?;
    kv.check_fresh()?;
    let positions: BTreeSet<u64> = requests.iter().map(|(_, position)| *position).collect();
    if positions.len() != requests.len() || !positions.iter().copied().eq(1..=sum) {
        world::fail(&format!("doubled, or not whole: {} requests, {sum} carried out: {requests:?}", requests.len()));
    }
    let found: BTreeMap<u64, u64> = requests.into_iter().collect();
    let lost: Vec<_> = told.iter().filter(|(request, position)| found.get(request) != Some(position)).collect();
    if !lost.is_empty() {
        world::fail(&format!("lost: of {} requests that clients know of, these are missing: {lost:?}", told.len()));
    }
    Ok(())
}

/// A wait of a random length.
pub fn pause(milliseconds: std::ops::Range<u64>) {
    sleep(Duration::from_millis(world::roll(|dice: &mut Dice| dice.within(milliseconds))));
}
