//! The store's half: codes stripes of clients and sends their blocks on, within limits that hold the clients back. It decides nothing: what it is told to write is
//! what the client would have written.

use super::peers::{For, Meeting, Peers, bad, lock};
use super::{BUSY, Done, ROOM_COMES, Stripe};
use crate::store::protocol::{encode, encode_error};
use ec::Code;
use plan::TargetId;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use volume::format::{Timestamp, VolumeId};
use volume::target::Target;
use volume::{BufferPool, Error, Order, SetLayout, Step, StepTotals};
use wire::{Reply, Request};

/// Stripes that are being coded and sent on, in KiB of their data.
const ROOM: usize = 32 << 10;
/// Stripes that wait for that. Those behind them are refused, and coded by their clients. Less than what the server reads of all requests, so that there is room
/// for the blocks of other Masters: otherwise two of them could wait for each other.
const WAITING: usize = 32 << 10;
/// The shortest stripe counts for so many KiB: each has a thread.
const LEAST: usize = ROOM / 64;
/// Codes that are kept ready.
const CODES: usize = 16;
/// Buffers that are kept for the stripes of a code.
const BUFFERS: usize = 8;

/// A code with buffers for its stripes.
type Ready = (Arc<dyn Code>, Arc<BufferPool>);

/// What makes a store a Master.
pub(in crate::store) struct Masters {
    clients: Meeting,
    /// For whoever repairs.
    pub(super) servers: Meeting,
    codes: Mutex<HashMap<String, Ready>>,
    room: Arc<Semaphore>,
    waiting: Semaphore,
    pub(super) rebuilds: Arc<Semaphore>,
}

/// An order that has everything it takes.
struct Task {
    peers: Arc<Peers>,
    ready: Ready,
    places: Vec<Option<TargetId>>,
    request: Request,
    begun: Instant,
    _room: OwnedSemaphorePermit,
}

impl Default for Masters {
    fn default() -> Self {
        Self {
            clients: Meeting::new(For::Client),
            servers: Meeting::new(For::Server),
            codes: Mutex::default(),
            room: Arc::new(Semaphore::new(ROOM)),
            waiting: Semaphore::new(WAITING),
            rebuilds: Arc::new(Semaphore::new(super::rebuilding::ROOM)),
        }
    }
}

/// What a client wants a Master to do: the token that it shows, the volume, and the set.
///
/// # Errors
/// When it cannot be read.
pub(in crate::store) fn asked(body: &[u8]) -> io::Result<(&[u8], [u8; 16], u64)> {
    let stripe = read(body)?;
    Ok((stripe.token, stripe.volume, stripe.set))
}

fn read(body: &[u8]) -> io::Result<Stripe<'_>> {
    postcard::from_bytes(body).map_err(|_| bad("a stripe that cannot be read"))
}

impl Masters {
    /// Answers a client that wants a stripe coded and written. `local` finds a target of this store.
    pub async fn answer(
        &self,
        request: Request,
        local: impl Fn(&str) -> Option<Arc<dyn Target>> + Send,
    ) -> io::Result<Reply> {
        let begun = Instant::now();
        let kib = (request.payload.len().div_ceil(1024).clamp(LEAST, ROOM)) as u32;
        let Ok(waiting) = self.waiting.try_acquire_many(kib) else { return Ok(Reply::error(BUSY, Vec::new())) };
        let Ok(room) = timeout(ROOM_COMES, self.room.clone().acquire_many_owned(kib)).await else {
            return Ok(Reply::error(BUSY, Vec::new()));
        };
        drop(waiting);
        let room = room.map_err(io::Error::other)?;
        let peers = self.clients.peers();
        let stripe = read(&request.body)?;
        let places = peers.numbers(stripe.volume, &stripe.places, stripe.server, local)?;
        let ready = self.ready(stripe.code)?;
        // It goes on when the client does not wait any more: half a stripe is of no use.
        let task = Task { peers, ready, places, request, begun, _room: room };
        let done = tokio::task::spawn_blocking(move || task.run()).await.map_err(io::Error::other)??;
        Ok(Reply::ok(encode(&done)))
    }

    /// Where the time of the stripes goes.
    pub fn steps(&self) -> StepTotals {
        self.clients.peers().targets.steps().totals()
    }

    fn ready(&self, spec: &str) -> io::Result<Ready> {
        if let Some(ready) = lock(&self.codes).get(spec) {
            return Ok(ready.clone());
        }
        let code = ec::parse(spec).map_err(|why| bad(why.to_string()))?;
        let stripe = fs::full_stripe_bytes(code.shape().k);
        let ready: Ready = (code.clone(), Arc::new(BufferPool::new(&*code, stripe, BUFFERS)));
        let mut codes = lock(&self.codes);
        if codes.len() >= CODES {
            codes.clear();
        }
        codes.insert(spec.into(), ready.clone());
        Ok(ready)
    }
}

impl Task {
    fn run(self) -> io::Result<Done> {
        let (stripe, (code, pool), targets) = (read(&self.request.body)?, &self.ready, &self.peers.targets);
        // One that still has not answered something else would only be waited for.
        let answers = |id: &Option<TargetId>| id.filter(|&id| !targets.hangs(id));
        let layout = SetLayout {
            volume: VolumeId(stripe.volume),
            set: stripe.set,
            code: code.clone(),
            places: self.places.iter().map(answers).collect(),
        };
        let order = Order {
            layout: &layout,
            created: Timestamp { seconds: stripe.created.0, nanoseconds: stripe.created.1 },
            record: stripe.record,
            sequence: stripe.sequence,
            data: &self.request.payload,
            manifest_bytes: stripe.manifest_bytes as usize,
            checksum: stripe.checksum,
            spare: usize::from(stripe.spare),
        };
        let (missing, mut cost) = order.carry_out(targets, pool).map_err(|error| match error {
            Error::Invalid(what) => bad(what),
            other => io::Error::other(other.to_string()),
        })?;
        let beside = self.begun.elapsed().saturating_sub(cost.total());
        cost.master += beside;
        targets.steps().extend(Step::Master, beside);
        let steps = [cost.master, cost.parity, cost.distribution, cost.slave];
        let mut done = Done { failed: Vec::new(), cost: steps.map(|step| step.as_nanos() as u64) };
        for (position, &wanted) in self.places.iter().enumerate() {
            let Some(id) = wanted else { continue };
            if layout.places[position].is_none() || missing.contains(&position) {
                done.failed.push((position as u16, encode_error(&self.peers.why(id))));
            } else if targets.error(id).is_some() {
                targets.forgive(id);
            }
        }
        Ok(done)
    }
}
