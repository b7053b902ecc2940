//! The client of a volume whose metadata is on a server. Data goes straight to the targets,
//! transactions go to the server.

pub mod cache;
pub mod ending;
pub mod fence;
pub mod locks;
mod own_locks;
mod reclaim;
pub mod removals;
pub mod sharing;

use crate::client::cache::{Cache, ExclusiveLease};
use crate::client::ending::Ending;
use crate::client::own_locks::OwnLocks;
use crate::client::removals::Removals;
use crate::data::file::FileState;
use crate::data::sets::Leased;
use crate::data::store::{Options, Store};
use crate::ranks::{ClientDirty, ClientHeard, ClientOpens, ClientOwed, ClientRecalled, ClientReservations, Heartbeat};
use crate::volume::history::History;
use crate::volume::label::{Label, Member, Role as TargetRole};
use crate::volume::stripe_size;
use crate::{Error, FileSystem, OpenOptions, Result};
use ::volume::ranked::Ranked;
use plan::{Ino, SessionId, SetId, TargetId};
use session::Question;
use session::port::{Entered, Port, Session};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Weak};
use std::time::{Duration, Instant};
use volume::Targets;
use volume::format::VolumeId;
use volume::target::{Target, boot_time};

/// Opens the target that a label names.
pub type Find = Box<dyn Fn(&Member) -> Result<Arc<dyn Target>> + Send + Sync>;

/// The connection to a metadata server.
pub struct Server {
    /// Names, attributes and extents.
    pub port: Arc<dyn Port>,
    /// Sets, openers and everything else that belongs to this client.
    pub session: Arc<dyn Session>,
    /// The server's answer to the begin of the session.
    pub entered: Entered,
    /// Opens targets.
    pub find: Find,
    /// Tells the connection to the server that this client is ending.
    pub ending: Arc<Ending>,
}

/// The append reservations of this client on a file.
#[derive(Clone, Copy, Default, PartialEq)]
struct Reserved {
    /// The end of the last one.
    end: u64,
    /// The number of appends that asked for a reservation and have not put their bytes into the
    /// buffer yet.
    waiting: u32,
    /// The number of truncations that are under way, or wait for those appends.
    cuts: u32,
}

impl Reserved {
    /// Whether no append and no truncation is under way.
    fn is_idle(&self) -> bool {
        self.waiting == 0 && self.cuts == 0
    }
}

/// What this client has open.
struct Opens {
    /// The session whose server knows of these files. An open or a close is counted in it or not at
    /// all.
    session: SessionId,
    /// For each file the number of all openers, and of those that write.
    files: HashMap<Ino, (u32, u32)>,
}

/// A thread commits a file because of recalls. After a panic, another thread answers the next one.
struct Answering<'a> {
    client: &'a Client,
    ino: Ino,
}

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.client.recalled.lock().remove(&self.ino);
        }
    }
}

/// [`Find`], for threads that hold nothing of the volume.
pub(crate) type SharedFind = Arc<dyn Fn(&Member) -> Result<Arc<dyn Target>> + Send + Sync>;

/// The client's half of its session.
pub(crate) struct Client {
    pub session: Arc<dyn Session>,
    /// The locks of this client.
    pub locks: OwnLocks,
    number: AtomicU64,
    /// How often the client was fenced.
    fences: AtomicU64,
    name: String,
    pub sets: Arc<Leased>,
    pub(crate) removals: Removals,
    pub(crate) find: SharedFind,
    open: Ranked<Opens, ClientOpens>,
    /// Files that were opened for writing and not reported clean to the server since, with the
    /// number of the last open or close.
    dirty: Ranked<BTreeMap<Ino, u64>, ClientDirty>,
    /// Those of them that could not be committed when they were unlocked, with the number of that.
    owed: Ranked<BTreeMap<Ino, u64>, ClientOwed>,
    /// Files that are being committed because of a recall, with the last question for each.
    recalled: Ranked<HashMap<Ino, u64>, ClientRecalled>,
    /// The append reservations of files in `dirty`, until everything in them is committed.
    reservations: Ranked<HashMap<Ino, Reserved>, ClientReservations>,
    /// Appends are in the buffer, or a truncation ended.
    reserved: Condvar,
    /// The number of opens and closes by writers so far.
    writes: AtomicU64,
    generation: AtomicU64,
    pub(crate) exclusive: Arc<ExclusiveLease>,
    pub(crate) cache: Arc<Cache>,
    /// When the server last answered a heartbeat.
    heard: Ranked<Instant, ClientHeard>,
    /// Whether the session ended. Held while a heartbeat is sent.
    ended: Ranked<bool, Heartbeat>,
    ending: Arc<Ending>,
    /// Written data was lost, and no sync of the whole volume has reported it yet.
    loss: AtomicBool,
}

/// The interval of heartbeats. It is shorter if four do not fit into a lease.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// What a client changed is durable shortly after this time, even without a sync. As a rule, the
/// server has made it durable long before.
const SYNC_INTERVAL: Duration = Duration::from_secs(5);

/// A server that has not answered for this long counts as absent.
const ABSENT_AFTER: Duration = Duration::from_secs(10);

/// Sends heartbeats, even while other threads of the client wait.
fn send_heartbeats(fs: &Weak<FileSystem>, pause: Duration) {
    loop {
        std::thread::sleep(pause);
        let Some(fs) = fs.upgrade() else { return };
        if fs.client().is_none_or(|client| *client.ended.lock()) {
            return;
        }
        fs.beside("telling the metadata server that this client lives", || {
            let noted = fs.heartbeat().and_then(|()| fs.client().map_or(Ok(()), |client| fs.note_removals(client)));
            if let Err(error) = noted {
                fs.volume.warn(&error.to_string());
            }
            fs.rejoin_targets();
        });
    }
}

/// The target that a client wants for its Master: named by its place, or by its store.
fn master_of(label: &Label, wanted: &Path) -> Result<TargetId> {
    let found = label.members().find(|member| member.path.starts_with(wanted)).map(|member| member.id);
    found.ok_or_else(|| Error::NotFound(format!("no target of the volume is at {}", ::volume::Shown(wanted))))
}

/// Begins the client's half of a session, with the store for its data. `name` is the name of this
/// client at the server.
///
/// # Errors
/// When this version does not understand the label that the server sent, or the wishes cannot be
/// fulfilled.
pub(crate) fn begin(server: Server, name: &str, wishes: &OpenOptions) -> Result<(Client, Store, Label)> {
    let Server { port, session, entered: Entered { welcome, opening, .. }, find, ending } = server;
    let label = Label::from_json(&welcome.label)?;
    let code = ec::parse(&label.code).map_err(|why| Error::Invalid(why.to_string()))?;
    let wanted = wishes.stripe_bytes.or(label.stripe_bytes.map(|bytes| bytes as usize));
    let full_stripe = stripe_size::of_process(code.shape().k, wanted)?;
    let options = Options {
        volume: VolumeId(label.id()?),
        code,
        chunk_bytes: label.chunk_bytes,
        durability: label.durability,
        coding: wishes.coding.unwrap_or(label.coding),
        at: label.place_of_client(wishes.at.clone())?,
        full_stripe,
        stripe_bytes: full_stripe - stripe_size::MANIFEST_BYTES,
    };
    let sets = Arc::new(Leased::new(session.clone()));
    let exclusive = Arc::new(ExclusiveLease::default());
    let cache = Arc::new(Cache::new(port.clone(), exclusive.clone(), opening));
    let (targets, history) = (Arc::new(Targets::new()), History::default());
    if let Some(master) = &wishes.master {
        targets.fix_master(master_of(&label, master)?);
    }
    let store = Store::new(targets, port, sets.clone(), options, history, welcome.first_stripe);
    let client = Client {
        session,
        locks: OwnLocks::default(),
        number: AtomicU64::new(welcome.session.0),
        fences: AtomicU64::new(0),
        name: name.into(),
        sets,
        removals: Removals::default(),
        find: find.into(),
        open: Ranked::new(Opens { session: welcome.session, files: HashMap::new() }),
        dirty: Ranked::default(),
        owed: Ranked::default(),
        recalled: Ranked::default(),
        reservations: Ranked::default(),
        reserved: Condvar::new(),
        writes: AtomicU64::new(0),
        generation: AtomicU64::new(0),
        exclusive,
        cache,
        heard: Ranked::new(Instant::now()),
        ended: Ranked::new(false),
        ending,
        loss: AtomicBool::new(false),
    };
    Ok((client, store, label))
}

impl FileSystem {
    /// Processes removals and reports to the server which of the files the kernel knows. One caller
    /// at a time, once per heartbeat.
    fn note_removals(&self, client: &Client) -> Result<()> {
        let lookups = &self.lookups;
        let (have_ended, knows) = (|question| lookups.have_ended(question), |ino| lookups.knows(ino));
        client.removals.tell(have_ended, knows, |note| {
            let reported = client.session.removed(note.noted, &note.kept, &note.forgotten)?;
            Ok((reported, lookups.last()))
        })
    }

    /// Takes in what the server says, now and with every heartbeat. `lease` is how long the session
    /// lives without one.
    pub(crate) fn follow_server(self: &Arc<Self>, lease: Duration) -> Result<()> {
        let pause = (lease / 4).min(HEARTBEAT);
        self.look_at_targets()?;
        self.heartbeat()?;
        self.background.start(self);
        let weak = Arc::downgrade(self);
        std::thread::spawn(move || send_heartbeats(&weak, pause));
        Ok(())
    }

    /// Opens targets that are new in the label, and closes those that are no longer in it.
    fn look_at_targets(&self) -> Result<()> {
        let Some(client) = self.client() else { return Ok(()) };
        let label = self.volume.label();
        for id in self.store.targets.ids() {
            if !label.members().any(|member| member.id == id) {
                self.store.targets.remove(id);
            }
        }
        let mut missing = HashMap::new();
        for member in label.members() {
            if self.store.targets.get(member.id).is_none() {
                match (client.find)(member) {
                    Ok(target) => self.store.targets.add(member.id, target),
                    Err(error) => _ = missing.insert(member.id, error.to_string()),
                }
            }
            self.store.close_target(member.id, member.role != TargetRole::Active);
        }
        *self.volume.missing.lock() = missing;
        self.store.set_network(&label);
        client.generation.store(label.generation, Ordering::Relaxed);
        Ok(())
    }

    /// Sends a heartbeat and takes in what changed.
    fn heartbeat(&self) -> Result<()> {
        let Some(client) = self.client() else { return Ok(()) };
        let heartbeat = {
            // One at a time, so that answers are processed in the order in which the server gave
            // them.
            let ended = client.ended.lock();
            if *ended {
                return Ok(());
            }
            let (before, asked) = (client.exclusive.asking(), boot_time());
            let heartbeat = client.session.heartbeat()?;
            client.exclusive.hear(before, asked, heartbeat.others, boot_time());
            heartbeat
        };
        *client.heard.lock() = Instant::now();
        client.removals.hear(heartbeat.removed);
        // Under load, too few targets may report their space. The last known values are more likely
        // than no space at all.
        if heartbeat.total > 0 {
            self.space.set(heartbeat.total, heartbeat.free);
        }
        if heartbeat.generation > client.generation.load(Ordering::Relaxed) {
            let label = Label::from_json(&client.session.label()?)?;
            *self.volume.label.lock() = label;
            self.look_at_targets()?;
        }
        Ok(())
    }

    /// The client is about to end. From now on, all waits for an absent metadata server end
    /// together, and later requests do not wait again.
    pub fn begin_end(&self) {
        if let Some(client) = self.client() {
            client.ending.begin();
        }
    }

    /// The number of files with uncommitted data, and its bytes.
    pub fn uncommitted(&self) -> (usize, u64) {
        let bytes_of = |state: &FileState| if state.is_left { 0 } else { state.buffer.uncommitted_bytes() };
        let bytes = self.table.all().into_iter().map(|file| bytes_of(&file.state()));
        bytes.filter(|bytes| *bytes > 0).fold((0, 0), |(files, sum), bytes| (files + 1, sum + bytes))
    }

    /// Whether the metadata is available: it is in this process, or its server answered not long
    /// ago.
    pub fn is_connected(&self) -> bool {
        self.client().is_none_or(|client| client.heard.lock().elapsed() < ABSENT_AFTER)
    }

    /// The periodic work of a client, each second, unless waits for stores delay it.
    pub(crate) fn tick_client(&self) -> Result<()> {
        let Some(client) = self.client() else { return Ok(()) };
        // A step that fails ends the tick, as the server is away; one that panics does not.
        let step = |what, work: &dyn Fn() -> Result<()>| self.beside(what, work).unwrap_or(Ok(()));
        step("forgetting what is lost", &|| {
            if client.sets.take_lost() {
                self.table.all().iter().for_each(|file| _ = self.forget_lost(&mut file.state()));
            }
            Ok(())
        })?;
        if !self.is_read_only() {
            step("renewing chunk sets", &|| client.sets.renew(&self.store))?;
        }
        step("looking for moved chunks", &|| self.store.look_for_moved())?;
        step("telling what sets lack", &|| {
            self.store.forget_synced();
            self.store.tell_lacking()
        })?;
        step("releasing chunk sets", &|| {
            let sealed: Vec<SetId> = client.sets.taken().into_iter().filter(|&set| self.is_done_with(set)).collect();
            client.sets.release(&sealed)
        })?;
        if !self.is_read_only() {
            step("getting chunk sets", &|| client.sets.refill(&self.store).map(drop))?;
        }
        step("telling what is clean", &|| self.tell_clean(client))?;
        step("syncing old changes", &|| Ok(client.cache.sync_old(SYNC_INTERVAL)?))?;
        step("settling locks", &|| self.settle_locks(client))
    }

    /// Whether no thread writes to a set any more, and no uncommitted data refers to it.
    fn is_done_with(&self, set: SetId) -> bool {
        !self.store.is_in_use(set) && self.table.uncommitted_in(set).is_empty()
    }

    /// Reports to the server which files have nothing uncommitted any more.
    fn tell_clean(&self, client: &Client) -> Result<()> {
        self.settle_reservations(client, None);
        let writes = |ino: &Ino| client.open.lock().files.get(ino).is_some_and(|(_, writers)| *writers > 0);
        // The numbers are older than the check: a file that is written meanwhile does not count as
        // clean.
        let all: Vec<(Ino, u64)> = client.dirty.lock().iter().map(|(&ino, &number)| (ino, number)).collect();
        let owed = client.owed.lock().clone();
        let is_due = |ino: &Ino| owed.contains_key(ino) || !writes(ino);
        let clean: Vec<(Ino, u64)> = all.into_iter().filter(|(ino, _)| is_due(ino) && self.is_clean(*ino)).collect();
        if !clean.is_empty() {
            client.session.clean(&clean)?;
            client.owes_none(&clean);
            let closed: Vec<(Ino, u64)> = clean.into_iter().filter(|(ino, _)| !writes(ino)).collect();
            let mut dirty = client.dirty.lock();
            for (ino, number) in closed {
                if dirty.get(&ino) == Some(&number) {
                    dirty.remove(&ino);
                    let mut reservations = client.reservations.lock();
                    if reservations.get(&ino).is_some_and(Reserved::is_idle) {
                        reservations.remove(&ino);
                    }
                }
            }
        }
        Ok(())
    }

    /// Drops reservations whose data is committed: from then on the metadata has the size of the
    /// file, even when other clients truncate it.
    fn settle_reservations(&self, client: &Client, only: Option<Ino>) {
        let reservations = client.reservations.lock().clone();
        let committed = |(ino, reserved): &(Ino, Reserved)| {
            only.is_none_or(|only| only == *ino) && reserved.is_idle() && self.is_clean(*ino)
        };
        for (ino, reserved) in reservations.into_iter().filter(committed) {
            // Keep it if there was another append meanwhile.
            let mut reservations = client.reservations.lock();
            if reservations.get(&ino) == Some(&reserved) {
                reservations.remove(&ino);
            }
        }
    }

    fn is_clean(&self, ino: Ino) -> bool {
        self.table.find(ino).is_none_or(|file| file.state().buffer.is_clean())
    }

    /// Other clients want to read these files: commits them. Without a question: other clients
    /// exist from now on.
    pub fn recall(&self, questions: &[Question]) {
        let Some(client) = self.client() else { return };
        if questions.is_empty() {
            // Another client joins. The second heartbeat confirms that this client knows.
            let done = self.heartbeat().and_then(|()| self.heartbeat());
            return done.unwrap_or_else(|error| self.volume.warn(&error.to_string()));
        }
        for &(ino, question) in questions {
            let mut recalled = client.recalled.lock();
            // A thread that commits the file already will answer this question, too.
            let is_new = recalled.get(&ino).is_none();
            recalled.entry(ino).and_modify(|last| *last = question.max(*last)).or_insert(question);
            drop(recalled);
            if is_new {
                self.answer_recalls(client, ino);
            }
        }
    }

    /// Commits a file, and again if another question arrived meanwhile.
    fn answer_recalls(&self, client: &Client, ino: Ino) {
        let _answered = Answering { client, ino };
        loop {
            let Some(question) = client.recalled.lock().get(&ino).copied() else { return };
            let mut number = client.last_write_of(ino);
            if let Some(Err(error)) = self.table.find(ino).map(|file| self.hand_over(&file)) {
                // Answer despite the error: the other client sees what was committed before. The
                // number 0 says that there is still uncommitted data.
                number = 0;
                self.volume.warn(&format!("cannot commit what another client wants to read: {error}"));
            }
            self.settle_reservations(client, Some(ino));
            let is_settled = !client.reservations.lock().contains_key(&ino);
            if let Err(error) = self.answer_recall(client, ino, number, question, is_settled) {
                self.volume.warn(&error.to_string());
            }
            let mut recalled = client.recalled.lock();
            if recalled.get(&ino) == Some(&question) {
                recalled.remove(&ino);
                return;
            }
        }
    }

    /// What was written to a file before a number is committed. If it `is_settled`, no append is
    /// under way. Otherwise an answer with the number would end its reservation.
    fn answer_recall(&self, client: &Client, ino: Ino, number: u64, question: u64, is_settled: bool) -> Result<()> {
        if is_settled {
            client.session.recalled(ino, number, question)?;
        } else {
            client.session.clean(&[(ino, number)])?;
            client.session.recalled(ino, 0, question)?;
        }
        client.owes_none(&[(ino, number)]);
        Ok(())
    }

    /// Ends the session after everything was committed.
    pub(crate) fn end_session(&self, client: &Client) -> Result<()> {
        client.sets.release_ahead()?;
        *client.ended.lock() = true;
        Ok(client.session.end()?)
    }
}

impl Client {
    /// The number of the session.
    pub fn number(&self) -> SessionId {
        SessionId(self.number.load(Ordering::SeqCst))
    }

    /// Sets the number of the session.
    pub fn set_number(&self, session: SessionId) {
        self.number.store(session.0, Ordering::SeqCst);
    }

    /// The opening whose server this client uses.
    pub fn opening(&self) -> u64 {
        self.cache.opening().number
    }

    /// Drops the append reservations: they belonged to the old session.
    pub fn forget_reserved(&self) {
        let mut reservations = self.reservations.lock();
        reservations.retain(|_, reserved| !reserved.is_idle());
        reservations.values_mut().for_each(|reserved| reserved.end = 0);
    }

    /// Counts an open or close by a writer; returns its number.
    fn number_of_write(&self, ino: Ino) -> u64 {
        let mut dirty = self.dirty.lock();
        let number = self.writes.fetch_add(1, Ordering::Relaxed) + 1;
        dirty.insert(ino, number);
        number
    }

    /// The number of the last open or close of a file by a writer, or of a later one.
    fn last_write_of(&self, ino: Ino) -> u64 {
        let dirty = self.dirty.lock();
        dirty.get(&ino).copied().unwrap_or_else(|| self.writes.load(Ordering::Relaxed))
    }

    /// A file could not be committed when it was unlocked. Returns the number of that.
    fn owe(&self, ino: Ino) -> u64 {
        let number = self.number_of_write(ino);
        self.owed.lock().insert(ino, number);
        number
    }

    /// The server knows that these files have nothing uncommitted from before these numbers.
    fn owes_none(&self, clean: &[(Ino, u64)]) {
        let mut owed = self.owed.lock();
        for (ino, number) in clean {
            if owed.get(ino).is_some_and(|of| of <= number) {
                owed.remove(ino);
            }
        }
    }

    /// Sends nothing more to the server, as if the process had died.
    pub fn die(&self) {
        *self.ended.lock() = true;
    }
}
