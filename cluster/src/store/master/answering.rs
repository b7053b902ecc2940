//! The store's side: a Master codes stripes for clients and sends their blocks to other stores. Its
//! limits hold the clients back. It decides nothing: it writes what the client would have written.

use super::peers::{For, Meeting, Peers, bad};
use super::{BUSY, Boots, Done, SPACE_TIMEOUT, Stripe, encode_done};
use crate::capability::Token;
use crate::store::protocol::encode_error;
use ec::Code;
use plan::{Position, SetId, TargetId};
use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use volume::format::{Timestamp, VolumeId};
use volume::lock;
use volume::target::Target;
use volume::{BufferPool, Error, Order, SetLayout, StepTotals, WriteStep};
use wire::{Reply, Request};

/// Limit for the stripes that are being coded and sent, in KiB of all their blocks. A stripe beyond
/// this size runs alone.
const MAX_CODED_KIB: usize = 48 << 10;
/// Limit for the stripes that wait for that space, in KiB of their data. The Master refuses stripes
/// beyond it, and their clients code them. Waiting and coded stripes together take less memory than
/// the server's limit for all requests, so that space remains for the blocks of other Masters.
/// Otherwise two Masters could wait for each other.
const MAX_WAITING_KIB: usize = 32 << 10;
/// Limit for the stripes that are rebuilt at a time, in KiB of all their blocks. Clients' stripes
/// have a limit of their own.
pub(super) const MAX_REBUILT_KIB: usize = 16 << 10;
/// Maximum number of stripes that are coded or wait at a time, however short they are: each has a
/// thread.
const MAX_STRIPES: usize = 64;
/// Maximum number of codes kept ready.
const CODES: usize = 16;
/// Number of buffers kept for the stripes of a code.
const BUFFERS: usize = 8;

/// A code, and buffers for its stripes.
type Ready = (Arc<dyn Code>, Arc<BufferPool>);

/// The state of a store as Master.
pub(in crate::store) struct Masters {
    clients: Meeting,
    /// Peers for repairs by servers.
    pub(super) servers: Meeting,
    codes: Mutex<HashMap<String, Ready>>,
    space: Arc<Semaphore>,
    waiting: Semaphore,
    pub(super) rebuilds: Arc<Semaphore>,
    /// Stripes that were coded for clients, and their bytes.
    coded: [AtomicU64; 2],
}

/// An order that has all its resources.
struct Task {
    peers: Arc<Peers>,
    ready: Ready,
    places: Vec<Option<TargetId>>,
    request: Request,
    begun: Instant,
    /// The boot number of this machine.
    own_boot: u64,
    /// While this exists, the Master shows other stores tokens for this order.
    _order: Option<crate::capability::Order>,
    _space: OwnedSemaphorePermit,
}

impl Default for Masters {
    fn default() -> Self {
        Self {
            clients: Meeting::new(For::Client),
            servers: Meeting::new(For::Server),
            codes: Mutex::default(),
            space: Arc::new(Semaphore::new(MAX_CODED_KIB)),
            waiting: Semaphore::new(MAX_WAITING_KIB),
            rebuilds: Arc::new(Semaphore::new(MAX_REBUILT_KIB)),
            coded: Default::default(),
        }
    }
}

/// An order of a client to a Master.
pub(in crate::store) struct Asked<'a> {
    /// The token that the client shows.
    pub token: &'a [u8],
    pub volume: [u8; 16],
    pub set: SetId,
    pub code: &'a str,
}

/// Reads a client's order to a Master.
///
/// # Errors
/// When it cannot be read.
pub(in crate::store) fn asked(body: &[u8]) -> io::Result<Asked<'_>> {
    let stripe = read(body)?;
    Ok(Asked { token: stripe.token, volume: stripe.volume, set: stripe.set, code: stripe.code })
}

/// The space that a coded stripe takes, in KiB: all of its blocks are in memory.
fn coded_kib(length: usize, shape: ec::Shape) -> usize {
    let block = length.div_ceil(shape.k.max(1));
    block.saturating_mul(shape.blocks()).div_ceil(1024).clamp(MAX_CODED_KIB / MAX_STRIPES, MAX_CODED_KIB)
}

fn read(body: &[u8]) -> io::Result<Stripe<'_>> {
    postcard::from_bytes(body).map_err(|_| bad("a stripe that cannot be read"))
}

impl Masters {
    /// Codes and writes a stripe for a client. `own_boot` is the boot number of this machine,
    /// `local` finds a target of this store.
    pub async fn answer(
        &self,
        request: Request,
        own_boot: u64,
        local: impl Fn(&str) -> Option<Arc<dyn Target>> + Send,
    ) -> io::Result<Reply> {
        let begun = Instant::now();
        let stripe = read(&request.body)?;
        let ready = self.ready(stripe.code)?;
        let length = request.payload.len();
        let waits = length.div_ceil(1024).clamp(MAX_WAITING_KIB / MAX_STRIPES, MAX_WAITING_KIB) as u32;
        let Ok(waiting) = self.waiting.try_acquire_many(waits) else { return Ok(Reply::error(BUSY, Vec::new())) };
        let takes = coded_kib(length, ready.0.shape()) as u32;
        let Ok(space) = timeout(SPACE_TIMEOUT, self.space.clone().acquire_many_owned(takes)).await else {
            return Ok(Reply::error(BUSY, Vec::new()));
        };
        drop(waiting);
        let space = space.map_err(io::Error::other)?;
        let peers = self.clients.peers();
        let places = peers.numbers(stripe.volume, &stripe.places, stripe.server, local)?;
        let shown = Token::from_bytes(stripe.token);
        let order = shown.and_then(|token| peers.orders.begin(stripe.volume, stripe.set, &token));
        // The task continues when the client stops waiting: half a stripe is of no use.
        let task = Task { peers, ready, places, request, begun, own_boot, _order: order, _space: space };
        let (done, boots) = tokio::task::spawn_blocking(move || task.run()).await.map_err(io::Error::other)??;
        self.coded[0].fetch_add(1, Ordering::Relaxed);
        self.coded[1].fetch_add(length as u64, Ordering::Relaxed);
        Ok(Reply::ok(encode_done(&done, &boots)))
    }

    /// The number of stripes that were coded for clients, and their bytes of user data.
    pub fn coded(&self) -> (u64, u64) {
        (self.coded[0].load(Ordering::Relaxed), self.coded[1].load(Ordering::Relaxed))
    }

    /// How long the steps of the stripes took.
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
    fn run(self) -> io::Result<(Done, Boots)> {
        let (stripe, (code, pool), targets) = (read(&self.request.body)?, &self.ready, &self.peers.targets);
        // Skip a target that has not answered an earlier request; the stripe would only wait for
        // it.
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
        targets.steps().extend(WriteStep::Master, beside);
        let steps = [cost.master, cost.parity, cost.distribution, cost.slave];
        let mut done = Done { failed: Vec::new(), cost: steps.map(|step| step.as_nanos() as u64) };
        let mut boots = vec![0; self.places.len()];
        for (position, id) in Position::placed(&self.places) {
            if layout.places[position.index()].is_none() || missing.contains(&position) {
                done.failed.push((position, encode_error(&self.peers.why(id))));
                continue;
            }
            if targets.error(id).is_some() {
                targets.forgive(id);
            }
            match self.peers.boot(id, layout.file(position), self.own_boot) {
                Ok(boot) => boots[position.index()] = boot,
                Err(why) => done.failed.push((position, encode_error(&why))),
            }
        }
        Ok((done, boots))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stripe_is_charged_with_all_of_its_blocks() {
        let kib = |length: usize, code: &str| coded_kib(length, ec::parse(code).unwrap().shape());
        assert_eq!(kib(4 << 20, "rs:4+2"), 6 << 10);
        assert_eq!(kib(8 << 20, "rs:8+2"), 10 << 10);
        assert_eq!(kib(100 << 10, "rs:1+9"), 1000);
        // No more than the limit, or the stripe would never begin; no less than its thread costs.
        assert_eq!(kib(1 << 20, "rs:1+255"), MAX_CODED_KIB);
        assert_eq!((kib(0, "rs:4+2"), kib(1, "rs:4+2")), (MAX_CODED_KIB / MAX_STRIPES, MAX_CODED_KIB / MAX_STRIPES));
    }
}
