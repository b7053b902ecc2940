//! The storage server: answers requests to its targets. Each target has a limited number of
//! operations at a time, so that a disk that hangs does not block the others.

use super::claim::{decode_epoch, encode_refusal};
use super::counts::Counts;
use super::gather::{Gather, Others};
use super::master::{self, Asked, DISTRIBUTE, Masters, REBUILD};
use super::protocol::{
    FAILED, Operands, REFUSED, UNCLAIMED, change, encode, encode_done, encode_error, encode_presence, method, wanted,
};
use super::slots::{Slots, TargetSlot};
use crate::capability::{ClusterKey, FenceMessage, Guard, Refusal, Rights, Token, Wanted, now_ms};
use bytes::Bytes;
use plan::Domain;
use std::io::{self, IoSlice};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use volume::target::{Allocation, Durable, ReadPart, Target, TargetFile, Wait};
use wire::{Complaints, Payload, Reply, Request, Service};

/// Longer operations, in bytes, run on another thread, so that their memory can be released while a
/// disk hangs.
const MAX_INLINE_BYTES: u64 = 2 << 20;
/// Maximum length of a read, in bytes.
const MAX_READ: u64 = 16 << 20;

/// How long a store that has just started lets writes wait for the first fence. Clients wait a
/// little longer for an answer.
const UNTIL_FENCE: Duration = Duration::from_secs(10);

/// A storage server for some directories.
pub struct Store {
    pub(super) slots: Slots,
    pub(super) counts: Counts,
    pub(super) masters: Masters,
    /// The stores that it asks as a prime.
    others: Others,
    guard: Option<Guard>,
    /// A fence arrived.
    fenced: Notify,
    complaints: Complaints,
    domain: Option<Domain>,
    /// The boot number of this machine.
    start: u64,
}

impl Store {
    /// Opens these directories as a store. The last component of its path names each target. The
    /// existing targets are locked for this process.
    ///
    /// # Errors
    /// When two directories have the same name, or one is locked or is no directory; when all disks
    /// fail. One of several that fails is left out.
    pub fn open(directories: &[PathBuf]) -> fs::Result<Self> {
        Ok(Self::of(Slots::open(directories)?))
    }

    fn of(slots: Slots) -> Self {
        Self {
            slots,
            counts: Counts::default(),
            masters: Masters::default(),
            others: Others::new(),
            guard: None,
            fenced: Notify::new(),
            complaints: Complaints::default(),
            domain: None,
            start: crate::start_of_machine(),
        }
    }

    /// A store with a target that the caller has, on a machine with this boot number.
    #[cfg(test)]
    pub(super) fn on(name: &str, target: Arc<dyn Target>, start: u64) -> Self {
        Self { start, ..Self::of(Slots::one(name, target)) }
    }

    /// Sets the failure domain that all targets of this store share.
    #[must_use]
    pub fn in_domain(self, domain: Option<Domain>) -> Self {
        Self { domain, ..self }
    }

    /// Makes the store demand tokens signed with this key. The clock of the signer may differ from
    /// its own by at most `clock_tolerance`.
    #[must_use]
    pub fn guarded_by(self, key: Arc<ClusterKey>, clock_tolerance: Duration) -> Self {
        Self { guard: Some(Guard::new(key, clock_tolerance)), ..self }
    }

    /// Whether none of the directories is a target yet.
    pub fn is_blank(&self) -> bool {
        self.slots.all().iter().all(|(_, slot)| slot.target().is_err() && slot.check_fault().is_ok())
    }

    /// The failure domain of all targets of this store, if known.
    pub fn domain(&self) -> Option<&Domain> {
        self.domain.as_ref()
    }

    /// The directory of a target.
    pub fn path_of(&self, target: &str) -> Option<PathBuf> {
        Some(self.slots.get(target)?.path().to_path_buf())
    }

    /// The names of the targets.
    pub fn names(&self) -> Vec<String> {
        self.slots.all().into_iter().map(|(name, _)| name).collect()
    }
}

/// Answers a read. The caller has checked the lengths.
fn read(target: &dyn Target, operands: &Operands<'_>, wait: Wait) -> io::Result<Reply> {
    let (file, wanted) = (operands.file.into(), (operands.offset, operands.length));
    let mut buffers: Vec<Payload> =
        operands.also.iter().chain([&wanted]).map(|&(_, length)| Payload::new(length as usize)).collect();
    let offsets = operands.also.iter().chain([&wanted]).map(|&(offset, _)| offset);
    let mut parts: Vec<ReadPart<'_>> =
        offsets.zip(&mut buffers).map(|(offset, into)| ReadPart::new(offset, into)).collect();
    target.read(file, &mut parts, wait)?;
    let read: Vec<usize> = parts.iter().map(|part| part.read).collect();
    let payload = buffers.into_iter().zip(&read).map(|(bytes, &read)| Bytes::from(bytes).slice(..read)).collect();
    // Of two parts, the receiver must know where the second one begins.
    let reply = if operands.also.is_some() { Reply::ok(encode(&(read[0] as u64))) } else { Reply::default() };
    Ok(Reply { payload, ..reply })
}

/// Executes an operation on a target. It may block on the disk.
fn operate(target: &dyn Target, method: u16, operands: &Operands<'_>, payload: &Payload) -> io::Result<Reply> {
    let (file, offset, length) = (TargetFile::from(operands.file), operands.offset, operands.length);
    let done = |()| Reply::default();
    // The caller's time includes the wait for the target's other operations.
    let took = |_: Duration| Reply::default();
    match method {
        method::WRITE => target.write(file, offset, &[IoSlice::new(payload)], Durable::Later).map(took),
        method::WRITE_DURABLY => target.write(file, offset, &[IoSlice::new(payload)], Durable::Now).map(took),
        method::READ => read(target, operands, Wait::Always),
        method::SYNC => target.sync(file).map(took),
        method::RESERVE => target.allocate(file, Allocation::Reserve(length)).map(done),
        method::TRIM => target.allocate(file, Allocation::Trim).map(done),
        method::PUNCH => target.allocate(file, Allocation::Punch(offset..offset.saturating_add(length))).map(done),
        method::SEAL => target.seal(file).map(done),
        method::RENAME => target.rename(file, operands.to.into()).map(done),
        method::REMOVE => target.remove(file).map(done),
        method::LIST => {
            let files = if file.is_metadata() { target.list_metadata()? } else { target.list()? };
            let files: Vec<(super::protocol::File, u64)> =
                files.into_iter().map(|(file, length)| (file.into(), length)).collect();
            Ok(Reply::default().with_payload(encode(&files)))
        }
        method::PRESENCE => {
            let files: Vec<super::protocol::File> = postcard::from_bytes(payload).map_err(io::Error::other)?;
            let files: Vec<TargetFile> = files.into_iter().map(TargetFile::from).collect();
            let found: Vec<u8> = target.look(&files)?.into_iter().map(encode_presence).collect();
            Ok(Reply::default().with_payload(found))
        }
        method::SPACE => {
            let space = target.space()?;
            Ok(Reply::ok(encode(&(space.total, space.free, space.system))))
        }
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

impl Store {
    /// The answer to a request whose token does not permit it; None when the request is permitted.
    async fn refuses(
        &self,
        request: &Request,
        token: &[u8],
        wanted: Wanted,
        volume: Option<[u8; 16]>,
    ) -> Option<Reply> {
        let guard = self.guard.as_ref()?;
        let check = || guard.check(token, wanted, volume, now_ms());
        let mut checked = check();
        if checked == Err(Refusal::Unfenced) {
            let fenced = async {
                loop {
                    let fence = self.fenced.notified();
                    match check() {
                        Err(Refusal::Unfenced) => fence.await,
                        checked => return checked,
                    }
                }
            };
            checked = tokio::time::timeout(UNTIL_FENCE, fenced).await.unwrap_or(checked);
        }
        let why = checked.err()?;
        if why == Refusal::Unfenced {
            // Another token would not help, only another try.
            let error = io::Error::new(io::ErrorKind::ResourceBusy, why.to_string());
            return Some(Reply::error(FAILED, encode_error(&error)));
        }
        let who = request.peer.name.as_deref().unwrap_or("a client");
        self.complaints.complain(&request.peer.address, &format_args!("{who} is refused: {why}"));
        Some(Reply::error(REFUSED, why.to_string().into_bytes()))
    }

    /// A target of this store for work on a volume. With a key, the target must belong to that
    /// volume, because a client may have rights on no other one.
    fn own(&self, target: &str, volume: [u8; 16], for_client: bool) -> Option<Arc<dyn Target>> {
        let place = self.slots.get(target)?;
        if self.guard.is_none() {
            return place.target().ok();
        }
        let is_of = place.volume().as_ref().is_some_and(|of| of.id == volume);
        Some(place.kept(place.target().ok().filter(|_| is_of)?, for_client))
    }

    /// Whether the chunk sets of a volume have this code, as far as this store knows. With a key it
    /// accepts only what a label of its own targets says.
    fn is_code_of(&self, code: &str, volume: [u8; 16]) -> bool {
        let says = |(_, place): (String, Arc<TargetSlot>)| {
            let of = place.volume();
            of.as_ref().filter(|of| of.id == volume).map(|of| of.code.as_deref() == Some(code))
        };
        self.slots.all().into_iter().find_map(says).unwrap_or(self.guard.is_none())
    }

    async fn answer(&self, request: Request) -> io::Result<Reply> {
        let begun = Instant::now();
        if request.method == method::REPORT {
            // The second part behind the first: who does not know it leaves it.
            let (report, work) = self.report_and_work();
            return Ok(Reply::ok([encode(&report), encode(&work)].concat()));
        }
        let bad = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_string());
        if request.method == method::FENCE {
            let FenceMessage { token, fence } =
                postcard::from_bytes(&request.body).map_err(|_| bad("sessions that cannot be read"))?;
            if let Some(refused) = self.refuses(&request, &token, Wanted::Everything, Some(fence.volume)).await {
                return Ok(refused);
            }
            // Without a key sessions have no permissions, so there is nothing to revoke.
            if let Some(guard) = &self.guard {
                guard.fence(fence);
                self.fenced.notify_waiters();
            }
            return Ok(Reply::default());
        }
        if request.method == method::GATHER {
            let gather: Gather<'_> =
                postcard::from_bytes(&request.body).map_err(|_| bad("stores that cannot be read"))?;
            if let Some(refused) = self.refuses(&request, gather.token, Wanted::Everything, None).await {
                return Ok(refused);
            }
            let (report, work) = self.report_and_work();
            return self.others.answer([encode(&report), encode(&work)].concat(), &gather).await;
        }
        if request.method == DISTRIBUTE {
            let Asked { token, volume, set, code } = master::asked(&request.body)?;
            if let Some(refused) = self.refuses(&request, token, Wanted::Write(set), Some(volume)).await {
                return Ok(refused);
            }
            if !self.is_code_of(code, volume) {
                return Err(bad("a stripe of another code than its volume has"));
            }
            return self.masters.answer(request, self.start, |target| self.own(target, volume, true)).await;
        }
        if request.method == REBUILD {
            let (token, volume) = master::lost(&request.body)?;
            if let Some(refused) = self.refuses(&request, token, Wanted::Everything, Some(volume)).await {
                return Ok(refused);
            }
            return self.masters.rebuild(request, |target| self.own(target, volume, false)).await;
        }
        let operands: Operands<'_> =
            postcard::from_bytes(&request.body).map_err(|_| bad("operands that cannot be read"))?;
        let place = self.slots.get_or_shared(operands.target)?;
        place.check_fault()?;
        place.read_label_again();
        let (volume, wanted) = (place.volume().as_ref().map(|of| of.id), wanted(request.method, operands.file.into()));
        if let Some(refused) = self.refuses(&request, operands.token, wanted, volume).await {
            return Ok(refused);
        }
        if request.method == method::READ && operands.wanted_bytes() > MAX_READ {
            return Err(bad("a read of more than 16 MiB"));
        }
        if request.method == method::DOMAIN {
            return Ok(Reply::ok(encode(&self.domain)));
        }
        let lane = if request.method == method::CLAIM { &place.claims } else { &place.disk };
        let Some(_waiting) = lane.queue.try_take(request.peer.name.as_deref()) else {
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, "too many operations wait for the target"));
        };
        let _metering = place.looked.meter.begin();
        let _access = place.looked.access(request.method, operands.file.into());
        if request.method == method::FORMAT {
            crate::waiting(|| self.slots.format(operands.target).map(|slot| slot.label_changed()))?;
            return Ok(Reply::default());
        }
        let mut target = place.target()?;
        if self.guard.is_some() && super::protocol::changes(request.method) {
            // The token was verified above.
            let rights = Token::from_bytes(operands.token).and_then(|token| token.says()).map(|says| says.rights);
            target = place.kept(target, rights != Some(Rights::Everything));
        }
        if request.method == method::READ {
            // A read from the cache does not wait for operations that need the disk.
            if let Ok(reply) = read(&*target, &operands, Wait::Never) {
                return Ok(reply);
            }
        }
        // The operation holds this permit, not this future, which may be dropped while a disk
        // hangs.
        let depth = lane.depth.clone().acquire_owned().await.map_err(io::Error::other)?;
        let is_large = operands.wanted_bytes().max(request.payload.len() as u64) > MAX_INLINE_BYTES;
        let Request { method, body, payload, .. } = request;
        let place = place.clone();
        let work = move || {
            let _depth = depth;
            let (operands, rest): (Operands<'_>, _) = postcard::take_from_bytes(&body).map_err(io::Error::other)?;
            if method == method::CLAIM {
                let volume = place.volume().as_ref().map(|of| of.id);
                return place.gate.claim(&*target, volume, &payload).map(Reply::ok);
            }
            let _pass = match change(method, &operands) {
                Some((change, file)) => place.gate.allow(&*target, change, file, decode_epoch(rest)?)?,
                None => None,
            };
            let done = operate(&*target, method, &operands, &payload);
            let file = if method == method::RENAME { operands.to } else { operands.file };
            if file == super::protocol::File::Label && super::protocol::changes(method) {
                place.label_changed();
            }
            done
        };
        let done = if is_large { crate::beside(work).await.map_err(io::Error::other)? } else { crate::waiting(work) };
        let mut reply = done?;
        if matches!(method, method::WRITE | method::WRITE_DURABLY | method::SYNC) {
            reply.body = encode_done(begun.elapsed(), self.start);
        }
        Ok(reply)
    }
}

impl Service for Store {
    fn reply_bytes(&self, request: &Request) -> u64 {
        let operands = || postcard::from_bytes::<Operands<'_>>(&request.body).ok();
        let length = |operands: Operands<'_>| operands.wanted_bytes().min(MAX_READ);
        if request.method == method::READ { operands().map_or(0, length) } else { 0 }
    }

    async fn call(&self, request: Request) -> Reply {
        let (begun, method, received) = (Instant::now(), request.method, request.payload.len());
        let answer = self.answer(request).await;
        let sent = answer.as_ref().map_or(0, |reply| reply.payload.iter().map(Bytes::len).sum());
        self.counts.note(method, begun.elapsed(), received, sent, answer.as_ref().is_ok_and(|reply| reply.status == 0));
        answer.unwrap_or_else(|error| match encode_refusal(&error) {
            Some(body) => Reply::error(UNCLAIMED, body),
            None => Reply::error(FAILED, encode_error(&error)),
        })
    }
}
