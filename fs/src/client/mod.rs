//! A volume whose metadata a server has: data goes straight to the targets, what names it goes to the server.

pub mod cache;
pub mod ending;
pub mod fence;
pub mod locks;
pub mod removals;
pub mod sharing;

use crate::client::cache::{Cache, ExclusiveLease};
use crate::client::ending::Ending;
use crate::client::locks::OwnLocks;
use crate::client::removals::Removals;
use crate::data::sets::Leased;
use crate::data::sharing::Sharing;
use crate::data::store::{Options, Store};
use crate::mutex::lock;
use crate::role::Role;
use crate::session::Question;
use crate::volume::history::History;
use crate::volume::label::{Label, Member, Role as TargetRole};
use crate::volume::opened::Opened;
use crate::{Error, FileSystem, OpenOptions, Result};
use meta::port::{Port, Session, Welcome};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};
use volume::Targets;
use volume::format::VolumeId;
use volume::target::Target;

/// Opens the target that a label names.
pub type Find = Box<dyn Fn(&Member) -> Result<Arc<dyn Target>> + Send + Sync>;

/// The way to a metadata server.
pub struct Server {
    /// Names, attributes and extents.
    pub port: Arc<dyn Port>,
    /// Sets, openers and what else belongs to this client.
    pub session: Arc<dyn Session>,
    /// What the server said when the session began.
    pub welcome: Welcome,
    /// Opens targets.
    pub find: Find,
    /// What the way to the server hears of this client's end.
    pub ending: Arc<Ending>,
}

/// Ranges behind the end of a file that are this client's alone.
#[derive(Clone, Copy, Default, PartialEq)]
struct Reserved {
    /// Where the last one ends.
    end: u64,
    /// How many appends have one, and did not put their bytes there yet.
    waiting: u32,
}

/// The client's side of its session.
pub(crate) struct Client {
    pub session: Arc<dyn Session>,
    /// What is locked here.
    pub locks: OwnLocks,
    number: AtomicU64,
    name: String,
    /// The start of the server's machine.
    start: AtomicU64,
    pub sets: Arc<Leased>,
    pub(crate) removals: Removals,
    pub(crate) find: Find,
    /// Files that are open: all openers, and those that write.
    open: Mutex<HashMap<u64, (u32, u32)>>,
    /// Files that were opened for writing and that the server was not told to be clean, with the number of the last opening or closing.
    dirty: Mutex<BTreeMap<u64, u64>>,
    /// Files that are being committed for others, with the last question for each.
    recalled: Mutex<HashMap<u64, u64>>,
    /// The ranges that appends got, of files in `dirty`, for as long as something of them is not committed.
    ends: Mutex<HashMap<u64, Reserved>>,
    /// Openings and closings by writers so far.
    writes: AtomicU64,
    generation: AtomicU64,
    pub(crate) exclusive: Arc<ExclusiveLease>,
    pub(crate) cache: Arc<Cache>,
    /// When the server answered a beat last.
    heard: Mutex<Instant>,
    /// Whether the session ended. Held by who says that it lives.
    ended: Mutex<bool>,
    ending: Arc<Ending>,
    /// Something that was written is lost, which was not said to who syncs everything.
    loss: AtomicBool,
}

/// A client says so often that it lives, or four times in a lease.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// What a client changed is durable after this time, and a moment, whether or not somebody syncs it. The server has made it durable long before, as a rule.
const UNSYNCED_FOR: Duration = Duration::from_secs(5);

/// A server that did not answer for so long is away.
const SILENCE: Duration = Duration::from_secs(10);

/// Says that a client lives, whatever else it waits for.
fn send_heartbeats(fs: &Weak<FileSystem>, pause: Duration) {
    loop {
        std::thread::sleep(pause);
        let Some(fs) = fs.upgrade() else { return };
        if fs.client().is_none_or(|client| *lock(&client.ended)) {
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

impl FileSystem {
    /// Opens a volume whose metadata a server has. `name` is what the server calls this client.
    ///
    /// # Errors
    /// When the label that the server gave is none that this version understands.
    pub fn connect(server: Server, name: &str, options: OpenOptions) -> Result<Arc<Self>> {
        let Server { port, session, welcome, find, ending } = server;
        let label = Label::from_json(&welcome.label)?;
        let code = ec::parse(&label.code).map_err(|why| Error::Invalid(why.to_string()))?;
        let store_options = Options {
            volume: VolumeId(label.id()?),
            code,
            chunk_bytes: label.chunk_bytes,
            durability: label.durability,
            coding: options.coding.unwrap_or(label.coding),
        };
        let sets = Arc::new(Leased::new(session.clone()));
        let exclusive = Arc::new(ExclusiveLease::default());
        let cache = Arc::new(Cache::new(port.clone(), exclusive.clone()));
        let store = Store::new(
            Arc::new(Targets::new()),
            port,
            sets.clone(),
            store_options,
            History::default(),
            welcome.first_stripe,
        );
        let client = Client {
            session,
            locks: OwnLocks::default(),
            number: AtomicU64::new(welcome.session),
            start: AtomicU64::new(welcome.start),
            name: name.into(),
            sets,
            removals: Removals::default(),
            find,
            open: Mutex::default(),
            dirty: Mutex::default(),
            recalled: Mutex::default(),
            ends: Mutex::default(),
            writes: AtomicU64::new(0),
            generation: AtomicU64::new(0),
            exclusive,
            cache: cache.clone(),
            heard: Mutex::new(Instant::now()),
            ended: Mutex::new(false),
            ending,
            loss: AtomicBool::new(false),
        };
        let pause = (Duration::from_millis(welcome.lease_ms.into()) / 4).min(HEARTBEAT);
        let fs = Self::assemble(cache, Role::Client(Box::new(client)), store, Opened::served(label, options));
        fs.look_at_targets()?;
        fs.heartbeat()?;
        fs.background.start(&fs);
        let weak = Arc::downgrade(&fs);
        std::thread::spawn(move || send_heartbeats(&weak, pause));
        Ok(fs)
    }

    /// Opens the targets of the label that were not open yet, and closes those that are no longer in it.
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
        *lock(&self.volume.missing) = missing;
        client.generation.store(label.generation, Ordering::Relaxed);
        Ok(())
    }

    /// Says that this client lives, and hears what changed.
    fn heartbeat(&self) -> Result<()> {
        let Some(client) = self.client() else { return Ok(()) };
        let beat = {
            // One at a time, so that what is heard last was said last.
            let ended = lock(&client.ended);
            if *ended {
                return Ok(());
            }
            let asked = Instant::now();
            let beat = client.session.heartbeat()?;
            client.exclusive.hear(asked, beat.others, Instant::now());
            beat
        };
        *lock(&client.heard) = Instant::now();
        client.removals.hear(beat.removed);
        // Where too few targets say what room they have, as under much load, what was known before is more likely than that there is none.
        if beat.total > 0 {
            self.room.set(beat.total, beat.free);
        }
        if beat.generation > client.generation.load(Ordering::Relaxed) {
            let label = Label::from_json(&client.session.label()?)?;
            *lock(&self.volume.label) = label;
            self.look_at_targets()?;
        }
        Ok(())
    }

    /// The client is about to end. All that waits for a metadata server that is gone ends together from now on, and what comes later does not wait again.
    pub fn begin_end(&self) {
        if let Some(client) = self.client() {
            client.ending.begin();
        }
    }

    /// How many files have data that is in no transaction, and how much that is.
    pub fn uncommitted(&self) -> (usize, u64) {
        let bytes = self.table.all().into_iter().map(|file| file.state().buffer.uncommitted_bytes());
        bytes.filter(|bytes| *bytes > 0).fold((0, 0), |(files, sum), bytes| (files + 1, sum + bytes))
    }

    /// Whether the metadata can be asked: it is here, or its server answered not long ago.
    pub fn is_connected(&self) -> bool {
        self.client().is_none_or(|client| lock(&client.heard).elapsed() < SILENCE)
    }

    /// What a client does every second, when stores do not keep it from that.
    pub(crate) fn tick_client(&self) -> Result<()> {
        let Some(client) = self.client() else { return Ok(()) };
        if client.sets.take_lost() {
            self.table.all().iter().for_each(|file| _ = self.forget_lost(&mut file.state()));
        }
        if !self.is_read_only() {
            client.sets.renew(&self.store)?;
        }
        let sealed: Vec<u64> = client.sets.taken().into_iter().filter(|&set| self.is_done_with(set)).collect();
        client.sets.release(&sealed)?;
        if !self.is_read_only() {
            client.sets.refill(&self.store)?;
        }
        self.tell_clean(client)?;
        Ok(client.cache.sync_old(UNSYNCED_FOR)?)
    }

    /// Whether nothing is written to a set any more, and nothing uncommitted refers to it.
    fn is_done_with(&self, set: u64) -> bool {
        !self.store.is_in_use(set) && self.table.uncommitted_in(set).is_empty()
    }

    /// Tells the server which files have nothing uncommitted any more.
    fn tell_clean(&self, client: &Client) -> Result<()> {
        self.settle_reservations(client, None);
        let writes = |ino: &u64| lock(&client.open).get(ino).is_some_and(|(_, writers)| *writers > 0);
        // The numbers are older than what is looked at: who writes meanwhile is not meant.
        let all: Vec<(u64, u64)> = lock(&client.dirty).iter().map(|(&ino, &number)| (ino, number)).collect();
        let clean: Vec<(u64, u64)> = all.into_iter().filter(|(ino, _)| !writes(ino) && self.is_clean(*ino)).collect();
        if !clean.is_empty() {
            client.session.clean(&clean)?;
            let mut dirty = lock(&client.dirty);
            for (ino, number) in clean {
                if dirty.get(&ino) == Some(&number) {
                    dirty.remove(&ino);
                    lock(&client.ends).remove(&ino);
                }
            }
        }
        Ok(())
    }

    /// Forgets ranges that are committed: how long their files are is what the metadata says, also when others cut them off.
    fn settle_reservations(&self, client: &Client, only: Option<u64>) {
        let ends = lock(&client.ends).clone();
        let committed = |(ino, reserved): &(u64, Reserved)| {
            only.is_none_or(|only| only == *ino) && reserved.waiting == 0 && self.is_clean(*ino)
        };
        for (ino, reserved) in ends.into_iter().filter(committed) {
            // Not if there was another append meanwhile.
            if lock(&client.ends).get(&ino) == Some(&reserved) {
                lock(&client.ends).remove(&ino);
            }
        }
    }

    fn is_clean(&self, ino: u64) -> bool {
        self.table.find(ino).is_none_or(|file| file.state().buffer.is_clean())
    }

    /// Others want to see what was written to these files: commits it. Without a question: there are others from now on.
    pub fn recall(&self, questions: &[Question]) {
        let Some(client) = self.client() else { return };
        if questions.is_empty() {
            // Another client joins. The second one says that this client heard so.
            let done = self.heartbeat().and_then(|()| self.heartbeat());
            return done.unwrap_or_else(|error| self.volume.warn(&error.to_string()));
        }
        for &(ino, question) in questions {
            let mut recalled = lock(&client.recalled);
            // Somebody is at it already, and goes on with this one.
            let is_new = recalled.get(&ino).is_none();
            recalled.entry(ino).and_modify(|last| *last = question.max(*last)).or_insert(question);
            drop(recalled);
            if is_new {
                self.answer_recalls(client, ino);
            }
        }
    }

    /// Commits a file, and once more if that was asked for meanwhile.
    fn answer_recalls(&self, client: &Client, ino: u64) {
        loop {
            let Some(question) = lock(&client.recalled).get(&ino).copied() else { return };
            let mut number = lock(&client.dirty).get(&ino).copied().unwrap_or(0);
            if let Some(file) = self.table.find(ino) {
                let done = self.hand_over(&file);
                self.settle_reservations(client, Some(ino));
                if let Err(error) = done {
                    // Answered all the same: the other one sees what was committed before. There is something uncommitted still.
                    number = 0;
                    self.volume.warn(&format!("cannot commit what another client wants to read: {error}"));
                }
            }
            if let Err(error) = client.session.recalled(ino, number, question) {
                self.volume.warn(&error.to_string());
            }
            let mut recalled = lock(&client.recalled);
            if recalled.get(&ino) == Some(&question) {
                recalled.remove(&ino);
                return;
            }
        }
    }

    /// Has the server know who takes up a session that it forgot: which sets it writes to, and what it has open. `have` hears first which session this client has
    /// from now on: another one if the old one ended.
    ///
    /// # Errors
    /// When the server does not answer.
    pub fn reclaim(&self, session: &dyn Session, have: &dyn Fn(&Welcome)) -> meta::Result<()> {
        let Some(client) = self.client() else { return Ok(()) };
        let _one_at_a_time = lock(&client.cache.taking_up);
        // No other locks than those of the client itself: whoever waits for the server may have them.
        let told = client.sets.tell();
        let welcome = session.begin(Some(client.number()), client.name.clone(), told.clone())?;
        have(&welcome);
        let any_lost = client.sets.keep(&told, &welcome.kept) > 0;
        if welcome.lapsed {
            self.fence(client, welcome.session);
        } else if any_lost {
            self.volume.warn("this client was silent for too long: what it wrote and did not sync may be lost");
        }
        if !welcome.fresh {
            return Ok(());
        }
        if client.start.swap(welcome.start, Ordering::SeqCst) != welcome.start && client.cache.lose_unsynced() {
            client.note_loss();
            self.volume.warn(
                "the metadata server's machine was started again: what this client did and did not sync may be lost",
            );
        }
        let open: Vec<(u64, (u32, u32))> = lock(&client.open).iter().map(|(&ino, &count)| (ino, count)).collect();
        for (ino, (all, writers)) in open {
            for opener in 0..all {
                session.reclaim_open(ino, if opener < writers { client.number_of_write(ino) } else { 0 })?;
            }
        }
        let kept = client.removals.kept();
        if !kept.is_empty() {
            session.removed(0, &kept, &[])?;
        }
        if client.lock_again(session)? > 0 {
            self.volume.warn("another client took a lock while the metadata server was away: its holder is told at its next operation");
        }
        // Ranges that appends got, and that nobody else may get. Not from the files themselves: whoever waits for the server has them locked.
        let ends: Vec<(u64, u64)> = lock(&client.ends).iter().map(|(&ino, of)| (ino, of.end)).collect();
        for (ino, end) in ends {
            session.reclaim_append(ino, end)?;
        }
        let dirty: Vec<u64> = lock(&client.dirty).keys().copied().collect();
        for ino in dirty {
            session.reclaim_open(ino, client.number_of_write(ino))?;
            session.close(ino, 0)?;
        }
        session.reclaim_complete()
    }

    /// Ends the session, after everything was committed.
    pub(crate) fn end_session(&self, client: &Client) -> Result<()> {
        client.sets.release_ahead()?;
        *lock(&client.ended) = true;
        Ok(client.session.end()?)
    }
}

impl Client {
    /// The session.
    pub fn number(&self) -> u64 {
        self.number.load(Ordering::SeqCst)
    }

    /// It is this one from now on.
    pub fn set_number(&self, session: u64) {
        self.number.store(session, Ordering::SeqCst);
    }

    /// The ranges that appends got are others' now.
    pub fn forget_reserved(&self) {
        let mut ends = lock(&self.ends);
        ends.retain(|_, reserved| reserved.waiting > 0);
        ends.values_mut().for_each(|reserved| reserved.end = 0);
    }

    /// Notes that a file is opened or closed by a writer; returns the number of that.
    fn number_of_write(&self, ino: u64) -> u64 {
        let mut dirty = lock(&self.dirty);
        let number = self.writes.fetch_add(1, Ordering::Relaxed) + 1;
        dirty.insert(ino, number);
        number
    }

    /// Says nothing more to the server, as the death of the process would.
    pub fn die(&self) {
        *lock(&self.ended) = true;
    }
}
