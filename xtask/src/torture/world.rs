//! What is tortured: a volume on disks of this machine, or a cluster with TLS on loopback, all real
//! processes.

use super::disks::Disk;
use super::process::Process;
use crate::peers::run;
use std::ffi::OsString;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Targets that may be away at a time: the code is rs:4+2.
pub const CAN_LOSE: usize = 2;
const TARGETS: usize = 8;
/// A client that is silent for this long has lost its session.
pub const LEASE: Duration = Duration::from_secs(10);
/// No command takes longer.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(300);

pub struct World {
    weft: PathBuf,
    folder: PathBuf,
    pub mounts: Vec<Process>,
    pub points: Vec<PathBuf>,
    pub meta: Option<Process>,
    pub stores: Vec<Process>,
    pub disks: Vec<Disk>,
    /// The volume's address.
    volume: OsString,
    /// The identity of an operator.
    operator: Option<PathBuf>,
}

/// Arguments of a command.
pub fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

/// A port that no process listens on.
fn free_port(random: &mut fastrand::Rng) -> u16 {
    loop {
        let port = random.u16(12_000..32_000);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

impl World {
    fn empty(weft: &Path, folder: &Path, own_disks: bool) -> Result<Self, String> {
        let disks = (0..TARGETS).map(|number| Disk::new(folder, number, own_disks)).collect::<Result<Vec<_>, _>>()?;
        let (mounts, points, stores) = (Vec::new(), Vec::new(), Vec::new());
        let (volume, operator) = (folder.join("volume").into(), None);
        let (weft, folder) = (weft.into(), folder.into());
        Ok(Self { weft, folder, mounts, points, meta: None, stores, disks, volume, operator })
    }

    /// A volume on directories, mounted once.
    pub fn embedded(weft: &Path, folder: &Path, own_disks: bool) -> Result<Self, String> {
        let mut world = Self::empty(weft, folder, own_disks)?;
        let mut create = words(&["create", "--code", "rs:4+2"]);
        create.push(world.volume.clone());
        create.extend(world.disks.iter().map(|disk| disk.target().into()));
        world.good(create)?;
        world.add_mount(None)?;
        Ok(world)
    }

    /// A store for each disk, a metadata server, and two mounts, with certificates.
    pub fn cluster(weft: &Path, folder: &Path, own_disks: bool, random: &mut fastrand::Rng) -> Result<Self, String> {
        let mut world = Self::empty(weft, folder, own_disks)?;
        let ids = folder.join("ids");
        let mut init = words(&["cluster", "init"]);
        init.push(ids.clone().into());
        init.extend(words(&["--member", "client", "--member", "meta=127.0.0.1"]));
        // Programs from before there were operators can be tortured, too.
        let has_operators = world.command(words(&["cluster", "init", "--help"]))?.1.contains("--operator");
        let operator = if has_operators { "operator" } else { "meta" };
        if has_operators {
            init.extend(words(&["--operator", operator]));
        }
        for number in 0..TARGETS {
            init.extend(words(&["--member", &format!("store{number}=127.0.0.1")]));
        }
        world.good(init)?;
        let client = folder.join("client");
        fs::create_dir(&client).map_err(|why| format!("{}: {why}", client.display()))?;
        for file in ["authority.pem", "client.pem", "client.key"] {
            fs::copy(ids.join(file), client.join(file)).map_err(|why| format!("{file}: {why}"))?;
        }
        world.operator = Some(ids.join("meta"));
        let mut create = words(&["create", "--code", "rs:4+2"]);
        create.push(world.volume.clone());
        for number in 0..TARGETS {
            let name = format!("store{number}");
            let listen = format!("127.0.0.1:{}", free_port(random));
            let mut arguments = words(&["--json", "--identity"]);
            arguments.push(ids.join(&name).into());
            arguments.extend(words(&["serve", "store", "--listen", &listen]));
            arguments.push(world.disks[number].target().into());
            let store = Process::new(weft, name, arguments, folder);
            store.start()?;
            world.stores.push(store);
            create.push(format!("store://{listen}/target").into());
        }
        world.good(create)?;
        let listen = format!("127.0.0.1:{}", free_port(random));
        let mut arguments = words(&["--json", "--identity"]);
        arguments.push(ids.join("meta").into());
        let lease = LEASE.as_secs().to_string();
        arguments.extend(words(&["serve", "meta", "--listen", &listen, "--lease", &lease]));
        arguments.push(world.volume.clone());
        let meta = Process::new(weft, "meta".into(), arguments, folder);
        meta.start()?;
        world.meta = Some(meta);
        world.volume = format!("weft://{listen}/volume").into();
        world.operator = Some(ids.join(operator));
        for _ in 0..2 {
            world.add_mount(Some(&client.join("client")))?;
        }
        Ok(world)
    }

    fn add_mount(&mut self, identity: Option<&Path>) -> Result<(), String> {
        let name = format!("mount{}", self.mounts.len());
        let point = self.folder.join(&name);
        fs::create_dir(&point).map_err(|why| format!("{}: {why}", point.display()))?;
        let mut arguments = words(&["mount", "--foreground", "--tell"]);
        if let Some(identity) = identity {
            arguments.extend(["--identity".into(), identity.into()]);
        }
        arguments.extend([self.volume.clone(), point.clone().into()]);
        let mount = Process::new(&self.weft, name, arguments, &self.folder);
        mount.start()?;
        self.mounts.push(mount);
        self.points.push(point);
        Ok(())
    }

    pub fn is_cluster(&self) -> bool {
        self.meta.is_some()
    }

    pub fn processes(&self) -> impl Iterator<Item = &Process> {
        self.mounts.iter().chain(&self.meta).chain(&self.stores)
    }

    /// Carries a command out. Returns its exit status (none when it died of a signal) and what it
    /// said.
    pub fn command(&self, arguments: Vec<OsString>) -> Result<(Option<i32>, String), String> {
        let name = arguments[0].to_string_lossy().into_owned();
        let error = |why: std::io::Error| format!("weft {name}: {why}");
        let path = self.folder.join("command.out");
        let output = File::create(&path).map_err(error)?;
        let mut command = Command::new(&self.weft);
        if let Some(operator) = &self.operator {
            command.arg("--identity").arg(operator);
        }
        let errors = output.try_clone().map_err(error)?;
        command.args(arguments).stdin(Stdio::null()).stdout(output).stderr(errors).env("TMPDIR", &self.folder);
        let mut child = command.spawn().map_err(error)?;
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().map_err(error)? {
                break status;
            }
            if begun.elapsed() > COMMAND_TIMEOUT {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("weft {name} takes longer than {COMMAND_TIMEOUT:?}"));
            }
            sleep(Duration::from_millis(5));
        };
        let said = String::from_utf8_lossy(&fs::read(&path).map_err(error)?).trim().to_owned();
        match status.code() {
            None => Err(format!("weft {name} died: {status}: {said}")),
            code => Ok((code, said)),
        }
    }

    fn good(&self, arguments: Vec<OsString>) -> Result<(), String> {
        let name = arguments[0].to_string_lossy().into_owned();
        match self.command(arguments)? {
            (Some(0), _) => Ok(()),
            (status, said) => Err(format!("weft {name} ended with status {}: {said}", status.unwrap_or(-1))),
        }
    }

    /// A command with the volume as its argument.
    pub fn on_volume(&self, name: &str) -> Result<(Option<i32>, String), String> {
        self.command(vec![name.into(), self.volume.clone()])
    }

    /// Repairs until the volume is healthy.
    pub fn heal(&self, timeout: Duration) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            let repair = self.on_volume("repair")?;
            let status = self.on_volume("status")?;
            if repair.0 == Some(0) && status.0 == Some(0) {
                return Ok(());
            }
            if begun.elapsed() > timeout {
                return Err(format!("the volume does not heal within {timeout:?}:\n{}\n{}", repair.1, status.1));
            }
            sleep(Duration::from_millis(300));
        }
    }

    /// Kills a mount and mounts again. Something goes on while that waits.
    pub fn crash(&self, mount: usize, beside: impl FnMut() -> Result<(), String>) -> Result<(), String> {
        self.mounts[mount].kill();
        let _ = run(Command::new("umount").arg("-l").arg(&self.points[mount]));
        self.mounts[mount].start_beside(beside)
    }

    /// Ends a mount as users do.
    pub fn unmount(&self, mount: usize) -> Result<(), String> {
        run(Command::new(&self.weft).env("TMPDIR", &self.folder).arg("unmount").arg(&self.points[mount]))?;
        self.mounts[mount].wait(COMMAND_TIMEOUT)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // A process that waits for a frozen disk cannot be killed.
        for disk in self.disks.iter().filter(|disk| disk.has_space_of_its_own()) {
            let _ = disk.thaw();
        }
        for (mount, point) in self.mounts.iter().zip(&self.points) {
            mount.kill();
            let _ = run(Command::new("umount").arg("-l").arg(point));
        }
        self.meta.iter().chain(&self.stores).for_each(Process::kill);
    }
}
