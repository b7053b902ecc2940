//! The status of a volume: space, targets, and the losses that it survives.

use crate::maintenance::verify::{SCRUB_NEW, SCRUB_SETTING, Scrub, UNREPAIRABLE};
use crate::volume::label::{Loss, Role};
use crate::volume::voters::Voters;
use crate::{FileSystem, RepairProgress, Result, Usage};
use meta::SetRecord;
use plan::membership::TargetState;
use plan::placement::{Placement, TargetLoad, is_shared, targets_survived};
use plan::{Domain, Ino, Position, SetId, TargetId};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use volume::target::Presence;
use volume::{StepTotals, lock};

/// The status of a volume.
#[derive(Clone, Debug)]
pub struct Status {
    /// The name that the owner gave the volume.
    pub name: String,
    /// Its code.
    pub code: String,
    /// Space and files.
    pub usage: Usage,
    /// Bytes that files refer to.
    pub bytes: u64,
    /// Its targets.
    pub targets: Vec<TargetStatus>,
    /// How chunk sets are placed.
    pub placement: Placement,
    /// The effect of losing each domain, if there are domains.
    pub domains: Vec<DomainStatus>,
    /// The number of chunk sets.
    pub sets: usize,
    /// Chunk sets by the number of further targets that they can lose: the first number counts sets
    /// that survive no loss. Sets whose data is lost count in `lost`.
    pub survive: Vec<usize>,
    /// Chunk sets that have lost too much to be read.
    pub lost: usize,
    /// Chunk sets that wait for repair.
    pub to_repair: usize,
    /// Bytes of chunks that they are missing; approximate.
    pub to_repair_bytes: u64,
    /// Chunk sets whose chunks were looked for now.
    pub looked_at: usize,
    /// Chunks that do not exist under their names, as the last look at each set found.
    pub astray: usize,
    /// The number of blocks of a chunk set begun now that would have a target, and the number that
    /// should.
    pub new_blocks: (usize, usize),
    /// Chunk sets that have several chunks on one target.
    pub shared: usize,
    /// The most chunks of a set that one target may have now: more than 1 where the volume has
    /// fewer targets than its code has blocks, and may share them.
    pub most_on_one: usize,
    /// Bytes that this process has written to files and not committed yet.
    pub uncommitted: u64,
    /// The last verification of everything.
    pub scrub: Option<Scrub>,
    /// The last verification of what was new, if it is newer than that of everything.
    pub scrub_new: Option<Scrub>,
    /// Problems of the last verification that no repair can heal.
    pub unrepairable: u64,
    /// How many targets there are, and how many may be away.
    pub voters: Voters,
    /// The losses that the owner of the volume accepted.
    pub losses: Vec<Loss>,
    /// Targets that have all of the metadata, and the number that should.
    pub mirrors: (usize, usize),
    /// The last error of the metadata.
    pub metadata_error: Option<String>,
    /// The repairs in progress.
    pub repairs: Vec<RepairProgress>,
    /// The limit of all repairs together, in bytes of rebuilt blocks per second.
    pub repair_limit: Option<u64>,
    /// The time that the steps of writes took since the volume was opened.
    pub write_cost: StepTotals,
}

/// The status of a target.
#[derive(Clone, Debug)]
pub struct TargetStatus {
    /// Its number.
    pub id: TargetId,
    /// Where it is.
    pub path: PathBuf,
    /// What it is used for.
    pub role: Role,
    /// Its failure domain.
    pub domain: Option<Domain>,
    /// Its state and for how long, where the membership is watched.
    pub state: Option<(TargetState, Duration)>,
    /// Its problem; None when there is none.
    pub problem: Option<String>,
    /// Total and free space of its file system, in bytes.
    pub space: Option<(u64, u64)>,
    /// Chunks that should be on it.
    pub chunks: usize,
    /// Their length in bytes; of those that are written to, as far as it is committed.
    pub bytes: u64,
    /// How busy it is; None as long as nothing is known of it.
    pub load: Option<TargetLoad>,
    /// Its score for new chunks, if the volume has scores.
    pub score: Option<f64>,
    /// Chunk sets of which too little is left when it is lost. Counted where it has several chunks
    /// of a set.
    pub would_lose: usize,
    /// Whether it votes about the metadata, and may have it.
    pub votes: bool,
}

/// The status of a failure domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainStatus {
    /// Its path, down to the domain level of the volume.
    pub name: String,
    /// Targets in it.
    pub targets: usize,
    /// Chunk sets of which too little is left when the whole domain is lost.
    pub would_lose: usize,
    /// Targets in it that vote about the metadata.
    pub voters: usize,
}

/// A volume with less than one part in this many free is nearly full.
const NEARLY_FULL_DIVISOR: u64 = 20;

impl Status {
    /// Whether space is so low that the operator must act.
    pub fn is_nearly_full(&self) -> bool {
        self.usage.free.saturating_mul(NEARLY_FULL_DIVISOR) < self.usage.total
    }

    /// How many problems of the last verification were not repaired since. A verification queues
    /// what it finds for repair, except for what no repair can heal.
    pub fn problems_left(&self) -> u64 {
        let found = self.scrub_new.or(self.scrub).map_or(0, |scrub| scrub.problems);
        if self.to_repair == 0 && self.lost == 0 { found.min(self.unrepairable) } else { found }
    }

    /// Whether nothing is wrong: everything, including new data, survives the loss of as many
    /// targets as it should, and there is space for new data.
    pub fn is_healthy(&self) -> bool {
        self.lost == 0
            && self.to_repair == 0
            && self.new_blocks.0 >= self.new_blocks.1
            && !self.is_nearly_full()
            && self.metadata_error.is_none()
            && self.targets.iter().all(|target| target.problem.is_none())
            && self.survive.iter().rev().skip(1).all(|&sets| sets == 0)
            && self.mirrors.0 >= self.mirrors.1
    }
}

/// A file with less redundancy than it should have.
#[derive(Clone, Debug)]
pub struct AtRisk {
    /// Its path, or its number if it has several names or none.
    pub path: Vec<u8>,
    /// The number of further targets that it can lose; None when some of it is lost already.
    pub survives: Option<usize>,
}

/// What this process wrote since it opened the volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Chunk sets that were begun.
    pub sets: u64,
    /// Bytes of all blocks.
    pub bytes: u64,
}

impl FileSystem {
    /// Whether the metadata, and with it the status, is on a server.
    pub fn is_client(&self) -> bool {
        self.is_shared()
    }

    /// What was written since the volume was opened.
    pub fn written(&self) -> Written {
        let targets = &self.store.targets;
        Written {
            sets: self.store.begun_sets.load(std::sync::atomic::Ordering::Relaxed),
            bytes: targets.health().iter().map(|target| target.written_bytes).sum(),
        }
    }

    /// The code of the volume, with its numbers of data and parity blocks.
    pub fn code(&self) -> (String, usize, usize) {
        let code = &self.store.options.code;
        (code.spec().to_string(), code.shape().k, code.shape().m)
    }

    /// The number of targets.
    pub fn target_count(&self) -> usize {
        self.volume.label().members().count()
    }

    /// The places of the volume: its directory, if this machine has it, and its targets.
    pub fn places(&self) -> Vec<PathBuf> {
        let targets: Vec<PathBuf> = self.volume.label().members().map(|member| member.path.clone()).collect();
        self.volume.directory.iter().cloned().chain(targets).collect()
    }

    /// The targets of the volume that do not answer.
    pub fn absent_targets(&self) -> Vec<TargetId> {
        let label = self.volume.label();
        // Ask all at the same time, so that the waits do not add up.
        let there: BTreeSet<TargetId> = self.store.targets.spaces(false).into_iter().map(|(id, _)| id).collect();
        label.members().map(|member| member.id).filter(|id| !there.contains(id)).collect()
    }

    /// The positions of a set that are missing, as far as is known without reading them.
    pub(crate) fn lost_positions(&self, record: &SetRecord, queued: &[Position]) -> Vec<Position> {
        let there = |place: &Option<TargetId>| place.is_some_and(|id| self.store.targets.is_usable(id));
        let all = Position::all(record.places.len());
        all.filter(|p| !there(&record.places[p.index()]) || queued.contains(p)).collect()
    }

    /// The number of further targets that a set can lose; None when it is lost.
    pub(crate) fn survives(&self, record: &SetRecord, lost: &[Position]) -> Result<Option<usize>> {
        let layout = self.store.layout_of(SetId(0), record)?;
        let code = &layout.code;
        // One target can have several blocks.
        let left = Position::placed(&record.places).filter(|(at, _)| !lost.contains(at)).map(|(_, id)| id);
        let survived = |spare| if is_shared(&record.places) { targets_survived(left, spare) } else { spare };
        if lost.is_empty() {
            return Ok(Some(survived(code.tolerates())));
        }
        let lost: Vec<usize> = lost.iter().map(|position| position.index()).collect();
        let have: Vec<usize> = (0..record.places.len()).filter(|p| !lost.contains(p)).collect();
        let recoverable = code.repair(&lost, &have).is_ok();
        // Any `tolerates` losses can be repaired. What is left of that number can still be lost.
        Ok(recoverable.then(|| survived(code.tolerates().saturating_sub(lost.len()))))
    }

    /// Calls `each` for every chunk set.
    pub(crate) fn each_set(&self, mut each: impl FnMut(SetId, &SetRecord) -> Result<()>) -> Result<()> {
        let mut from = SetId::default();
        loop {
            let sets = self.engine()?.meta.sets(from, 256)?;
            let Some((last, _)) = sets.last() else { return Ok(()) };
            from = last.next();
            for (set, record) in &sets {
                each(*set, record)?;
            }
        }
    }

    /// Waits until the mirrors of the metadata that were away have caught up, as they do after the
    /// volume was opened: as many mirrors as there are voters that answer. Waits at most
    /// `timeout`.
    ///
    /// # Errors
    /// When this process does not have the metadata.
    pub fn wait_for_mirrors(&self, timeout: Duration) -> Result<()> {
        let (journal, begun) = (&self.engine()?.journal, Instant::now());
        let answer = self.volume.label().voters().into_iter().filter(|id| self.problem(*id).is_none()).count();
        let behind = |status: &meta::journal::Status| status.whole < status.wanted.min(answer);
        if behind(&journal.status()) {
            journal.retry();
        }
        while behind(&journal.status()) && begun.elapsed() < timeout {
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// The lost positions of a set, and the number of further targets that it can lose; None if its
    /// data is lost.
    fn standing(
        &self,
        record: &SetRecord,
        queued: &[Position],
        astray: &[(Position, Presence)],
    ) -> Result<(Vec<Position>, Option<usize>)> {
        let known: Vec<Position> = queued.iter().copied().chain(astray.iter().map(|(position, _)| *position)).collect();
        let gone = self.lost_positions(record, &known);
        let survives = self.survives(record, &gone)?;
        if survives.is_some() {
            return Ok((gone, survives));
        }
        // A chunk that is still open can be read, so its data is not lost.
        let is_open = |p| astray.contains(&(p, Presence::Unnamed));
        let unreadable: Vec<Position> = gone.iter().copied().filter(|&p| !is_open(p)).collect();
        let survives = self.survives(record, &unreadable)?.map(|_| 0);
        Ok((gone, survives))
    }

    /// Takes the status, and looks for all chunks; reads no data.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn status(&self) -> Result<Status> {
        let queue = self.engine()?.meta.repairs()?.into_iter().collect();
        let looked_at = self.look_at_all(&queue)?;
        self.status_as_known(looked_at)
    }

    /// Takes the status, and looks for the chunks of a part of the sets: another part each time.
    pub(crate) fn glance(&self, next: &mut SetId) -> Result<Status> {
        let queue = self.engine()?.meta.repairs()?.into_iter().collect();
        let looked_at = self.look_further(next, &queue)?;
        self.status_as_known(looked_at)
    }

    fn status_as_known(&self, looked_at: usize) -> Result<Status> {
        self.measure_space();
        let label = self.volume.label();
        let tolerates = self.store.options.code.tolerates();
        let queue: BTreeMap<SetId, Vec<Position>> = self.engine()?.meta.repairs()?.into_iter().collect();
        let astray = lock(&self.census.astray).clone();
        let (mut sets, mut lost, mut to_repair, mut survive) = (0, 0, 0, vec![0; tolerates + 1]);
        let (mut to_repair_bytes, mut astray_chunks) = (0, 0);
        let mut chunks = BTreeMap::<TargetId, (usize, u64)>::new();
        let topology = self.store.topology();
        let mut would_lose = BTreeMap::<String, usize>::new();
        let (mut shared, mut fatal) = (0, BTreeMap::<TargetId, usize>::new());
        self.each_set(|set, record| {
            sets += 1;
            let length = self.chunk_length(set, record)?;
            for id in record.places.iter().flatten() {
                let (count, bytes) = chunks.entry(*id).or_default();
                (*count, *bytes) = (*count + 1, *bytes + length);
            }
            let astray = astray.get(&set).map_or(&[][..], Vec::as_slice);
            astray_chunks += astray.len();
            let (gone, survives) = self.standing(record, queue.get(&set).map_or(&[], Vec::as_slice), astray)?;
            to_repair += usize::from(!gone.is_empty());
            if !gone.is_empty() {
                to_repair_bytes += gone.len() as u64 * length;
            }
            if is_shared(&record.places) {
                shared += 1;
                let on: BTreeSet<TargetId> = record.places.iter().flatten().copied().collect();
                for id in on {
                    let is_lost = |at: &Position| gone.contains(at) || record.places[at.index()] == Some(id);
                    let with_it: Vec<Position> = Position::all(record.places.len()).filter(is_lost).collect();
                    if self.survives(record, &with_it)?.is_none() {
                        *fatal.entry(id).or_default() += 1;
                    }
                }
            }
            let survivable = self.store.layout_of(set, record)?.code.tolerates();
            for domain in topology.domains_of(&record.places) {
                let with_it = topology.lost_with(&domain, &record.places, &gone);
                // With more losses than that, some combinations can be survived and some not.
                if with_it.len() > survivable.max(gone.len()) && self.survives(record, &with_it)?.is_none() {
                    *would_lose.entry(domain).or_default() += 1;
                }
            }
            match survives {
                Some(more) => survive[more.min(tolerates)] += 1,
                None => lost += 1,
            }
            Ok(())
        })?;
        let scores = self.store.scores();
        let targets = label.members().map(|member| TargetStatus {
            id: member.id,
            path: member.path.clone(),
            role: member.role,
            domain: member.domain(),
            state: self.members.state(member.id),
            problem: self.problem(member.id),
            space: self.store.targets.space(member.id).ok().map(|space| (space.total, space.free)),
            chunks: chunks.get(&member.id).map_or(0, |(count, _)| *count),
            bytes: chunks.get(&member.id).map_or(0, |(_, bytes)| *bytes),
            load: self.store.balance.load(member.id),
            score: scores.get(&member.id).copied(),
            would_lose: fatal.get(&member.id).copied().unwrap_or(0),
            votes: member.votes,
        });
        let voting = label.voters();
        let domains = topology.domains().into_iter().map(|(name, targets)| {
            let would_lose = would_lose.get(&name).copied().unwrap_or(0);
            let voters = targets.iter().filter(|id| voting.contains(id)).count();
            DomainStatus { name, targets: targets.len(), would_lose, voters }
        });
        let domains = domains.collect();
        let journal = self.engine()?.journal.status();
        let meta = &self.engine()?.meta;
        Ok(Status {
            name: label.name.clone(),
            code: label.code.clone(),
            usage: self.usage()?,
            bytes: u64::try_from(self.meta.totals()?.bytes).unwrap_or(0),
            targets: targets.collect(),
            placement: label.placement,
            domains,
            sets,
            survive,
            lost,
            to_repair,
            to_repair_bytes,
            looked_at,
            astray: astray_chunks,
            new_blocks: self.store.new_blocks(),
            shared,
            most_on_one: topology.most_on_one(self.store.options.code.shape().blocks()),
            uncommitted: self.uncommitted_bytes(),
            scrub: meta.setting(SCRUB_SETTING)?,
            scrub_new: meta.setting::<Option<Scrub>>(SCRUB_NEW)?.flatten(),
            unrepairable: meta.setting(UNREPAIRABLE)?.unwrap_or(0),
            voters: Voters::of(&label),
            losses: label.losses.clone(),
            // A spare mirror is not reported.
            mirrors: (journal.whole.min(journal.wanted), journal.wanted),
            metadata_error: journal.trouble,
            repairs: self.counts.repairs.running(),
            repair_limit: self.counts.repairs.limit(),
            write_cost: self.write_cost(),
        })
    }

    /// The length of the chunks of a set, in bytes.
    fn chunk_length(&self, set: SetId, record: &SetRecord) -> Result<u64> {
        if record.sealed {
            return Ok(record.length.into());
        }
        let stripes = self.engine()?.meta.stripes(set)?;
        Ok(stripes.last().map_or(0, |(record, stripe)| volume::record_range(*record, stripe.block).end))
    }

    /// Bytes of files that this process accepted and no transaction names yet.
    fn uncommitted_bytes(&self) -> u64 {
        self.table.all().iter().map(|file| file.state().buffer.uncommitted_bytes()).sum()
    }

    /// The problem with a target; None when there is none.
    pub(crate) fn problem(&self, id: TargetId) -> Option<String> {
        if self.store.targets.get(id).is_none() {
            let missing = self.volume.missing.lock();
            return Some(missing.get(&id).cloned().unwrap_or_else(|| "it is not there".into()));
        }
        if let Err(why) = self.store.targets.space(id) {
            return Some(why.to_string());
        }
        self.store.targets.error(id)
    }

    /// Calls `each` for the files that can lose fewer targets than they should, and for those that
    /// have lost data.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn at_risk(&self, mut each: impl FnMut(AtRisk)) -> Result<()> {
        let queue: BTreeMap<SetId, Vec<Position>> = self.engine()?.meta.repairs()?.into_iter().collect();
        self.look_at_all(&queue)?;
        let astray = lock(&self.census.astray).clone();
        let mut weak = BTreeMap::new();
        self.each_set(|set, record| {
            let queued = queue.get(&set).map_or(&[][..], Vec::as_slice);
            let astray = astray.get(&set).map_or(&[][..], Vec::as_slice);
            let (_, survives) = self.standing(record, queued, astray)?;
            if survives.is_none_or(|more| more < self.store.options.code.tolerates()) {
                weak.insert(set, survives);
            }
            Ok(())
        })?;
        if weak.is_empty() {
            return Ok(());
        }
        self.engine()?.meta.each_file(|ino| -> Result<()> {
            let sets: BTreeSet<SetId> = self.engine()?.meta.sets_of(ino)?;
            let worst =
                sets.iter().filter_map(|set| weak.get(set)).min_by_key(|survives| survives.map_or(0, |n| n + 1));
            if let Some(&survives) = worst {
                each(AtRisk { path: self.name_of(ino), survives });
            }
            Ok(())
        })?;
        Ok(())
    }

    /// The path of a file; its number if it has several names or none.
    pub(crate) fn name_of(&self, ino: Ino) -> Vec<u8> {
        self.meta.describe(ino).ok().and_then(|(_, path)| path).unwrap_or_else(|| format!("inode {ino}").into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use crate::FileSystem;
    use crate::maintenance::presence::SETS_PER_CHECK;
    use crate::testing::{Lab, make};
    use plan::SetId;
    use volume::Control;
    use volume::target::{Target, TargetFile};

    /// Writes a file into a chunk set of its own.
    fn write(fs: &FileSystem, name: &str) {
        fs.write(make(fs, name), 0, &[7; 100_000]).unwrap();
        fs.sync_all().unwrap();
        fs.set_placement(fs.placement()).unwrap();
    }

    fn files_at_risk(fs: &FileSystem) -> Vec<(Vec<u8>, Option<usize>)> {
        let mut files = Vec::new();
        fs.at_risk(|file| files.push((file.path, file.survives))).unwrap();
        files
    }

    /// In a volume of many chunk sets, a status finds the only chunk that is missing every time.
    /// What is looked at bit by bit finds it in the end, and remembers it until it is repaired.
    #[test]
    fn a_missing_chunk_among_many_is_found_and_remembered() {
        const SETS: usize = SETS_PER_CHECK + 50;
        let lab = Lab::new("rs:2+1", 3);
        let fs = lab.open();
        (0..SETS).for_each(|number| write(&fs, &format!("file{number}")));
        // That it is healthy depends on the free space of this machine, too.
        let is_whole = |status: &crate::Status| status.to_repair == 0 && status.survive[1] == status.sets;
        let (mut next, rounds) = (SetId::default(), SETS.div_ceil(SETS_PER_CHECK));
        (0..rounds).for_each(|_| assert!(is_whole(&fs.glance(&mut next).unwrap())));
        assert!(is_whole(&fs.status().unwrap()) && files_at_risk(&fs).is_empty());
        // The newest chunk, which a look at a part of the sets finds last.
        let chunks = lab.disks[1].list().unwrap().into_iter().map(|(file, _)| file);
        let chunk = chunks.filter(|file| matches!(file, TargetFile::Chunk { .. })).max().unwrap();
        lab.disks[1].remove(chunk).unwrap();
        for _ in 0..20 {
            let status = fs.status().unwrap();
            assert!(!is_whole(&status) && !status.is_healthy(), "{status:#?}");
            assert_eq!((status.looked_at, status.astray, status.to_repair), (SETS, 1, 1));
        }
        assert_eq!(files_at_risk(&fs), [(format!("file{}", SETS - 1).into_bytes(), Some(0))]);
        (0..4 * rounds).for_each(|_| assert!(!fs.glance(&mut next).unwrap().is_healthy()));
        fs.repair(&Control::default()).unwrap();
        assert!(is_whole(&fs.glance(&mut next).unwrap()));
        assert!(is_whole(&fs.status().unwrap()) && files_at_risk(&fs).is_empty());
        // Without an earlier status.
        lab.disks[1].remove(chunk).unwrap();
        next = SetId::default();
        let found: Vec<bool> = (0..2 * rounds).map(|_| is_whole(&fs.glance(&mut next).unwrap())).collect();
        assert_eq!(found, [true, false, false, false]);
        fs.close_volume().unwrap();
    }
}
