//! The cluster of a run: stores, a metadata server and perhaps a mount, on loopback or each on a
//! machine of a network, in one temporary directory. Or a mount alone that has the volume on
//! directories.

use super::network::{CLIENT, Lab, META, STORES};
use super::own_disk;
use crate::failure::{Failure, Outcome};
use crate::unprotected;
use crate::volumes::processes::{Process, free_port, processor_seconds, serve, start};
use plan::coding::Coding;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use volume::Shown;

/// Processes rest when all together keep no more than this part of one processor busy for the
/// interval.
const AT_REST: f64 = 0.05;
const SETTLING_INTERVAL: Duration = Duration::from_millis(200);
const LONGEST_SETTLING: Duration = Duration::from_secs(3);

/// How clients reach the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Front {
    /// It is mounted, for this bench.
    Mount(&'static str),
    /// Clients connect to the metadata server.
    Server,
}

/// What is set up.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    pub front: Front,
    pub code: &'a str,
    /// More words for the creation of the volume.
    pub create: &'a [String],
    /// The kernel of all processes, if one is forced.
    pub kernel: Option<&'a str>,
    pub coding: Coding,
    pub stores: u32,
    /// Targets of each store. With several, each store is a domain.
    pub disks: u32,
    /// A disk for each store, which its targets are on.
    pub own_disks: bool,
    /// No servers: the volume is open in the process of the mount.
    pub embedded: bool,
    pub stripe_bytes: Option<usize>,
    pub channels: Option<usize>,
    /// The number of the store that is always Master, from 1.
    pub master: Option<u32>,
}

/// The cluster. When it goes, it is unmounted, its servers end, and its directory is removed.
pub struct Stage<'a> {
    lab: Option<&'a Lab>,
    place: PathBuf,
    /// The volume as clients call it, if there is a metadata server.
    volume: String,
    mount: Option<Process>,
    meta: Option<Process>,
    stores: Vec<Process>,
}

impl<'a> Stage<'a> {
    /// Starts everything. The directory must not be there.
    pub fn set(place: &Path, setup: &Setup, lab: Option<&'a Lab>) -> Result<Self, Failure> {
        let failed = |path: &Path, why: std::io::Error| Failure::Other(format!("{}: {why}", Shown(path)));
        std::fs::create_dir(place).map_err(|why| failed(place, why))?;
        let mut stage =
            Self { lab, place: place.into(), volume: String::new(), mount: None, meta: None, stores: Vec::new() };
        let point = stage.mountpoint();
        std::fs::create_dir(&point).map_err(|why| failed(&point, why))?;
        let kernel: Vec<(&str, &str)> = setup.kernel.iter().map(|kernel| ("WEFT_KERNEL", *kernel)).collect();
        let spec = unprotected::spec(setup.code);
        let code = spec.as_deref().unwrap_or(setup.code);
        let mut create: Vec<String> = ["volume", "create", "films", "--code", code].map(String::from).into();
        create.extend_from_slice(setup.create);
        create.extend(spec.iter().map(|_| "--unsafe-no-parity".into()));
        let mut mount: Vec<String> = ["mount", "--foreground", "--tell"].map(String::from).into();
        for number in 1..=setup.stores {
            let disks: Vec<String> = match setup.disks {
                1 => vec![format!("disk{number}")],
                disks => (1..=disks).map(|disk| format!("disk{number}-{disk}")).collect(),
            };
            let mut at_disk = PathBuf::new();
            if setup.own_disks {
                own_disk::make(place, number)?;
                at_disk = own_disk::of(Path::new(""), number);
            }
            let directories: Vec<String> = disks.iter().map(|disk| at_disk.join(disk).display().to_string()).collect();
            for directory in &directories {
                let directory = place.join(directory);
                std::fs::create_dir(&directory).map_err(|why| failed(&directory, why))?;
            }
            if setup.embedded {
                create.extend(directories);
                continue;
            }
            let machine = STORES + number as usize - 1;
            let listen = stage.address(machine)?;
            let mut arguments: Vec<String> = ["serve", "store", "--listen", &listen].map(String::from).into();
            if setup.disks > 1 {
                arguments.extend(["--domain".into(), format!("store{number}")]);
            }
            arguments.extend(directories);
            stage.stores.push(at(lab, machine, || start(place, &words(&arguments), &kernel, None))?);
            if setup.master == Some(number) {
                mount.extend(["--master".into(), format!("store://{listen}")]);
            }
            create.extend(disks.iter().map(|disk| format!("store://{listen}/{disk}")));
        }
        at(lab, META, || stage.run(&words(&create)))?;
        if setup.embedded {
            mount.push("films".into());
        } else {
            let listen = stage.address(META)?;
            stage.meta = Some(at(lab, META, || serve(place, &["serve", "meta", "films", "--listen", &listen]))?);
            stage.volume = format!("weft://{listen}/films");
            mount.extend(["--coding".into(), setup.coding.to_string()]);
            mount.extend(setup.stripe_bytes.iter().flat_map(|bytes| ["--stripe-bytes".into(), bytes.to_string()]));
            mount.extend(setup.channels.iter().flat_map(|channels| ["--channels".into(), channels.to_string()]));
            mount.push(stage.volume.clone());
        }
        let Front::Mount(bench) = setup.front else { return Ok(stage) };
        mount.push("mountpoint".into());
        let log = place.join("mount.err");
        let mounted = at(lab, CLIENT, || start(place, &words(&mount), &kernel, Some(&log)));
        stage.mount =
            Some(mounted.map_err(|why| {
                Failure::Other(format!("{bench} needs a mount, and this is not possible here: {why}"))
            })?);
        Ok(stage)
    }

    /// Processor time of this process, the mount, the metadata server, and all stores together, in
    /// seconds.
    pub fn processors(&self) -> [f64; 4] {
        let of = |process: &Option<Process>| process.as_ref().map_or(0.0, Process::processor_seconds);
        let stores = self.stores.iter().map(Process::processor_seconds).sum();
        [processor_seconds("self"), of(&self.mount), of(&self.meta), stores]
    }

    /// Waits until the mount and the servers rest: they have begun, or have removed what an earlier
    /// measurement wrote. After [`LONGEST_SETTLING`] it waits no more.
    pub fn settle(&self) {
        let busy = || self.processors()[1..].iter().sum::<f64>();
        let begun = Instant::now();
        let mut before = busy();
        while begun.elapsed() < LONGEST_SETTLING {
            std::thread::sleep(SETTLING_INTERVAL);
            let now = busy();
            // The kernel counts ticks: one of these is rest.
            if now - before < 1.5 * AT_REST * SETTLING_INTERVAL.as_secs_f64() {
                return;
            }
            before = now;
        }
    }

    /// The volume as clients call it: `weft://...`.
    pub fn volume(&self) -> &str {
        &self.volume
    }

    /// The numbers of the stores' processes.
    pub fn store_processes(&self) -> impl Iterator<Item = u32> {
        self.stores.iter().map(Process::id)
    }

    /// Where the disk of a store is, if each has one.
    pub fn own_disk(&self, store: u32) -> PathBuf {
        own_disk::of(&self.place, store)
    }

    /// What `weft status` says of the volume.
    pub fn status(&self) -> Result<Value, Failure> {
        let said = self.weft(&["status", &self.volume, "--json"])?;
        serde_json::from_str(&said).map_err(|why| Failure::Other(format!("the status of the volume: {why}")))
    }

    /// Where everything is.
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// Where the volume is mounted.
    pub fn mountpoint(&self) -> PathBuf {
        self.place.join("mountpoint")
    }

    /// What the mount counted since it began, in seconds: CT, MT, DT, MP, PC, DD, SP; and the
    /// stripes that were coded.
    pub fn counted(&self) -> Result<([f64; 7], u64), Failure> {
        let said = self.weft(&["status", "mountpoint", "--json"])?;
        let unclear = || Failure::Other("the status of the mount has no write cost".into());
        let status: Value = serde_json::from_str(&said).map_err(|_| unclear())?;
        let steps = status["write_cost"]["steps"].as_array().ok_or_else(unclear)?;
        let mut seconds = [0.0; 7];
        if steps.len() != seconds.len() {
            return Err(unclear());
        }
        for (second, step) in seconds.iter_mut().zip(steps) {
            *second = step["seconds"].as_f64().ok_or_else(unclear)?;
        }
        Ok((seconds, steps[4]["count"].as_u64().ok_or_else(unclear)?))
    }

    /// Unmounts and ends everything.
    pub fn clear(mut self) -> Outcome {
        self.weft(&["unmount", "mountpoint"])?;
        // It commits everything before it ends.
        self.mount.take().into_iter().for_each(Process::wait);
        Ok(())
    }

    /// Where a server of a machine listens.
    fn address(&self, machine: usize) -> Result<String, Failure> {
        Ok(match self.lab {
            Some(_) => Lab::address(machine).to_string(),
            None => format!("127.0.0.1:{}", free_port()?),
        })
    }

    /// Runs a command of this program where the client is.
    fn weft(&self, arguments: &[&str]) -> Result<String, Failure> {
        at(self.lab, CLIENT, || self.run(arguments))
    }

    /// Runs a command of this program in the place; returns what it printed. A status that needs
    /// attention is no failure.
    fn run(&self, arguments: &[&str]) -> Result<String, Failure> {
        // The words after these are long lists.
        let begin = arguments[..arguments.len().min(2)].join(" ");
        let failed = |why: &dyn std::fmt::Display| Failure::Other(format!("weft {begin}: {why}"));
        let program = std::env::current_exe().map_err(|why| failed(&why))?;
        let done =
            Command::new(program).args(arguments).current_dir(&self.place).output().map_err(|why| failed(&why))?;
        if done.status.success() || arguments[0] == "status" && done.status.code() == Some(1) {
            return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(if done.stderr.is_empty() { &done.stdout } else { &done.stderr });
        Err(failed(&said.lines().last().unwrap_or("it failed").trim_start_matches("weft: ")))
    }
}

fn words(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

/// Does something on the machine of the clients, if there are several.
pub fn inside<T: Send>(lab: Option<&Lab>, work: impl FnOnce() -> Result<T, Failure> + Send) -> Result<T, Failure> {
    at(lab, CLIENT, work)
}

/// Does something on a machine, if there are several.
fn at<T: Send>(
    lab: Option<&Lab>,
    machine: usize,
    work: impl FnOnce() -> Result<T, Failure> + Send,
) -> Result<T, Failure> {
    match lab {
        Some(lab) => lab.inside(machine, work),
        None => work(),
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        let unmounted = self.mount.is_none() || self.weft(&["unmount", "--lazy", "mountpoint"]).is_ok();
        (self.mount, self.meta) = (None, None);
        self.stores.clear();
        own_disk::remove_all(&self.place);
        // What may still be mounted is left alone.
        if unmounted {
            let _ = std::fs::remove_dir_all(&self.place);
        }
    }
}
