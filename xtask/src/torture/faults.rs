//! Faults, at random by a seed: never are more targets without what is written than the code can
//! lose.

use super::campaign::{Record, Run};
use super::world::{CAN_LOSE, LEASE, World};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// What is wrong with a target for a while.
#[derive(Clone, Copy, PartialEq)]
enum Trouble {
    /// The disk answers nothing.
    Frozen,
    Full,
    /// Its directory is away.
    Gone,
    /// The store's process.
    Killed,
    Stopped,
    /// The store's process runs half of the time.
    Slow,
}

impl Trouble {
    fn name(self) -> &'static str {
        match self {
            Self::Frozen => "disk frozen",
            Self::Full => "disk full",
            Self::Gone => "target removed",
            Self::Killed => "store killed",
            Self::Stopped => "store stopped",
            Self::Slow => "store slow",
        }
    }
}

struct Ongoing {
    target: usize,
    trouble: Trouble,
    until: Instant,
}

pub struct Faults {
    random: fastrand::Rng,
    ongoing: Vec<Ongoing>,
    /// Targets that may have missed something since the volume was healthy.
    behind: BTreeSet<usize>,
    slow_ones_run: bool,
    next: Instant,
}

impl Faults {
    pub fn new(random: fastrand::Rng) -> Self {
        let (ongoing, behind) = (Vec::new(), BTreeSet::new());
        Self { random, ongoing, behind, slow_ones_run: true, next: Instant::now() + Duration::from_secs(2) }
    }

    fn milliseconds(&mut self, range: std::ops::Range<u64>) -> Duration {
        Duration::from_millis(self.random.u64(range))
    }

    /// One turn; to be called some twenty times a second.
    pub fn turn(&mut self, run: &mut Run) -> Result<(), String> {
        self.slow_ones_run = !self.slow_ones_run;
        for ongoing in self.ongoing.iter().filter(|ongoing| ongoing.trouble == Trouble::Slow) {
            run.world.stores[ongoing.target].signal(if self.slow_ones_run { "CONT" } else { "STOP" });
        }
        self.end_due(&run.world, &mut run.record)?;
        if Instant::now() < self.next {
            return Ok(());
        }
        self.next = Instant::now() + self.milliseconds(100..1500);
        if self.ongoing.is_empty() && self.behind.len() >= CAN_LOSE {
            return self.heal(run);
        }
        match self.random.u8(..20) {
            0..9 if self.behind.len() < CAN_LOSE => self.begin(run),
            9..11 if self.behind.is_empty() => self.moment(run),
            11 => self.forget(run),
            12..14 => self.crash(run),
            14..16 => self.pause_mount(run),
            16..19 if run.world.is_cluster() => self.meta(run),
            19 if run.world.is_cluster() => self.lapse(run),
            _ => Ok(()),
        }
    }

    /// Ends the faults whose time is over.
    fn end_due(&mut self, world: &World, record: &mut Record) -> Result<(), String> {
        let (ended, ongoing) = self.ongoing.drain(..).partition(|ongoing| Instant::now() >= ongoing.until);
        self.ongoing = ongoing;
        let ended: Vec<Ongoing> = ended;
        ended.iter().try_for_each(|ongoing| end(world, record, ongoing))
    }

    pub fn heal(&mut self, run: &mut Run) -> Result<(), String> {
        run.event("the volume heals".into());
        run.world.heal(Duration::from_secs(240))?;
        self.behind.clear();
        run.writers.tell("full 0");
        run.event("the volume is healthy".into());
        Ok(())
    }

    fn begin(&mut self, run: &mut Run) -> Result<(), String> {
        let target = self.random.usize(..run.world.disks.len());
        if self.ongoing.iter().any(|ongoing| ongoing.target == target) {
            return Ok(());
        }
        let mut kinds = vec![Trouble::Gone];
        if run.world.disks[target].has_space_of_its_own() {
            kinds.extend([Trouble::Frozen, Trouble::Full]);
        }
        if run.world.is_cluster() {
            kinds.extend([Trouble::Killed, Trouble::Killed, Trouble::Stopped, Trouble::Slow]);
        }
        let trouble = kinds[self.random.usize(..kinds.len())];
        let time = self.milliseconds(200..6000);
        run.event(format!("target {target}: {} for {} ms", trouble.name(), time.as_millis()));
        run.count(trouble.name());
        let disk = &run.world.disks[target];
        match trouble {
            Trouble::Frozen => disk.freeze()?,
            Trouble::Full => {
                run.writers.tell("full 1");
                // What was written before has left the kernel when the disk is full.
                std::thread::sleep(Duration::from_secs(1));
                disk.fill()?;
            }
            Trouble::Gone => disk.remove()?,
            Trouble::Killed => run.world.stores[target].kill(),
            Trouble::Stopped | Trouble::Slow => run.world.stores[target].signal("STOP"),
        }
        self.behind.insert(target);
        self.ongoing.push(Ongoing { target, trouble, until: Instant::now() + time });
        Ok(())
    }

    /// More targets are silent for a moment than the code can lose: everybody waits, and nothing
    /// fails.
    fn moment(&mut self, run: &mut Run) -> Result<(), String> {
        let trouble = match run.world.is_cluster() {
            true => Trouble::Stopped,
            false if run.world.disks[0].has_space_of_its_own() => Trouble::Frozen,
            false => return Ok(()),
        };
        let until = Instant::now() + self.milliseconds(200..900);
        let mut targets: Vec<usize> = (0..run.world.disks.len()).collect();
        self.random.shuffle(&mut targets);
        targets.truncate(self.random.usize(CAN_LOSE + 1..=targets.len()));
        run.event(format!("targets {targets:?}: {} for a moment", trouble.name()));
        run.count("many silent for a moment");
        self.forget(run)?;
        for target in targets {
            match trouble {
                Trouble::Stopped => run.world.stores[target].signal("STOP"),
                _ => run.world.disks[target].freeze()?,
            }
            self.behind.insert(target);
            self.ongoing.push(Ongoing { target, trouble, until });
        }
        Ok(())
    }

    /// Makes the kernel forget what it read, so that disks and stores are read again.
    fn forget(&mut self, run: &mut Run) -> Result<(), String> {
        run.count("caches dropped");
        std::fs::write("/proc/sys/vm/drop_caches", "1").map_err(|why| format!("dropping caches: {why}"))
    }

    /// Kills a mount and mounts again.
    fn crash(&mut self, run: &mut Run) -> Result<(), String> {
        // A process that waits for a frozen disk cannot be killed.
        if !run.world.is_cluster() && self.ongoing.iter().any(|ongoing| ongoing.trouble == Trouble::Frozen) {
            return Ok(());
        }
        let mount = self.random.usize(..run.world.mounts.len());
        run.event(format!("mount {mount} is killed"));
        run.count("mount killed");
        run.writers.tell(&format!("epoch {mount}"));
        run.world.crash(mount, || self.end_due(&run.world, &mut run.record))?;
        run.writers.tell(&format!("epoch {mount}"));
        run.event(format!("mount {mount} is back"));
        Ok(())
    }

    /// Stops a mount for less than its lease: nothing may be lost.
    fn pause_mount(&mut self, run: &mut Run) -> Result<(), String> {
        let mount = self.random.usize(..run.world.mounts.len());
        let time = self.milliseconds(50..3000);
        run.event(format!("mount {mount} is stopped for {} ms", time.as_millis()));
        run.count("mount stopped");
        run.world.mounts[mount].signal("STOP");
        std::thread::sleep(time);
        run.world.mounts[mount].signal("CONT");
        Ok(())
    }

    /// Stops a mount for longer than its lease: it loses what it did not sync, and must say so.
    fn lapse(&mut self, run: &mut Run) -> Result<(), String> {
        let mount = self.random.usize(..run.world.mounts.len());
        let time = LEASE + self.milliseconds(1000..6000);
        run.event(format!("mount {mount} is stopped past its lease"));
        run.count("lease lapsed");
        run.writers.tell(&format!("epoch {mount}"));
        run.world.mounts[mount].signal("STOP");
        std::thread::sleep(time);
        run.world.mounts[mount].signal("CONT");
        run.writers.tell(&format!("epoch {mount}"));
        Ok(())
    }

    fn meta(&mut self, run: &mut Run) -> Result<(), String> {
        let Some(meta) = &run.world.meta else { return Ok(()) };
        let time = self.milliseconds(0..4000);
        let how = ["killed", "stopped", "ended"][self.random.usize(..3)];
        run.record.add(format!("the metadata server is {how} for {} ms", time.as_millis()));
        *run.counts.entry(format!("metadata server {how}")).or_default() += 1;
        match how {
            "killed" => meta.kill(),
            "stopped" => meta.signal("STOP"),
            _ => meta.end_beside(Duration::from_secs(120), || self.end_due(&run.world, &mut run.record))?,
        }
        std::thread::sleep(time);
        match how {
            "stopped" => meta.signal("CONT"),
            // It waits for the stores, which may be stopped: that must end meanwhile.
            _ => meta.start_beside(|| self.end_due(&run.world, &mut run.record))?,
        }
        run.record.add("the metadata server is back".into());
        Ok(())
    }

    /// Takes all faults back.
    pub fn end_all(&mut self, run: &mut Run) -> Result<(), String> {
        let ongoing = std::mem::take(&mut self.ongoing);
        ongoing.iter().try_for_each(|ongoing| end(&run.world, &mut run.record, ongoing))
    }

    /// Which targets are taken away for the last look.
    pub fn last_losses(&mut self, targets: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..targets).collect();
        self.random.shuffle(&mut all);
        all.truncate(CAN_LOSE);
        all
    }
}

fn end(world: &World, record: &mut Record, ongoing: &Ongoing) -> Result<(), String> {
    let target = ongoing.target;
    record.add(format!("target {target}: {} no longer", ongoing.trouble.name()));
    let disk = &world.disks[target];
    match ongoing.trouble {
        Trouble::Frozen => disk.thaw(),
        // That there may be no space stays allowed until the volume heals: what was placed badly
        // meanwhile takes a while to move.
        Trouble::Full => disk.empty(),
        Trouble::Gone => disk.bring_back(),
        Trouble::Killed => world.stores[target].start(),
        Trouble::Stopped | Trouble::Slow => {
            world.stores[target].signal("CONT");
            Ok(())
        }
    }
}
