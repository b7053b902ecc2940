//! A target of a storage server, as other processes see it.

use super::claim::{decode_refusal, decode_state, encode_ask, encode_epoch};
use super::primes::Primes;
use super::protocol::{
    FAILED, File, Operands, REFUSED, UNCLAIMED, changes, decode_done, decode_error, decode_presence, encode, method,
};
use super::reports::Reports;
use super::unsynced::{Moment, UnsyncedFiles};
use crate::address::StoreAddress;
use crate::capability::{Credentials, Token};
use crate::ranks::{StoreClients, StoreEpoch, StoreFence, StoreUnsynced};
use plan::{Domain, TxId};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use volume::ranked::{Guard, Ranked};
use volume::target::{
    Allocation, ClaimRequest, ClaimState, Durable, Epoch, Owner, Presence, ReadPart, Space, Target, TargetFile, Wait,
};
use wire::{Client, ClientOptions, ClientTls, Error, Response};

/// A little less than the time after which the volume gives up an operation.
pub(super) const OPERATION_TIMEOUT: Duration = Duration::from_secs(14);
/// Number of connections to a store.
const CHANNELS: usize = 4;
/// Writes and reads are split into messages of at most this many bytes of data.
const MAX_MESSAGE_BYTES: usize = 8 << 20;

/// The storage servers that this process uses. All targets of a store share its connections.
pub struct Stores {
    clients: Ranked<HashMap<String, Client>, StoreClients>,
    tls: Option<ClientTls>,
    credentials: Option<Arc<dyn Credentials>>,
    /// The latest reports of the stores.
    pub reports: Arc<Reports>,
    /// What tells the live sessions of each volume, by its id.
    fence: Ranked<BTreeMap<[u8; 16], Arc<Living>>, StoreFence>,
    /// Through which stores reports come.
    pub(super) primes: Arc<Primes>,
}

/// Returns the fence message; None when there is nothing to tell.
type Living = dyn Fn() -> Option<Vec<u8>> + Send + Sync;

impl Default for Stores {
    /// Uses the identity of this process, and the cluster's key if the process has it.
    fn default() -> Self {
        let credentials = crate::identity::own_key().map(|key| key as Arc<dyn Credentials>);
        Self::new(crate::identity::client_tls(), credentials)
    }
}

impl fmt::Debug for Stores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stores")
    }
}

impl Stores {
    /// Runs background work, as [`fs::caught`]; a panic in it is counted with the stores' reports.
    pub(crate) fn caught<T>(&self, what: &str, tell: impl FnOnce(&str), work: impl FnOnce() -> T) -> Option<T> {
        let tell = |line: &str| {
            self.reports.count_defect();
            tell(line);
        };
        fs::caught(what, tell, work)
    }

    /// Uses this certificate, and these credentials with every operation.
    pub fn new(tls: Option<ClientTls>, credentials: Option<Arc<dyn Credentials>>) -> Self {
        Self {
            clients: Ranked::default(),
            tls,
            credentials,
            reports: Arc::default(),
            fence: Ranked::default(),
            primes: Arc::default(),
        }
    }

    /// From now on, the stores are told the live sessions of a volume at regular intervals.
    pub fn tell_of_sessions(&self, volume: [u8; 16], living: impl Fn() -> Option<Vec<u8>> + Send + Sync + 'static) {
        self.fence.lock().insert(volume, Arc::new(living));
    }

    /// The fence messages to send now.
    pub(super) fn living_sessions(&self) -> Vec<Vec<u8>> {
        let all: Vec<Arc<Living>> = self.fence.lock().values().cloned().collect();
        all.iter().filter_map(|living| living()).collect()
    }

    /// A target. This sends nothing to the store.
    pub fn target(&self, address: &StoreAddress) -> RemoteTarget {
        self.target_for(address, self.credentials.clone())
    }

    /// A target with other credentials: a store that works for a client shows the client's
    /// [`Token`].
    pub fn target_for(&self, address: &StoreAddress, credentials: Option<Arc<dyn Credentials>>) -> RemoteTarget {
        let (address, client) = (address.clone(), self.client(&address.server));
        RemoteTarget { address, client, credentials, unsynced: Ranked::default(), epoch: Ranked::default() }
    }

    /// The connection to a store.
    pub(super) fn client(&self, server: &str) -> Client {
        let connect = || {
            let options = ClientOptions { tls: self.tls.clone(), ..way() };
            Client::new(crate::runtime().handle().clone(), server, options)
        };
        self.clients.lock().entry(server.to_owned()).or_insert_with(connect).clone()
    }

    /// Up to this many stores each is asked for its report; in a larger cluster, one of each
    /// cabinet is asked for those of all its stores.
    pub fn set_small_cluster(&self, stores: usize) {
        self.primes.set_small(stores);
    }

    /// The stores are in these domains.
    pub fn arrange(&self, domains: impl IntoIterator<Item = (String, Domain)>) {
        self.primes.arrange(domains);
    }

    /// How many requests for reports this process sent: for those of a cabinet, and of one store.
    pub fn report_requests(&self) -> (u64, u64) {
        self.primes.asked()
    }

    /// The token for requests that only servers may make; empty in a cluster without a key.
    pub(super) fn token_for_all(&self) -> Vec<u8> {
        let token = self.credentials.as_ref().and_then(|credentials| credentials.token(TargetFile::Label, true));
        token.map_or_else(Vec::new, |token| token.as_bytes().to_vec())
    }

    /// How many stores are in use so far; none is ever forgotten.
    pub(super) fn count(&self) -> usize {
        self.clients.lock().len()
    }

    /// All stores, by address.
    pub(super) fn clients(&self) -> Vec<(String, Client)> {
        let clients = self.clients.lock();
        clients.iter().map(|(server, client)| (server.clone(), client.clone())).collect()
    }
}

/// How many channels this process uses, if it was said.
static CONFIGURED_CHANNELS: OnceLock<usize> = OnceLock::new();

/// Sets how many channels this process has to each store, each a connection that many calls share.
/// Only the first call has an effect, and only on stores that no target was opened of.
pub fn set_channels(channels: usize) {
    let _ = CONFIGURED_CHANNELS.set(channels.max(1));
}

/// Options of connections to stores. A store that is down counts as an erasure at once; operations
/// do not wait for it.
pub(super) fn way() -> ClientOptions {
    ClientOptions {
        channels: CONFIGURED_CHANNELS.get().copied().unwrap_or(CHANNELS),
        fail_fast: true,
        connect_timeout: Duration::from_secs(2),
        backoff: Duration::from_millis(50)..=Duration::from_secs(1),
        ..ClientOptions::default()
    }
}

/// A target behind a storage server.
pub struct RemoteTarget {
    address: StoreAddress,
    client: Client,
    credentials: Option<Arc<dyn Credentials>>,
    /// Files with data that is not synced.
    unsynced: Ranked<UnsyncedFiles, StoreUnsynced>,
    /// The epoch under which it changes the volume.
    epoch: Ranked<Option<Epoch>, StoreEpoch>,
}

impl fmt::Debug for RemoteTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

impl RemoteTarget {
    /// A target over a connection that the caller has.
    #[cfg(test)]
    pub(super) fn over(address: StoreAddress, client: Client) -> Self {
        Self { address, client, credentials: None, unsynced: Ranked::default(), epoch: Ranked::default() }
    }

    /// Makes the directory a target without a label.
    ///
    /// # Errors
    /// When the target already has a label.
    pub fn format(&self) -> io::Result<()> {
        self.call(method::FORMAT, &self.operands(TargetFile::Label), &[]).map(drop)
    }

    /// The store's failure domain, if the store knows it.
    ///
    /// # Errors
    /// When the store does not answer.
    pub fn domain(&self) -> io::Result<Option<Domain>> {
        let answer = self.call(method::DOMAIN, &self.operands(TargetFile::Label), &[])?;
        postcard::from_bytes(&answer.body).map_err(|_| io::Error::other("an answer that cannot be read"))
    }

    /// The address of the store.
    pub(super) fn server(&self) -> &str {
        &self.address.server
    }

    /// The credentials for this target.
    pub(super) fn credentials(&self) -> Option<&Arc<dyn Credentials>> {
        self.credentials.as_ref()
    }

    /// The connection to the store.
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// The files on the target. With the name of a file of the metadata, only those.
    fn list_like(&self, file: TargetFile) -> io::Result<Vec<(TargetFile, u64)>> {
        let answer = self.call(method::LIST, &self.operands(file), &[])?;
        let files: Vec<(File, u64)> =
            postcard::from_bytes(&answer.payload).map_err(|_| io::Error::other("a list that cannot be read"))?;
        Ok(files.into_iter().map(|(file, length)| (file.into(), length)).collect())
    }

    pub(super) fn operands(&self, file: TargetFile) -> Operands<'_> {
        Operands {
            target: &self.address.target,
            file: file.into(),
            to: File::Label,
            offset: 0,
            length: 0,
            also: None,
            token: &[],
        }
    }

    fn token(&self, method: u16, operands: &Operands<'_>) -> Option<Token> {
        self.credentials.as_ref()?.token(operands.file.into(), changes(method))
    }

    fn call(&self, method: u16, operands: &Operands<'_>, parts: &[IoSlice<'_>]) -> io::Result<Response> {
        self.call_within(OPERATION_TIMEOUT, method, operands, parts)
    }

    fn call_within(
        &self,
        deadline: Duration,
        method: u16,
        operands: &Operands<'_>,
        parts: &[IoSlice<'_>],
    ) -> io::Result<Response> {
        let epoch = encode_epoch(*self.epoch());
        let ask = |token: Option<Token>| {
            let token = token.as_ref().map_or(&[][..], Token::as_bytes);
            let mut body = encode(&Operands { token, ..operands.clone() });
            body.extend_from_slice(&epoch);
            self.client.call_blocking(method, &body, parts, deadline)
        };
        let token = self.token(method, operands);
        let sent = self.moment();
        let mut answer = ask(token);
        if let (Err(Error::Remote { status: REFUSED, .. }), Some(credentials)) = (&answer, &self.credentials)
            && let Some(another) = credentials.renew(operands.file.into(), changes(method), token)
        {
            answer = ask(Some(another));
        }
        self.settle(method, operands.file.into(), answer, sent)
    }

    fn epoch(&self) -> Guard<'_, Option<Epoch>, StoreEpoch> {
        self.epoch.lock()
    }

    /// When an operation is sent, for what its answer says of earlier writes.
    pub(super) fn moment(&self) -> Moment {
        self.unsynced.lock().moment()
    }

    /// Turns an answer, or the lack of one, into the result of an operation that was sent at a
    /// moment. When the store's machine restarted after a write, data that was not synced may be
    /// lost, which is an error of the next write and sync ([`UnsyncedFiles::note`]).
    pub(super) fn settle(&self, method: u16, file: TargetFile, answer: Answer, sent: Moment) -> io::Result<Response> {
        let answer = answer.map_err(meant)?;
        if !matches!(method, method::WRITE | method::WRITE_DURABLY | method::SYNC | method::REMOVE) {
            return Ok(answer);
        }
        let (_, boot) = decode_done(&answer.body);
        self.unsynced.lock().note(method, file, boot, sent).map(|()| answer)
    }

    /// Another process wrote to a file of this target, when its store's machine had this boot
    /// number.
    ///
    /// # Errors
    /// When the machine restarted after an earlier write to the file that was not synced.
    pub(super) fn note_write(&self, file: TargetFile, boot: u64) -> io::Result<()> {
        let mut unsynced = self.unsynced.lock();
        let now = unsynced.moment();
        unsynced.note(method::WRITE, file, boot, now)
    }

    /// The boot number of the store's machine at the last write to a file. None if it is not known.
    ///
    /// # Errors
    /// When the machine restarted since an earlier write.
    pub(super) fn boot_of(&self, file: TargetFile) -> io::Result<Option<u64>> {
        self.unsynced.lock().boot_of(file)
    }
}

impl RemoteTarget {
    /// Reads, with this deadline for each piece.
    fn read_until(&self, deadline: Duration, file: TargetFile, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        // Nothing is read, too: the file may be missing.
        let nothing = into.is_empty().then_some(&mut [][..]);
        for piece in nothing.into_iter().chain(into.chunks_mut(MAX_MESSAGE_BYTES)) {
            let operands = Operands { offset: offset + done as u64, length: piece.len() as u64, ..self.operands(file) };
            let answer = self.call_within(deadline, method::READ, &operands, &[])?;
            let read = answer.payload.len();
            let into =
                piece.get_mut(..read).ok_or_else(|| io::Error::other("the store sent more than was asked for"))?;
            into.copy_from_slice(&answer.payload);
            done += read;
            if read < piece.len() {
                break;
            }
        }
        Ok(done)
    }

    /// Reads two parts by one request.
    fn read_both(&self, deadline: Duration, file: TargetFile, parts: [&mut ReadPart<'_>; 2]) -> io::Result<()> {
        let [first, second] = parts;
        let also = Some((first.offset, first.into.len() as u64));
        let (offset, length) = (second.offset, second.into.len() as u64);
        let operands = Operands { offset, length, also, ..self.operands(file) };
        let Response { body, payload } = self.call_within(deadline, method::READ, &operands, &[])?;
        let odd = || io::Error::other("the store sent something else than was asked for");
        let length: u64 = postcard::from_bytes(&body).map_err(|_| odd())?;
        let (one, other) = payload.split_at_checked(length as usize).ok_or_else(odd)?;
        for (part, bytes) in [(first, one), (second, other)] {
            part.into.get_mut(..bytes.len()).ok_or_else(odd)?.copy_from_slice(bytes);
            part.read = bytes.len();
        }
        Ok(())
    }
}

type Answer = Result<Response, Error>;

/// The I/O error of an operation that has no successful answer.
fn meant(error: Error) -> io::Error {
    match error {
        Error::Remote { status: FAILED, body } => decode_error(&body),
        Error::Remote { status: UNCLAIMED, body } => decode_refusal(&body),
        Error::Remote { status: REFUSED, body } => {
            let why = String::from_utf8_lossy(&body).into_owned();
            io::Error::new(io::ErrorKind::PermissionDenied, why)
        }
        Error::Unavailable { why, .. } => io::Error::new(io::ErrorKind::NotConnected, why),
        Error::Deadline => io::ErrorKind::TimedOut.into(),
        other => io::Error::other(other.to_string()),
    }
}

impl Target for RemoteTarget {
    fn write(&self, file: TargetFile, offset: u64, parts: &[IoSlice<'_>], durable: Durable) -> io::Result<Duration> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let write = |method, at, parts: &[IoSlice<'_>]| {
            let answer = self.call(method, &Operands { offset: at, ..self.operands(file) }, parts)?;
            Ok::<_, io::Error>(decode_done(&answer.body).0)
        };
        if length <= MAX_MESSAGE_BYTES {
            let method = if durable == Durable::Now { method::WRITE_DURABLY } else { method::WRITE };
            return write(method, offset, parts);
        }
        let (mut at, mut took) = (offset, Duration::ZERO);
        for part in parts {
            for piece in part.chunks(MAX_MESSAGE_BYTES) {
                took += write(method::WRITE, at, &[IoSlice::new(piece)])?;
                at += piece.len() as u64;
            }
        }
        if durable == Durable::Now {
            took = took.saturating_add(self.sync(file)?);
        }
        Ok(took)
    }

    fn read(&self, file: TargetFile, parts: &mut [ReadPart<'_>], wait: Wait) -> io::Result<()> {
        let deadline = match wait {
            Wait::Always => OPERATION_TIMEOUT,
            Wait::Within(timeout) => timeout,
            // Only the store can tell what is cached there.
            Wait::Never => return wait.refuse_limit(),
        };
        match parts {
            [one, other] if one.into.len() + other.into.len() <= MAX_MESSAGE_BYTES => {
                self.read_both(deadline, file, [one, other])
            }
            parts => {
                for part in parts {
                    part.read = self.read_until(deadline, file, part.offset, part.into)?;
                }
                Ok(())
            }
        }
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn sync(&self, file: TargetFile) -> io::Result<Duration> {
        let answer = self.call(method::SYNC, &self.operands(file), &[])?;
        Ok(decode_done(&answer.body).0)
    }

    fn allocate(&self, file: TargetFile, change: Allocation) -> io::Result<()> {
        let operands = self.operands(file);
        let (method, operands) = match change {
            Allocation::Reserve(length) => (method::RESERVE, Operands { length, ..operands }),
            Allocation::Trim => (method::TRIM, operands),
            Allocation::Punch(Range { start: offset, end }) => {
                (method::PUNCH, Operands { offset, length: end.saturating_sub(offset), ..operands })
            }
        };
        self.call(method, &operands, &[]).map(drop)
    }

    fn seal(&self, file: TargetFile) -> io::Result<()> {
        self.call(method::SEAL, &self.operands(file), &[]).map(drop)
    }

    fn rename(&self, from: TargetFile, to: TargetFile) -> io::Result<()> {
        self.call(method::RENAME, &Operands { to: to.into(), ..self.operands(from) }, &[])?;
        // The name is that of another file now, which its sync has made durable.
        self.unsynced.lock().forget(to);
        Ok(())
    }

    fn remove(&self, file: TargetFile) -> io::Result<()> {
        self.call(method::REMOVE, &self.operands(file), &[]).map(drop)
    }

    fn list(&self) -> io::Result<Vec<(TargetFile, u64)>> {
        self.list_like(TargetFile::Label)
    }

    fn list_metadata(&self) -> io::Result<Vec<(TargetFile, u64)>> {
        let mut files = self.list_like(TargetFile::Journal { first: TxId(0) })?;
        // An older store lists all.
        files.retain(|(file, _)| file.is_metadata());
        Ok(files)
    }

    /// When the answer to a request is lost, the store may have granted it. The same request again
    /// is safe.
    fn claim(&self, ask: &ClaimRequest) -> io::Result<ClaimState> {
        if let ClaimRequest::Take { claim, .. } = ask {
            claim.check().map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
        }
        let request = encode_ask(ask);
        let answer = self.call(method::CLAIM, &self.operands(TargetFile::Label), &[IoSlice::new(&request)])?;
        let state = decode_state(&answer.body)?;
        match ask {
            ClaimRequest::Read | ClaimRequest::Whole { .. } => {}
            ClaimRequest::Take { claim, .. } => *self.epoch() = Some(claim.epoch),
            ClaimRequest::Release(epoch) => _ = self.epoch().take_if(|own| own == epoch),
        }
        Ok(state)
    }

    fn look(&self, files: &[TargetFile]) -> io::Result<Vec<Presence>> {
        let wanted = encode(&files.iter().map(|&file| File::from(file)).collect::<Vec<_>>());
        let answer = self.call(method::PRESENCE, &self.operands(TargetFile::Label), &[IoSlice::new(&wanted)])?;
        if answer.payload.len() != files.len() {
            return Err(io::Error::other("the store told of other files than was asked for"));
        }
        Ok(answer.payload.iter().map(|&byte| decode_presence(byte)).collect())
    }

    fn space(&self) -> io::Result<Space> {
        let answer = self.call(method::SPACE, &self.operands(TargetFile::Label), &[])?;
        let (total, free, system) =
            postcard::from_bytes(&answer.body).map_err(|_| io::Error::other("an answer that cannot be read"))?;
        Ok(Space { total, free, system })
    }

    fn owner(&self) -> Option<Owner<'_>> {
        Some(Owner { address: &self.address, master: self })
    }
}
