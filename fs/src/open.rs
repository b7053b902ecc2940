//! Opening and closing a volume: its parts are put together here.

use crate::data::sets::Placed;
use crate::data::store::{Options, Store};
use crate::data::{file, lookups, memory, space};
use crate::maintenance::{collect, compact, members, orphan_chunks, rejoin};
use crate::role::{Engine, Role};
use crate::volume::create::{begin, journal_limits, owner};
use crate::volume::find::{Found, find};
use crate::volume::history::{self, History};
use crate::volume::label::{Label, Role as TargetRole};
use crate::volume::opened::{INDEX, Opened, STRIPES_PER_OPENING, lock};
use crate::volume::places::{Directories, Places};
use crate::volume::warnings::{self, Warnings};
use crate::{Error, FileSystem, OpenOptions, Result, background, now, server};
use meta::journal::{Journaled, Limits};
use meta::kv::{Index, RedbIndex, ScratchIndex};
use plan::TargetId;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use volume::Targets;
use volume::format::VolumeId;
use volume::target::{Shadow, Target};

/// What was committed and is on no target yet, there, for a volume that has clients.
const TAIL: &str = "tail";
/// The first data in flight that makes writers wait.
const MEMORY_BYTES: u64 = 128 << 20;
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
            journal.keep_local_wal(&directory.join(TAIL)).map_err(meta::Error::from)?;
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
        for member in label.members().filter(|member| member.role != TargetRole::Active) {
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
        let fs = Self::assemble(meta.clone(), Role::Owner(engine), store, opened);
        let known: BTreeSet<u64> = meta.setting(server::SESSIONS)?.unwrap_or_default();
        let ended = !options.serve && !known.is_empty();
        let before = if options.serve { known } else { BTreeSet::new() };
        let owned = meta.setting(server::SETS)?.unwrap_or_default();
        fs.leases.begin(opening, before.clone(), owned);
        fs.look_at_room();
        if !fs.volume.read_only {
            let opened = meta.put_setting("openings", &(opening + 1))?;
            if options.serve {
                fs.sign_sessions(&meta, opened)?;
            }
            if ended {
                // What their clients did not commit is given up here.
                let seq = meta.put_setting(server::SESSIONS, &before)?;
                meta.sync(seq)?;
            }
            // Nobody else asks again.
            meta.forget_requests(&before)?;
            if !fs.leases.is_in_grace() {
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
        let (key, seq) = match meta.setting(server::KEY)? {
            Some(key) => (key, opened),
            None => {
                let key = server::new_key().map_err(|why| Error::Invalid(why.to_string()))?;
                (key, meta.put_setting(server::KEY, &key)?)
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
    pub(crate) fn assemble(meta: Arc<dyn meta::port::Port>, role: Role, store: Store, volume: Opened) -> Arc<Self> {
        Arc::new(Self {
            meta,
            role,
            store,
            table: file::Table::new(),
            lookups: lookups::Lookups::default(),
            memory: memory::Memory::new(MEMORY_BYTES),
            room: space::Room::default(),
            collector: collect::Collector::default(),
            inline: collect::Inline::default(),
            compactor: compact::Compactor::default(),
            orphan_chunks: orphan_chunks::OrphanChunks::default(),
            rejoins: rejoin::Rejoins::default(),
            members: members::Members::default(),
            background: background::Background::new(),
            leases: server::Leases::default(),
            counts: crate::Counts::default(),
            volume,
            closed: AtomicBool::new(false),
        })
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Drops everything that is not committed, as the death of the process would: for tests. Stripes that were queued for writing may still be written.
    pub fn abandon(&self) {
        if let Some(client) = self.client() {
            client.die();
        }
        if !self.closed.swap(true, Ordering::Relaxed) {
            self.background.stop();
        }
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
        let closed = match &self.role {
            Role::Owner(engine) => engine.journal.close().map_err(Error::from),
            Role::Client(client) => self.end_session(client),
        };
        done.and(closed)
    }

    /// How many targets cannot be reached, if so many that nothing can be written, and if what they lack is kept on this machine: transactions are, data of
    /// files is not.
    pub(crate) fn left_behind(&self) -> Option<usize> {
        let kept = self.role.owner().is_some_and(|engine| engine.journal.keep());
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
