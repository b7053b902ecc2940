//! A fault campaign against release builds: real processes, several writers whose blocks say what
//! they are, and faults by a seed. Every byte that was acknowledged is checked.

mod campaign;
mod disks;
mod faults;
pub mod model;
pub mod process;
pub mod world;
pub mod writers;

use crate::NOT_HERE;
use campaign::{Record, Run, Writers};
use faults::Faults;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};
use world::World;

/// The longest that an operation waits, as docs/cluster.md has it: for a metadata server that does
/// not come back.
pub const MAX_WAIT: Duration = Duration::from_secs(300);
/// On directories there is nothing to wait for but disks.
const MAX_WAIT_EMBEDDED: Duration = Duration::from_secs(120);

/// What to do.
struct Options {
    folder: PathBuf,
    time: Duration,
    cluster: bool,
    seed: u64,
    writers: usize,
    weft: Option<PathBuf>,
    clean: bool,
}

fn options(arguments: &[&str]) -> Result<Options, String> {
    let mut options = Options {
        folder: PathBuf::new(),
        time: Duration::from_secs(600),
        cluster: false,
        seed: fastrand::u64(..1_000_000),
        writers: 4,
        weft: None,
        clean: false,
    };
    let mut rest = arguments.iter();
    while let Some(&argument) = rest.next() {
        let mut value = || rest.next().copied().ok_or(format!("{argument} needs a value"));
        let number = |text: &str| text.parse::<f64>().map_err(|_| format!("{argument} {text}: not a number"));
        match argument {
            "--minutes" => {
                let minutes = number(value()?)?;
                if !(0.0..=100_000.0).contains(&minutes) {
                    return Err(format!("--minutes {minutes}: from 0 to 100000"));
                }
                options.time = Duration::from_secs_f64(minutes * 60.0);
            }
            "--seed" => options.seed = value()?.parse().map_err(|_| "--seed: not a whole number".to_owned())?,
            "--writers" => {
                options.writers = value()?.parse().map_err(|_| "--writers: not a whole number".to_owned())?;
            }
            "--weft" => options.weft = Some(value()?.into()),
            "--cluster" => options.cluster = true,
            "--clean" => options.clean = true,
            flag if flag.starts_with('-') => return Err(format!("{flag}: no such option; see cargo xtask help")),
            folder if options.folder.as_os_str().is_empty() => options.folder = folder.into(),
            more => return Err(format!("{more}: one directory is enough")),
        }
    }
    if options.folder.as_os_str().is_empty() {
        return Err("torture needs a directory to work in".into());
    }
    if !(1..=64).contains(&options.writers) {
        return Err(format!("--writers {}: from 1 to 64", options.writers));
    }
    Ok(options)
}

/// Carries the campaign out.
///
/// # Errors
/// What went wrong, with the seed and what happened before it.
pub fn run(root: &Path, arguments: &[&str]) -> Result<(), String> {
    let options = options(arguments)?;
    let folder = std::path::absolute(&options.folder).map_err(|why| format!("{}: {why}", options.folder.display()))?;
    let folder = folder.join("weft-torture");
    disks::clean(&folder)?;
    if options.clean {
        return Ok(());
    }
    possible()?;
    let weft = match options.weft {
        Some(weft) => weft,
        None => {
            crate::cargo(&["build", "--release", "-p", "cli"], &[])?;
            root.join("target/release/weft")
        }
    };
    fs::create_dir_all(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    let own_disks = disks::possible(&folder);
    if let Err(why) = &own_disks {
        println!("skipped: full and frozen disks ({why})");
    }
    let mut random = fastrand::Rng::with_seed(options.seed);
    println!("--seed {}, {} minutes, logs in {}", options.seed, options.time.as_secs_f64() / 60.0, folder.display());
    let own_disks = own_disks.is_ok();
    let world = match options.cluster {
        true => World::cluster(&weft, &folder, own_disks, &mut random)?,
        false => World::embedded(&weft, &folder, own_disks)?,
    };
    let writers = Writers::start(options.writers, random.u64(..), &world.points)?;
    let record = Record::new();
    let longest_wait = if options.cluster { MAX_WAIT } else { MAX_WAIT_EMBEDDED };
    let mut run = Run { writers, world, record, counts: BTreeMap::new(), longest_wait };
    let mut faults = Faults::new(random);
    let done = campaign(&mut run, &mut faults, options.time);
    let panics: Vec<String> = run.world.processes().flat_map(process::Process::panics).collect();
    let done = done.and_then(|()| if panics.is_empty() { Ok(()) } else { Err(panics.join("\n")) });
    println!(
        "{} operations, {} refused for lack of space, slowest {} ms ({}); {:?}",
        run.writers.number(0),
        run.writers.number(1),
        run.writers.number(3),
        run.writers.last.rsplit("; slowest ").next().unwrap_or_default(),
        run.counts
    );
    if let Err(why) = done {
        let lines = &run.record.lines;
        lines[lines.len().saturating_sub(60)..].iter().for_each(|line| println!("{line}"));
        for process in run.world.processes() {
            println!("--- {}\n{}", process.name, process.last_words());
        }
        return Err(format!("--seed {}: {why}", options.seed));
    }
    drop(run);
    disks::clean(&folder)
}

/// Whether what mounts can run here.
///
/// # Errors
/// Why not.
pub fn possible() -> Result<(), String> {
    let root = crate::peers::output_of(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0");
    let fuse = fs::File::options().read(true).write(true).open("/dev/fuse");
    match (root, fuse) {
        (true, Ok(_)) => Ok(()),
        (false, _) => Err(format!("{NOT_HERE}: it mounts, which takes root")),
        (_, Err(why)) => Err(format!("{NOT_HERE}: /dev/fuse: {why}")),
    }
}

fn campaign(run: &mut Run, faults: &mut Faults, time: Duration) -> Result<(), String> {
    let begun = Instant::now();
    let mut last_report = Instant::now();
    while begun.elapsed() < time {
        run.writers.listen(Duration::from_millis(50));
        run.look()?;
        faults.turn(run)?;
        if last_report.elapsed() > Duration::from_secs(30) {
            println!("{:6.1} min: {} operations", begun.elapsed().as_secs_f64() / 60.0, run.writers.number(0));
            last_report = Instant::now();
        }
    }
    run.event("the faults end".into());
    // Before the writers pause: what they do may wait for stores that are stopped.
    faults.end_all(run)?;
    run.have_done("pause", "paused")?;
    faults.heal(run)?;
    run.have_done("check", "checked")?;
    run.event("all is as it was written".into());
    for mount in 0..run.world.mounts.len() {
        run.world.unmount(mount)?;
    }
    // What a client writes at its end may lack a target that it found failing.
    faults.heal(run)?;
    for command in ["verify", "fsck", "status"] {
        let (status, said) = run.world.on_volume(command)?;
        if status != Some(0) {
            return Err(format!("weft {command} of a healthy volume: {said}"));
        }
    }
    let losses = faults.last_losses(run.world.disks.len());
    run.event(format!("targets {losses:?} are taken away"));
    for &target in &losses {
        match run.world.stores.get(target) {
            Some(store) => store.kill(),
            None => run.world.disks[target].remove()?,
        }
    }
    for mount in &run.world.mounts {
        mount.start()?;
    }
    // Every byte that was acknowledged, of the others.
    run.have_done("pause", "paused")?;
    run.have_done("check", "checked")?;
    run.event("all can be read without them".into());
    run.writers.tell("end");
    for mount in 0..run.world.mounts.len() {
        run.world.unmount(mount)?;
    }
    while run.writers.child.try_wait().is_ok_and(|status| status.is_none()) {
        sleep(Duration::from_millis(5));
    }
    Ok(())
}
