//! Making a volume, opening and closing it.

use crate::client::Client;
use crate::data::sets::Placed;
use crate::data::store::{Options, Store, block_bytes};
use crate::data::{background, file, limits};
use crate::maintenance::{collect, compact, strays};
use crate::volume::find::{Found, find};
use crate::volume::history::{self, History};
use crate::volume::label::{Label, Member, POINTER, Role};
use crate::volume::places::{Directories, Places};
use crate::volume::warnings;
use crate::volume::warnings::Warnings;
use crate::{Engine, Error, FileSystem, Result, mutex, now, sessions};
use meta::journal::{Journaled, Limits};
use meta::kv::{Index, MemoryIndex, RedbIndex, ScratchIndex};
use plan::coding::Coding;
use plan::placement::Placement;
use plan::{Domain, TargetId};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use volume::Targets;
use volume::format::VolumeId;
use volume::target::{Shadow, Space, Target};

/// The index of the metadata in the volume directory. It is made again when it is lost.
pub(crate) const INDEX: &str = "index.redb";
/// What was committed and is on no target yet, there, for a volume that has clients.
const TAIL: &str = "tail";
/// The first data in flight that makes writers wait.
const MEMORY_BYTES: u64 = 128 << 20;
/// The number of the first stripe after an opening is that of the opening, times this.
pub(crate) const STRIPES_PER_OPENING: u64 = 1 << 40;

/// A volume to be made.
#[derive(Clone, Debug)]
pub struct Create {
    /// What its owner calls it.
    pub name: String,
    /// The code.
    pub code: String,
    /// The length that a chunk may have.
    pub chunk_bytes: u32,
    /// How many targets must have a stripe before it is acknowledged; None: one more than k, or k when m is 0.
    pub durability: Option<usize>,
    /// Who codes stripes where clients do not say otherwise.
    pub coding: Coding,
    /// Where the targets are to be, at least as many as the code has blocks.
    pub targets: Vec<PathBuf>,
    /// What some of them fail together with. A storage server's targets are in the domain that it says; others are on their own.
    pub domains: Vec<(PathBuf, Domain)>,
    /// How chunk sets are placed.
    pub placement: Placement,
    /// Knows what is at these places.
    pub places: Arc<dyn Places>,
}

/// Hears of what goes wrong without being an error to anybody, a line each.
pub type Warn = Box<dyn Fn(&str) + Send + Sync>;

/// How a volume is opened.
pub struct OpenOptions {
    /// Nothing is changed, neither in the volume nor on its targets.
    pub read_only: bool,
    /// Hears of what goes wrong without being an error to anybody.
    pub warn: Option<Warn>,
    /// Clients are served, see [`Sessions`](crate::Sessions); those of before a crash may come back and are waited for.
    pub serve: bool,
    /// Who codes stripes; None: what the volume says.
    pub coding: Option<Coding>,
    /// Knows what is at the places of the targets.
    pub places: Arc<dyn Places>,
    /// Memory for what is kept of the metadata, about.
    pub metadata_bytes: usize,
    /// Of a volume that is only read: only its files are of interest, not how many copies of the metadata there are. What copies lack is then not made again
    /// in memory, where all that is written goes.
    pub files_only: bool,
    /// Refuses, as [`Error::Unavailable`], while more targets do not answer than the code can miss: they may be about to start, and what they have be newer.
    pub insists: bool,
}

/// What is enough for metadata, and what it can do with.
pub const METADATA_BYTES: std::ops::RangeInclusive<usize> = 8 << 20..=128 << 20;

impl Default for OpenOptions {
    fn default() -> Self {
        let (places, metadata_bytes) = (Arc::new(Directories), *METADATA_BYTES.end());
        Self {
            read_only: false,
            warn: None,
            serve: false,
            coding: None,
            places,
            metadata_bytes,
            files_only: false,
            insists: false,
        }
    }
}

/// What is known of an open volume.
pub(crate) struct Opened {
    /// The volume directory; None for one on given targets.
    pub directory: Option<PathBuf>,
    pub label: Mutex<Label>,
    /// Held by the one that has targets come, go, or be emptied.
    pub changing: Mutex<()>,
    pub read_only: bool,
    pub warn: Option<Warn>,
    pub warnings: Warnings,
    pub places: Arc<dyn Places>,
    /// Targets that were not found, and why.
    pub missing: Mutex<HashMap<TargetId, String>>,
    /// Keeps others from opening it.
    pub _lock: Option<std::fs::File>,
}

/// The first number of the stripes of a session. Those of an opening that serves nobody are lower than those of its sessions.
pub(crate) fn first_stripe_of(session: u64) -> u64 {
    let (opening, number) = (session >> 32, session & u64::from(u32::MAX));
    (opening + 1) * STRIPES_PER_OPENING + (number << 26) % STRIPES_PER_OPENING
}

impl Opened {
    /// Of a volume whose metadata a server has.
    pub fn served(label: Label, options: OpenOptions) -> Self {
        Self {
            directory: None,
            label: Mutex::new(label),
            changing: Mutex::default(),
            read_only: options.read_only,
            warn: options.warn,
            warnings: Warnings::default(),
            places: options.places,
            missing: Mutex::default(),
            _lock: None,
        }
    }

    /// Says what goes wrong. What is said again and again is heard now and then.
    pub fn warn(&self, what: &str) {
        if let Some(warn) = &self.warn
            && let Some(line) = self.warnings.line(what)
        {
            warn(&line);
        }
    }

    pub fn label(&self) -> Label {
        mutex::lock(&self.label).clone()
    }
}

fn random_id() -> [u8; 16] {
    let mut id = [0; 16];
    // Never all zeroes, which is no id.
    id[0] = 1;
    fastrand::Rng::new().fill(&mut id[1..]);
    id
}

/// Who makes a volume owns its root directory.
fn owner() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

/// Locks a volume directory, so that it is open once.
pub(crate) fn lock(directory: &Path) -> Result<std::fs::File> {
    use rustix::fs::{FlockOperation, flock};
    let cannot = |why: &dyn std::fmt::Display| {
        Error::Conflict(format!("cannot lock the volume {}: {why}", volume::Shown(directory)))
    };
    let file = std::fs::File::open(directory).map_err(|why| cannot(&why))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::Conflict(format!(
            "the volume {} is open in another process; if it is mounted, use the mount point",
            volume::Shown(directory)
        ))),
        Err(why) => Err(cannot(&why)),
    }
}

impl Create {
    /// Makes the volume: labels on its targets, a pointer in `directory`, and a root directory.
    ///
    /// # Errors
    /// When the code cannot be used, there are too few targets or one is in use, or something cannot be written.
    pub fn run(&self, directory: &Path) -> Result<()> {
        let code = ec::parse(&self.code).map_err(|why| Error::Invalid(why.to_string()))?;
        let shape = code.shape();
        if self.targets.len() < shape.blocks() {
            return Err(Error::Invalid(format!(
                "{} needs {} directories, one for each block of a stripe, and {} were given",
                code.spec(),
                shape.blocks(),
                self.targets.len()
            )));
        }
        let wanted = self.durability.unwrap_or(shape.k + usize::from(shape.m > 0));
        if !(shape.k..=shape.blocks()).contains(&wanted) {
            return Err(Error::Invalid(format!(
                "durability must be between {} and {}, the data blocks and all blocks of {}",
                shape.k,
                shape.blocks(),
                code.spec()
            )));
        }
        let least = 2 * (block_bytes(shape.k) as u32 + 65_536);
        if self.chunk_bytes < least || self.chunk_bytes > 1 << 30 {
            return Err(Error::Invalid(format!("a chunk can have {least} bytes to 1 GiB")));
        }
        if directory.join(POINTER).exists() {
            return Err(Error::Conflict(format!("{} is a volume already", volume::Shown(directory))));
        }
        let targets: Vec<PathBuf> = self.targets.iter().map(|path| self.places.full(path)).collect::<Result<_>>()?;
        let (members, spec) = (self.members(&targets)?, code.spec().to_string());
        let label = Label::new(random_id(), &self.name, &spec, self.chunk_bytes, wanted, members);
        let label = Label { coding: self.coding, placement: self.placement, ..label };
        // Tried before anything is changed elsewhere.
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(|why| Error::Invalid(format!("cannot make {}: {why}", volume::Shown(directory))))?;
        let probe = directory.join(format!("{POINTER}.new"));
        let probed = std::fs::write(&probe, []).and_then(|()| std::fs::remove_file(&probe));
        probed.map_err(|why| cannot_write(directory, &why))?;
        let disks: Vec<Arc<dyn Target>> = targets.iter().map(|path| self.places.format(path)).collect::<Result<_>>()?;
        for (disk, member) in disks.iter().zip(&label.targets) {
            label.write(&**disk, member.id).map_err(|why| cannot_write(&member.path, &why))?;
        }
        let disks = disks.into_iter().zip(&label.targets).map(|(disk, member)| (member.id, disk));
        begin(&label, disks.collect())?;
        label.write_pointer(directory).map_err(|why| cannot_write(directory, &why))
    }
}

impl Create {
    /// The targets with their domains.
    fn members(&self, targets: &[PathBuf]) -> Result<Vec<Member>> {
        let mut given = BTreeMap::new();
        for (path, domain) in &self.domains {
            let full = self.places.full(path)?;
            if !targets.contains(&full) {
                let shown = volume::Shown(path);
                return Err(Error::Invalid(format!("a domain is given for {shown}, which is not among the targets")));
            }
            given.insert(full, domain.clone());
        }
        let member = |(number, path): (usize, &PathBuf)| {
            let domain = given.remove(path).map_or_else(|| self.places.domain(path), |domain| Ok(Some(domain)))?;
            Ok(Member { domain, ..Member::new(TargetId(number as u16), path.clone()) })
        };
        targets.iter().enumerate().map(member).collect()
    }
}

/// Begins the metadata of a new volume, with a root directory in it.
pub(crate) fn begin(label: &Label, targets: Vec<(TargetId, Arc<dyn Target>)>) -> Result<()> {
    let code = ec::parse(&label.code).map_err(|why| Error::Invalid(why.to_string()))?;
    let spaces: Vec<Space> = targets.iter().filter_map(|(_, target)| target.space().ok()).collect();
    let journal = Arc::new(Journaled::create(meta::journal::Options {
        volume: label.id()?,
        targets,
        mirrors: code.shape().m + 1,
        index: Box::new(MemoryIndex::default()),
        merge: meta::MERGE,
        limits: journal_limits(spaces),
        accept_loss: false,
    })?);
    meta::Meta::open(journal.clone(), owner(), now())?;
    Ok(journal.close()?)
}

/// The sizes of a journal on targets with so much room.
fn journal_limits(spaces: impl IntoIterator<Item = Space>) -> Limits {
    Limits::for_targets(spaces.into_iter().map(|space| space.total).min().unwrap_or(u64::MAX))
}

fn cannot_write(path: &Path, why: &std::io::Error) -> Error {
    Error::Invalid(format!("cannot write to {}: {why}", volume::Shown(path)))
}

/// A target for the metadata. Opening writes to it, if only that it was opened; for who may only read, that stays in memory.
fn journal_target(target: &Arc<dyn Target>, read_only: bool) -> Arc<dyn Target> {
    if read_only { Arc::new(Shadow::new(target.clone())) } else { target.clone() }
}

impl FileSystem {
    /// Opens a volume.
    ///
    /// # Errors
    /// When the directory holds no volume, when the volume is open elsewhere or of a newer format, and when too few of its
    /// targets are there: `Unavailable` if some of them do not answer.
    pub fn open_volume(directory: &Path, options: OpenOptions) -> Result<Arc<Self>> {
        let pointer = Label::read_pointer(directory)?;
        let guard = lock(directory)?;
        let places = options.places.clone();
        let found = find(&places, pointer)?;
        let silent = found.silent;
        let index: Box<dyn Index> = match options.read_only {
            true => Box::new(ScratchIndex::new(options.metadata_bytes)),
            false => Self::index(&directory.join(INDEX), options.metadata_bytes)?,
        };
        let opened = Self::open_with(Some((Directories.full(directory)?, guard)), found, index, options);
        opened.map_err(|error| match error {
            // With them it may be another matter.
            Error::Meta(_) | Error::Volume(_) if silent > 0 => Error::Unavailable(error.to_string()),
            error => error,
        })
    }

    /// The index of the metadata; one that is damaged is made again.
    fn index(path: &Path, cache_bytes: usize) -> Result<Box<dyn Index>> {
        match RedbIndex::open_with(path, cache_bytes) {
            Ok(index) => Ok(Box::new(index)),
            Err(_) => {
                let _ = std::fs::remove_file(path);
                Ok(Box::new(RedbIndex::open_with(path, cache_bytes)?))
            }
        }
    }

    /// Makes a volume on targets that the caller has, without a volume directory: for simulators and tests. The labels are not written.
    ///
    /// # Errors
    /// When the label is none, or the metadata cannot be written.
    pub fn create_on(label: &Label, targets: Vec<(TargetId, Arc<dyn Target>)>) -> Result<()> {
        begin(label, targets)
    }

    /// Opens a volume on targets that the caller has, without a volume directory: for simulators and tests. `index` may be empty. Members of the
    /// label that are not among the targets are missing.
    ///
    /// # Errors
    /// When too few of its targets are there.
    pub fn open_on(
        label: Label,
        targets: Vec<(TargetId, Arc<dyn Target>)>,
        index: Box<dyn Index>,
        options: OpenOptions,
    ) -> Result<Arc<Self>> {
        let disks: BTreeMap<TargetId, Arc<dyn Target>> = targets.into_iter().collect();
        let missing = label.members().map(|member| member.id).filter(|id| !disks.contains_key(id));
        let missing = missing.map(|id| (id, "it was not given".into())).collect();
        Self::open_with(None, Found { label, disks, missing, silent: 0 }, index, options)
    }

    fn open_with(
        place: Option<(PathBuf, std::fs::File)>,
        found: Found,
        index: Box<dyn Index>,
        options: OpenOptions,
    ) -> Result<Arc<Self>> {
        let (directory, lock) = place.unzip();
        found.suffices(options.insists)?;
        let Found { label, disks, missing, .. } = found;
        let code = ec::parse(&label.code).map_err(|why| Error::Invalid(why.to_string()))?;
        let shape = code.shape();
        let volume = label.id()?;
        let targets = Arc::new(Targets::new());
        for (&id, disk) in &disks {
            targets.add(id, disk.clone());
        }
        let limits = journal_limits(targets.spaces(false).into_iter().map(|(_, space)| space));
        let journal = Arc::new(Journaled::open(meta::journal::Options {
            volume,
            targets: disks.iter().map(|(&id, disk)| (id, journal_target(disk, options.read_only))).collect(),
            mirrors: if options.read_only && options.files_only { 1 } else { shape.m + 1 },
            index,
            merge: meta::MERGE,
            limits: Limits {
                overlay_bytes: limits.overlay_bytes.min(options.metadata_bytes / 4),
                pending_bytes: limits.pending_bytes.min(options.metadata_bytes / 4),
                ..limits
            },
            accept_loss: false,
        })?);
        if let Some(directory) = directory.as_ref().filter(|_| options.serve) {
            journal.keep_tail(&directory.join(TAIL)).map_err(meta::Error::from)?;
        }
        let meta = Arc::new(meta::Meta::open(journal.clone(), owner(), now())?);
        let opening: u64 = meta.setting("openings")?.unwrap_or(0);
        let store_options = Options {
            volume: VolumeId(volume),
            code,
            chunk_bytes: label.chunk_bytes,
            durability: label.durability,
            coding: options.coding.unwrap_or(label.coding),
        };
        let sets = Arc::new(Placed(meta.clone()));
        let history = History::new(meta.setting(history::SETTING)?.unwrap_or_default());
        let first = (opening + 1) * STRIPES_PER_OPENING;
        let store = Store::new(targets, meta.clone(), sets, store_options, history, first);
        store.set_topology(&label);
        for member in label.members().filter(|member| member.role != Role::Active) {
            store.close_target(member.id, true);
        }
        let opened = Opened {
            directory,
            label: Mutex::new(label),
            changing: Mutex::default(),
            read_only: options.read_only,
            warn: options.warn,
            warnings: Warnings::default(),
            places: options.places,
            missing: Mutex::new(missing.iter().cloned().collect()),
            _lock: lock,
        };
        if let Some(line) = warnings::missing(&missing) {
            opened.warn(&line);
        }
        let engine = Engine { meta: meta.clone(), journal };
        let fs = Self::assemble(meta.clone(), Some(engine), None, store, opened);
        let known: BTreeSet<u64> = meta.setting(sessions::SESSIONS)?.unwrap_or_default();
        let ended = !options.serve && !known.is_empty();
        let before = if options.serve { known } else { BTreeSet::new() };
        let owned = meta.setting(sessions::SETS)?.unwrap_or_default();
        fs.leases.begin(opening, before.clone(), owned);
        fs.look_at_room();
        if !fs.volume.read_only {
            let opened = meta.put_setting("openings", &(opening + 1))?;
            if options.serve {
                fs.sign_sessions(&meta, opened)?;
            }
            if ended {
                // What their clients did not commit is given up here.
                let seq = meta.put_setting(sessions::SESSIONS, &before)?;
                meta.sync(seq)?;
            }
            // Nobody else asks again.
            meta.forget_requests(&before)?;
            if !fs.leases.is_settling() {
                match fs.clean_up() {
                    // Without room for that, what is there can be read all the same, and be removed.
                    Err(error) if error.is_no_space() => fs.volume.warn(&format!("cannot clean up: {error}")),
                    done => done?,
                }
            }
        }
        fs.background.start(&fs);
        Ok(fs)
    }

    /// Has the numbers of sessions signed with a key that the volume keeps, and none given out twice.
    fn sign_sessions(&self, meta: &meta::Meta, opened: meta::Seq) -> Result<()> {
        let (key, seq) = match meta.setting(sessions::KEY)? {
            Some(key) => (key, opened),
            None => {
                let key = sessions::new_key().map_err(|why| Error::Invalid(why.to_string()))?;
                (key, meta.put_setting(sessions::KEY, &key)?)
            }
        };
        self.leases.sign_with(key);
        // Without its targets the volume is served all the same: it is in the volume directory then.
        if let Err(error) = meta.sync(seq) {
            self.volume.warn(&format!("cannot make the key of the sessions durable yet: {error}"));
        }
        Ok(())
    }

    /// Puts the parts together.
    pub(crate) fn assemble(
        meta: Arc<dyn meta::port::Port>,
        engine: Option<Engine>,
        client: Option<Client>,
        store: Store,
        volume: Opened,
    ) -> Arc<Self> {
        Arc::new(Self {
            meta,
            engine,
            client,
            store,
            table: file::Table::new(),
            lookups: crate::data::lookups::Lookups::default(),
            memory: limits::Memory::new(MEMORY_BYTES),
            room: limits::Room::default(),
            collector: collect::Collector::default(),
            inline: collect::Inline::default(),
            compactor: compact::Compactor::default(),
            strays: strays::Strays::default(),
            returns: crate::maintenance::returns::Returns::default(),
            members: crate::maintenance::members::Members::default(),
            background: background::Background::new(),
            leases: sessions::Leases::default(),
            counts: crate::Counts::default(),
            volume,
            closed: AtomicBool::new(false),
        })
    }

    /// Takes away what a crash left: files that were open without a name, and stripes that no transaction names.
    pub(crate) fn clean_up(&self) -> Result<()> {
        for ino in self.engine()?.meta.orphans()? {
            self.leases.set_aside(ino);
        }
        self.let_settled_go();
        let mut from = 0;
        loop {
            let sets = self.engine()?.meta.sets(from, 256)?;
            let Some((last, _)) = sets.last() else { return Ok(()) };
            from = last + 1;
            for (set, record) in sets {
                let stripes = self.engine()?.meta.stripes(set)?;
                let end = stripes.last().map_or(0, |(record, stripe)| volume::record_range(*record, stripe.block).end);
                let dead = stripes.into_iter().filter(|(_, stripe)| stripe.live == 0);
                let dead = dead.map(|(record, stripe)| meta::DeadStripe { set, record, block: stripe.block });
                self.collector.add(dead.collect(), 0);
                if self.leases.is_held(set) {
                    continue;
                }
                if !record.sealed {
                    self.engine()?.meta.seal_set(set, end as u32)?;
                    self.punch_orphans(set)?;
                }
                self.delete_if_empty(set)?;
            }
        }
    }

    /// Nobody writes to a set any more who did: seals it, and has the collector give back what no transaction names of it.
    pub(crate) fn abandon_set(&self, set: u64) -> Result<()> {
        let engine = self.engine()?;
        if !engine.meta.set(set)?.sealed {
            let last = engine.meta.stripes(set)?.pop();
            let end = last.map_or(0, |(record, stripe)| volume::record_range(record, stripe.block).end);
            engine.meta.seal_set(set, end as u32)?;
        }
        self.collector.abandon(set);
        Ok(())
    }

    /// Gives back what no transaction names of an abandoned set. Waits for targets.
    pub(crate) fn give_back_abandoned(&self, set: u64) -> Result<()> {
        if !self.delete_if_empty(set)? {
            self.punch_orphans(set)?;
            self.compactor.suspect(set);
        }
        Ok(())
    }

    /// Punches what no transaction names out of a set that was open when the volume was not closed.
    fn punch_orphans(&self, set: u64) -> Result<()> {
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
        Ok(())
    }

    /// Looks how much room there is. Targets on one file system share it.
    pub(crate) fn look_at_room(&self) {
        let spent = self.room.spent();
        let mut takes_more = true;
        if let Some(engine) = &self.engine {
            let metadata = engine.journal.status();
            self.store.keep_for_metadata(metadata.need_bytes, metadata.mirrors);
            takes_more = engine.journal.takes_more(self.memory.inline());
        }
        let (total, free) = self.store.user_room();
        // Clients hear of the metadata by this, too.
        self.room.looked(spent, total, if takes_more { free } else { 0 });
    }

    /// Refuses what makes the metadata grow while there is no room for more. What makes it less in the end is not asked, nor is what was promised.
    pub(crate) fn room_for_metadata(&self) -> Result<()> {
        match &self.engine {
            Some(engine) if engine.journal.takes_more(self.memory.inline()) => Ok(()),
            Some(_) => Err(Error::Meta(meta::Error::NoSpace)),
            None if self.room.now().1 > 0 => Ok(()),
            None => Err(self.no_room()),
        }
    }

    /// Why there is no room: targets are full, or too few of them are there.
    fn no_room(&self) -> Error {
        let (targets, k) = (&self.store.targets, self.store.options.code.shape().k);
        let there = targets.ids().into_iter().filter(|&id| targets.is_usable(id)).count();
        if there < k {
            return Error::Meta(meta::Error::Unavailable(format!("{there} targets answer and {k} are needed")));
        }
        if self.client.is_some() && self.room.now().0 == 0 {
            return Error::Meta(meta::Error::Unavailable("too few targets say how much room they have".into()));
        }
        Error::Volume(volume::Error::NoSpace("the volume".into()))
    }

    /// Refuses data for which there is no room.
    pub(crate) fn room_for(&self, bytes: u64) -> Result<()> {
        self.room_for_metadata()?;
        let fits = || self.room.now().1 >= self.memory.used() + bytes;
        if !fits() && self.engine.is_some() && self.room.is_old() {
            // Some may have been given back since the last look.
            self.look_at_room();
        }
        if fits() { Ok(()) } else { Err(self.no_room()) }
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Drops everything that is not committed, as the death of the process would: for tests. Stripes that were queued for writing may still be written.
    pub fn abandon(&self) {
        if let Some(client) = &self.client {
            client.die();
        }
        if !self.closed.swap(true, Ordering::Relaxed) {
            self.background.stop();
        }
    }

    /// Gives back what can be given back, at the end. A client has the server do that.
    fn give_back_all(&self) -> Result<()> {
        if self.engine.is_none() {
            return Ok(());
        }
        self.collect(true)?;
        self.collect(true)?;
        self.remove_strays(false).map(drop)
    }

    /// Commits everything and closes the volume. Whoever still holds it gets errors.
    ///
    /// # Errors
    /// When something could not be committed.
    pub fn close_volume(&self) -> Result<()> {
        self.shut(true)
    }

    /// As `close_volume`, for who is about to be started again: what could be given back is left to the next opening, so that no target that hangs is
    /// waited for meanwhile.
    pub(crate) fn shut(&self, give_back: bool) -> Result<()> {
        if self.closed.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        self.background.stop();
        self.forget_all();
        let done = if self.volume.read_only {
            Ok(())
        } else {
            self.sync_all()
                .and_then(|()| self.store.seal_open())
                .and_then(|()| self.store.sync())
                .and_then(|()| if give_back { self.give_back_all() } else { Ok(()) })
        };
        let closed = match (&self.engine, &self.client) {
            (Some(engine), _) => engine.journal.close().map_err(Error::from),
            (None, Some(client)) => self.end_session(client),
            (None, None) => Ok(()),
        };
        done.and(closed)
    }

    /// How many targets cannot be reached, if so many that nothing can be written, and if what they lack is kept on this machine: transactions are, data of
    /// files is not.
    pub(crate) fn left_behind(&self) -> Option<usize> {
        let kept = self.engine.as_ref().is_some_and(|engine| engine.journal.keep());
        let clean = self.table.all().iter().all(|file| file.state().buffer.is_clean());
        let (members, there) = (self.volume.label().members().count(), self.store.targets.spaces(true).len());
        (kept && clean && there < self.store.options.code.shape().k).then(|| members.saturating_sub(there))
    }
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        // Whoever wants to hear of errors calls `close_volume`.
        let _ = self.close_volume();
    }
}
