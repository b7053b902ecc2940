//! Opens and closes a volume: builds its parts and puts them together.

use crate::client::{self, Server};
use crate::data::sets::Placed;
use crate::data::store::{Options, Store};
use crate::data::{file, lookups, memory, space};
use crate::maintenance::census::Census;
use crate::maintenance::{collect, compact, inline, members, orphan_chunks, rejoin, votes};
use crate::role::{Engine, Role};
use crate::volume::create::{begin, journal_limits, owner};
use crate::volume::find::{FoundTargets, find};
use crate::volume::history::{self, History};
use crate::volume::label::{Label, Role as TargetRole};
use crate::volume::membership::{complete, write_pointer};
use crate::volume::opened::{INDEX, Opened, STRIPES_PER_OPENING, lock};
use crate::volume::places::{Directories, Places};
use crate::volume::stripe_size::{MANIFEST_BYTES, full_stripe_bytes, of_process};
use crate::volume::voters::{Voters, divide};
use crate::volume::warnings::{self, Warnings};
use crate::{Error, FileSystem, OpenOptions, Result, background, now};
use ::volume::ranked::Ranked;
use meta::journal::{JournalLimits, Journaled};
use meta::kv::{Batch, Index, Kv, KvError, RedbIndex, ScratchIndex};
use plan::{StripeSeq, TargetId, TxId};
use session::server::Leases;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use volume::Targets;
use volume::format::VolumeId;
use volume::target::{Shadow, Target};

/// The local WAL in the volume directory: committed transactions that no target has yet. Only a
/// volume that serves clients has one.
const LOCAL_WAL: &str = "tail";
/// The first limit for data in flight, in bytes. Writers wait above it.
const MEMORY_BYTES: u64 = 128 << 20;
/// The setting in the metadata that holds the losses that were accepted.
const LOSSES: &str = "losses";

/// Raises the format of a volume that an earlier version made. An earlier version then refuses it:
/// it would not understand the journal.
fn upgrade(
    label: &mut Label,
    disks: &BTreeMap<TargetId, Arc<dyn Target>>,
    losses: usize,
    directory: Option<&Path>,
) -> Result<()> {
    if label.is_current() || disks.len() < (label.members().count().saturating_sub(losses)).max(losses + 1) {
        return Ok(());
    }
    label.upgrade();
    for (&id, disk) in disks {
        label
            .write(&**disk, id)
            .map_err(|why| Error::Unavailable(format!("cannot upgrade the label of target {}: {why}", id.0)))?;
    }
    directory.map_or(Ok(()), |directory| write_pointer(label, directory))
}

/// Gives the claims back if the rest of an opening fails: other servers may have no such trouble.
struct Claimed(Option<Arc<Journaled>>);

impl Drop for Claimed {
    fn drop(&mut self) {
        if let Some(journal) = self.0.take() {
            let _ = journal.close();
        }
    }
}

/// Adds to an error about missing voters why they are missing. One of this machine stays one.
fn with_reasons(error: KvError, voters: Voters, missing: &[(TargetId, String)]) -> Error {
    let mut text = match error {
        KvError::TooFew(text) => text.replacen(" targets ", &format!(" {} ", voters.word()), 1),
        KvError::Local(why) => return Error::Invalid(format!("cannot use {why}")),
        error => return meta::Error::from(error).into(),
    };
    for (id, why) in missing {
        text = text.replace(&format!("target {}: it is not there", id.0), &format!("target {}: {why}", id.0));
    }
    Error::TooFew(text)
}

/// A target for the journal. Opening a volume always writes to the journal, at least a new epoch.
/// When the volume is opened for reading only, these writes stay in memory.
fn journal_target(target: &Arc<dyn Target>, read_only: bool) -> Arc<dyn Target> {
    if read_only { Arc::new(Shadow::new(target.clone())) } else { target.clone() }
}

impl FileSystem {
    /// Opens a volume.
    ///
    /// # Errors
    /// When the directory holds no volume, when the volume is open elsewhere or of a newer format,
    /// and when too few of its targets are there: `Unavailable` if some of them do not answer.
    pub fn open_volume(directory: &Path, mut options: OpenOptions) -> Result<Arc<Self>> {
        let pointer = Label::read_pointer(directory)?;
        let guard = options.lock.take().map_or_else(|| lock(directory), Ok)?;
        let places = options.places.clone();
        let found = find(&places, pointer)?;
        let silent = !found.silent.is_empty();
        if options.read_only
            && !found.disks.is_empty()
            && let Err(why) = found.is_newest()
        {
            if !options.possibly_old {
                return Err(why);
            }
            options.warn.iter().for_each(|warn| warn(&format!("POSSIBLY OLD: {why}")));
        }
        let index: Box<dyn Index> = match options.read_only {
            true => Box::new(ScratchIndex::new(options.metadata_bytes)),
            false => Self::index(&directory.join(INDEX), options.metadata_bytes)?,
        };
        let opened = Self::open_with(Some((Directories.full(directory)?, guard)), found, index, options);
        opened.map_err(|error| match error {
            // The silent targets may have what is missing.
            Error::Meta(meta::Error::Held(_) | meta::Error::Fenced(_)) => error,
            Error::Meta(_) | Error::Volume(_) if silent => Error::Unavailable(error.to_string()),
            error => error,
        })
    }

    /// Opens the index of the metadata. Recreates a damaged one: it is only a cache of the journal.
    /// Makes another file where this process still clears the last one, as a standby.
    fn index(path: &Path, cache_bytes: usize) -> Result<Box<dyn Index>> {
        match RedbIndex::open_with(path, cache_bytes) {
            Ok(index) => Ok(Box::new(index)),
            Err(_) => {
                let _ = std::fs::remove_file(path);
                Ok(Box::new(RedbIndex::open_with(path, cache_bytes)?))
            }
        }
    }

    /// Creates a volume on targets that the caller provides, without a volume directory: for
    /// simulators and tests. Writes no labels.
    ///
    /// # Errors
    /// When the label is not valid, or the metadata cannot be written.
    pub fn create_on(label: &Label, targets: Vec<(TargetId, Arc<dyn Target>)>) -> Result<()> {
        begin(label, targets)
    }

    /// Opens a volume on targets that the caller provides, without a volume directory: for
    /// simulators and tests. `index` may be empty. A member of the label that is not among the
    /// targets is missing.
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
        Self::open_with(
            None,
            FoundTargets { label, older: None, disks, missing, outdated: Vec::new(), silent: Vec::new() },
            index,
            options,
        )
    }

    fn open_with(
        place: Option<(PathBuf, Arc<std::fs::File>)>,
        found: FoundTargets,
        index: Box<dyn Index>,
        options: OpenOptions,
    ) -> Result<Arc<Self>> {
        let (directory, lock) = place.unzip();
        found.suffices(options.insists)?;
        if !found.disks.keys().any(|id| found.label.voters().contains(id)) {
            found.is_newest()?;
        }
        let FoundTargets { mut label, older, disks, missing, outdated, .. } = found;
        let code = ec::parse(&label.code).map_err(|why| Error::Invalid(why.to_string()))?;
        let shape = code.shape();
        let volume = label.id()?;
        let targets = Arc::new(options.deadline.map_or_else(Targets::new, Targets::with_deadline));
        for (&id, disk) in &disks {
            targets.add(id, disk.clone());
        }
        if !options.read_only {
            upgrade(&mut label, &disks, shape.m, directory.as_deref())?;
        }
        let (voting, others) = divide(&label, disks.into_iter().collect());
        let local_wal = directory.as_ref().filter(|_| options.serve).map(|directory| directory.join(LOCAL_WAL));
        let limits = journal_limits(targets.spaces(false).into_iter().map(|(_, space)| space));
        let journal = Arc::new(
            Journaled::open(meta::journal::Options {
                volume,
                targets: voting.into_iter().map(|(id, disk)| (id, journal_target(&disk, options.read_only))).collect(),
                voters: label.voters(),
                losses: shape.m,
                generation: label.generation,
                holder: options.holder(directory.as_deref()),
                lease: options.lease,
                access: options.access(),
                index,
                merge: meta::MERGE,
                limits: JournalLimits {
                    overlay_bytes: limits.overlay_bytes.min(options.metadata_bytes / 4),
                    pending_bytes: limits.pending_bytes.min(options.metadata_bytes / 4),
                    deadline: options.deadline.unwrap_or(limits.deadline),
                    ..limits
                },
                accept_loss: options.accept_loss,
                local_wal: local_wal.clone(),
            })
            .map_err(|error| with_reasons(error, Voters::of(&label), &missing))?,
        );
        let mut claimed = Claimed(Some(journal.clone()));
        if !options.read_only {
            journal.set_bystanders(others).map_err(meta::Error::from)?;
            let epoch = journal.status().epoch;
            let changed = complete(&mut label, older.as_ref(), &targets, epoch, options.accept_loss)?;
            if let Some(directory) = directory.as_deref().filter(|_| changed || older.is_some()) {
                write_pointer(&label, directory)?;
            }
        }
        if let Some(directory) = &local_wal {
            journal.keep_local_wal(directory).map_err(|error| match error {
                KvError::Local(why) => Error::Invalid(format!("cannot write to {why}")),
                error => meta::Error::from(error).into(),
            })?;
        }
        let found = Kv::commit(&*journal, Batch::default()).map_err(meta::Error::from)?.seq;
        let meta = Arc::new(meta::Meta::open(journal.clone(), owner(), now())?);
        let opening: u64 = meta.setting("openings")?.unwrap_or(0);
        let store_options = Options {
            volume: VolumeId(volume),
            code,
            chunk_bytes: label.chunk_bytes,
            durability: label.durability,
            coding: options.coding.unwrap_or(label.coding),
            at: label.place_of_client(options.at)?,
            // What others wrote may be longer than what is written here.
            full_stripe: full_stripe_bytes(shape.k),
            stripe_bytes: of_process(shape.k, label.stripe_bytes.map(|bytes| bytes as usize))? - MANIFEST_BYTES,
        };
        let sets = Arc::new(Placed(meta.clone()));
        let history = History::new(meta.setting(history::SETTING)?.unwrap_or_default());
        let first = StripeSeq((opening + 1) * STRIPES_PER_OPENING);
        let store = Store::new(targets, meta.clone(), sets, store_options, history, first);
        store.set_topology(&label);
        options.places.arrange(&label.domains());
        for member in label.members().filter(|member| member.role != TargetRole::Active) {
            store.close_target(member.id, true);
        }
        let opened = Opened {
            directory,
            label: Ranked::new(label),
            relabelling: Ranked::default(),
            changing: Ranked::default(),
            read_only: options.read_only,
            warn: options.warn,
            warnings: Warnings::default(),
            places: options.places,
            missing: Ranked::new(missing.iter().cloned().collect()),
            _lock: lock,
        };
        if let Some(line) = warnings::missing(&missing) {
            opened.warn(&line);
        }
        let engine = Engine { meta: meta.clone(), journal, loss: AtomicBool::default(), serves: options.serve };
        let fs = Self::assemble(meta.clone(), Role::Owner(engine), store, opened);
        let began = fs.leases.begin(&meta, opening, found, options.serve)?;
        fs.measure_space();
        if !fs.volume.read_only {
            fs.votes.were_away(outdated);
            fs.record_loss(&meta)?;
            began.note(&meta)?;
            let opened = meta.put_setting("openings", &(opening + 1))?;
            if options.serve {
                fs.sign_sessions(&meta, opened)?;
            }
            began.end_others(&meta)?;
            if !fs.leases.is_in_grace() {
                match fs.clean_up() {
                    // A full volume can still be read, and files can be removed.
                    Err(error) if error.is_no_space() => fs.volume.warn(&format!("cannot clean up: {error}")),
                    done => done?,
                }
            }
        }
        fs.background.start(&fs);
        claimed.0 = None;
        Ok(fs)
    }

    /// Records for ever that this opening may have lost something.
    fn record_loss(&self, meta: &meta::Meta) -> Result<()> {
        let status = self.engine()?.journal.status();
        if !status.lossy {
            return Ok(());
        }
        let mut losses: Vec<(i64, String)> = meta.setting(LOSSES)?.unwrap_or_default();
        let (committed, epoch) = (status.committed, status.epoch);
        let text =
            format!("opened with too few targets in epoch {epoch}: transactions after {committed} may have been lost");
        losses.push((now().seconds, text));
        let seq = meta.put_setting(LOSSES, &losses)?;
        Ok(meta.sync(seq)?)
    }

    /// The openings that accepted a loss: when, in seconds since 1970, and what was lost.
    ///
    /// # Errors
    /// When the metadata cannot be read, or another process has it.
    pub fn accepted_losses(&self) -> Result<Vec<(i64, String)>> {
        Ok(self.engine()?.meta.setting(LOSSES)?.unwrap_or_default())
    }

    /// Signs session numbers with a key that the volume keeps, and makes sure that no number is
    /// used twice.
    fn sign_sessions(&self, meta: &meta::Meta, opened: TxId) -> Result<()> {
        let seq = self.leases.sign(meta, opened)?;
        // The volume is served even when its targets are missing: the local WAL in the volume
        // directory has the key then.
        if let Err(error) = meta.sync(seq) {
            self.volume.warn(&format!("cannot make the key of the sessions durable yet: {error}"));
        }
        Ok(())
    }

    /// Opens a volume whose metadata is on a server. `name` is the name of this client at the
    /// server.
    ///
    /// # Errors
    /// When this version does not understand the label that the server sent.
    pub fn connect(server: Server, name: &str, options: OpenOptions) -> Result<Arc<Self>> {
        let lease = Duration::from_millis(server.entered.welcome.lease_ms.into());
        let (client, store, label) = client::begin(server, name, &options)?;
        let (cache, role) = (client.cache.clone(), Role::Client(Box::new(client)));
        let fs = Self::assemble(cache, role, store, Opened::served(label, options));
        fs.follow_server(lease)?;
        Ok(fs)
    }

    /// Puts the parts of an open volume together.
    fn assemble(meta: Arc<dyn session::port::Port>, role: Role, store: Store, volume: Opened) -> Arc<Self> {
        Arc::new(Self {
            meta,
            role,
            store,
            table: file::Table::new(),
            lookups: lookups::Lookups::default(),
            memory: memory::Memory::new(MEMORY_BYTES),
            space: space::VolumeSpace::default(),
            collector: collect::Collector::default(),
            inline: inline::Inline::default(),
            compactor: compact::Compactor::default(),
            orphan_chunks: orphan_chunks::OrphanChunks::default(),
            rejoins: rejoin::Rejoins::default(),
            members: members::Members::default(),
            votes: votes::Votes::default(),
            rebalancing: crate::maintenance::rebalance::Rebalancing::default(),
            background: background::Background::new(),
            leases: Leases::default(),
            counts: crate::Counts::default(),
            census: Census::default(),
            volume,
            closed: AtomicBool::new(false),
        })
    }

    /// Whether the volume was closed.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Drops everything that is not committed, as if the process had died: for tests. Stripes that
    /// were queued for writing may still be written.
    pub fn abandon(&self) {
        // First: a heartbeat on its way may hold what `die` waits for until it sees this.
        let was_closed = self.closed.swap(true, Ordering::Relaxed);
        if let Some(client) = self.client() {
            client.die();
        }
        if !was_closed {
            self.rebalancing.stop();
            self.background.stop();
        }
    }

    /// Commits everything and closes the volume. Later calls on the volume fail.
    ///
    /// # Errors
    /// When something could not be committed.
    pub fn close_volume(&self) -> Result<()> {
        self.shut(true)
    }

    /// As `close_volume`, for a process that is about to be started again. With `give_back` false,
    /// dead space and orphan chunks are left to the next opening, so that closing does not wait for
    /// a target that hangs.
    pub(crate) fn shut(&self, give_back: bool) -> Result<()> {
        if self.closed.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        self.rebalancing.stop();
        self.background.stop();
        self.votes.wait(background::HELPER_TIMEOUT);
        self.forget_all();
        let done = if self.volume.read_only {
            Ok(())
        } else {
            self.sync_written()
                .and_then(|()| self.store.seal_open())
                .and_then(|()| self.store.sync())
                .and_then(|()| if give_back { self.give_back_all() } else { Ok(()) })
                .and_then(|()| self.tell_loss())
        };
        let closed = match &self.role {
            Role::Owner(engine) => engine.journal.close().map_err(Error::from),
            Role::Client(client) => self.end_session(client),
        };
        done.and(closed)
    }

    /// Closes what is open of the metadata on this machine, once the volume is closed or abandoned,
    /// however that went: this process can stand by for another server then, although somebody
    /// still holds the file system, as a command that waits for a target that hangs.
    pub fn release(&self) {
        if let Some(engine) = self.role.owner() {
            engine.journal.release();
        }
    }

    /// The number of unreachable targets, if nothing can be written without them, and if this
    /// machine keeps everything that they miss: the local WAL keeps transactions, nothing keeps
    /// data of files. None otherwise.
    pub(crate) fn left_behind(&self) -> Option<usize> {
        let kept = self.role.owner().is_some_and(|engine| engine.journal.keep());
        let clean = self.table.all().iter().all(|file| file.state().buffer.is_clean());
        let (members, there) = (self.volume.label().members().count(), self.store.targets.spaces(true).len());
        (kept && clean && there < self.store.options.code.shape().k).then(|| members.saturating_sub(there))
    }
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        // A caller that needs the errors calls `close_volume`.
        let _ = self.close_volume();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A standby that is told to open the volume while it clears its index.
    #[test]
    fn an_index_that_is_still_open_is_left_and_another_one_made() {
        let place = std::env::temp_dir().join(format!("weft-open-{}", std::process::id()));
        std::fs::create_dir_all(&place).unwrap();
        let path = place.join(INDEX);
        let [first, second] = [1, 2].map(|number| {
            let index = FileSystem::index(&path, 1 << 20).unwrap();
            let key = [number];
            index.apply(&mut [(&key[..], Some(&key[..]))].into_iter(), Default::default(), true).unwrap();
            index
        });
        assert_eq!((first.get(&[2]), second.get(&[1])), (Ok(None), Ok(None)));
        first.clear().unwrap();
        assert_eq!(second.get(&[2]), Ok(Some(vec![2])));
        drop((first, second));
        assert_eq!(FileSystem::index(&path, 1 << 20).unwrap().get(&[2]), Ok(Some(vec![2])));
        std::fs::remove_dir_all(place).unwrap();
    }

    /// A metadata server leaves the volume to others then, and only then.
    #[test]
    fn a_trouble_of_this_machine_is_no_trouble_of_the_targets() {
        const ALL: Voters = Voters { all: 6, losses: 2, others: 0 };
        let local = with_reasons(KvError::Local("the index: a bad block".into()), ALL, &[]);
        assert!(matches!(&local, Error::Invalid(why) if why.contains("the index: a bad block")), "{local:?}");
        let away = with_reasons(KvError::Unavailable("target 3: it hangs".into()), ALL, &[]);
        assert!(matches!(away, Error::Meta(meta::Error::Unavailable(_))), "{away:?}");
    }
}
