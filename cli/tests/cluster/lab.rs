//! A cluster of real processes for one test: each store one, the metadata server one, each mount
//! one. Whatever happens, all of them are gone when it is dropped.

use crate::network::{Between, Machine, inside};
use crate::scratch::{Ended, Scratch, run, weft};
use crate::starter;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What must happen has happened by then, also on a machine that is ten times too busy.
pub const WAIT_TIMEOUT: Duration = Duration::from_secs(300);
/// A test that takes longer hangs.
const TEST_TIMEOUT: Duration = Duration::from_secs(800);

/// Whether there is a FUSE here; says so if not.
pub fn possible(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    let possible = root && File::options().read(true).write(true).open("/dev/fuse").is_ok();
    if !possible {
        eprintln!("{test} is skipped: it takes root and /dev/fuse");
    }
    possible
}

/// A port that no process listens on, that the system gives to no connection, and that no other
/// test has: its server may be down for a while.
pub fn free_port() -> u16 {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    loop {
        let port = fastrand::u16(12_000..32_000);
        let is_new = GIVEN.lock().unwrap().insert(port);
        if is_new && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// A process that can be ended and started again.
pub struct Process {
    name: String,
    arguments: Vec<OsString>,
    /// The network namespace that it is in, if not that of the test.
    place: Option<PathBuf>,
    scratch: PathBuf,
    child: Mutex<Option<Child>>,
    stopped: AtomicBool,
}

impl Process {
    pub fn new(name: String, arguments: Vec<OsString>, scratch: &Path) -> Self {
        let (child, stopped) = (Mutex::default(), AtomicBool::new(false));
        Self { name, arguments, place: None, scratch: scratch.into(), child, stopped }
    }

    /// To be started in a network namespace.
    pub fn inside(mut self, place: Option<PathBuf>) -> Self {
        self.place = place;
        self
    }

    /// Starts a command and waits until it is ready.
    #[track_caller]
    pub fn of(name: &str, command: &mut Command, scratch: &Path) -> Self {
        Self::started(name, command, scratch).unwrap_or_else(|why| panic!("{name} does not start: {why}"))
    }

    /// As `of`, or why it does not start.
    pub fn started(name: &str, command: &Command, scratch: &Path) -> Result<Self, String> {
        let process = Self::new(name.into(), command.get_args().map(OsString::from).collect(), scratch);
        process.try_start().map(|()| process)
    }

    /// Starts it, and waits until it says that it is ready.
    #[track_caller]
    pub fn start(&self) {
        self.try_start().unwrap_or_else(|why| panic!("{} does not start: {why}", self.name));
    }

    pub fn try_start(&self) -> Result<(), String> {
        let mut command = weft();
        command.args(&self.arguments);
        if let Some(place) = &self.place {
            command = inside(place, &command);
        }
        command.env("TMPDIR", &self.scratch);
        let output = self.scratch.join(format!("{}.out", self.name));
        let mut place = self.child.lock().unwrap();
        assert!(place.is_none(), "{} runs", self.name);
        *place = Some(starter::start(command, &output, &self.log_path()).unwrap());
        drop(place);
        self.stopped.store(false, Ordering::SeqCst);
        let begun = Instant::now();
        let how = loop {
            if fs::read(&output).unwrap().contains(&b'\n') {
                return Ok(());
            }
            let ended = self.child.lock().unwrap().as_mut().and_then(|child| child.try_wait().ok().flatten());
            match ended {
                Some(status) => break format!("it ended: {status}"),
                None if begun.elapsed() > WAIT_TIMEOUT => break "it is silent".into(),
                None => std::thread::sleep(Duration::from_millis(2)),
            }
        };
        self.kill();
        Err(format!("{how}; {}", self.log()))
    }

    fn log_path(&self) -> PathBuf {
        self.scratch.join(format!("{}.log", self.name))
    }

    /// What it said on standard error.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    pub fn id(&self) -> Option<u32> {
        self.child.lock().unwrap().as_ref().map(Child::id)
    }

    pub fn signal(&self, signal: Signal) {
        if let Some(child) = &*self.child.lock().unwrap() {
            let _ = kill_process(Pid::from_child(child), signal);
        }
    }

    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.signal(Signal::STOP);
    }

    pub fn go_on(&self) {
        self.stopped.store(false, Ordering::SeqCst);
        self.signal(Signal::CONT);
    }

    /// With SIGKILL.
    pub fn kill(&self) {
        if let Some(mut child) = self.child.lock().unwrap().take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// With SIGTERM; returns whether it ended well.
    #[track_caller]
    pub fn end(&self) -> bool {
        self.signal(Signal::TERM);
        self.ended(WAIT_TIMEOUT)
    }

    /// Waits for its end; returns whether it was a good one.
    #[track_caller]
    pub fn ended(&self, timeout: Duration) -> bool {
        let begun = Instant::now();
        loop {
            let mut place = self.child.lock().unwrap();
            let Some(child) = &mut *place else { return true };
            if let Some(status) = child.try_wait().unwrap() {
                *place = None;
                return status.success();
            }
            drop(place);
            assert!(begun.elapsed() < timeout, "{} does not end: {}", self.name, self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A mount of the cluster's volume.
pub struct Mount {
    process: Arc<Process>,
    pub point: PathBuf,
    /// Where it is, in a cluster with a network.
    machine: Option<Machine>,
}

impl std::ops::Deref for Mount {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl Mount {
    pub fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.point.join(name)
    }

    /// Where it is in the cluster's network.
    pub fn machine(&self) -> Machine {
        self.machine.expect("a network")
    }

    /// Ends it as users do; returns when everything is committed.
    #[track_caller]
    pub fn unmount(self) {
        run(weft().env("TMPDIR", &self.scratch).arg("unmount").arg(&self.point)).good();
        assert!(self.process.ended(WAIT_TIMEOUT), "{}", self.log());
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.process.kill();
        detach(&self.point);
    }
}

fn detach(point: &Path) {
    run(Command::new("umount").arg("-l").arg(point));
}

/// The process of a mount, and where it is.
type Mounted = (Arc<Process>, PathBuf);

/// Storage servers, a metadata server, and the volume they have.
pub struct Cluster {
    pub stores: Vec<Process>,
    pub meta: Process,
    pub port: u16,
    pub ports: Vec<u16>,
    mounts: Arc<Mutex<Vec<Mounted>>>,
    ended: Arc<AtomicBool>,
    pub scratch: Scratch,
    /// Where the metadata server is.
    pub host: Ipv4Addr,
    pub between: Option<Between>,
}

impl Cluster {
    pub fn new(code: &str, stores: usize) -> Self {
        Self::with(code, stores, &[])
    }

    /// `meta`: more arguments for the metadata server.
    pub fn with(code: &str, stores: usize, meta: &[&str]) -> Self {
        Self::created(code, stores, &[], meta)
    }

    /// `create`: more arguments for the creation of the volume.
    pub fn created(code: &str, stores: usize, create: &[&str], meta: &[&str]) -> Self {
        let scratch = Scratch::new(0);
        let path = scratch.path.clone();
        let mut addresses = Vec::new();
        let mut ports = Vec::new();
        let stores: Vec<Process> = (0..stores)
            .map(|number| {
                let disk = path.join(format!("disk{number}"));
                fs::create_dir(&disk).unwrap();
                loop {
                    let port = free_port();
                    let listen = format!("127.0.0.1:{port}");
                    let arguments = ["--json", "serve", "store", "--listen", &listen].map(OsString::from);
                    let arguments = arguments.into_iter().chain([disk.clone().into()]).collect();
                    let store = Process::new(format!("store{number}"), arguments, &path);
                    // Another test may have been faster.
                    if store.try_start().is_ok() {
                        addresses.push(format!("store://{listen}/disk{number}"));
                        ports.push(port);
                        return store;
                    }
                }
            })
            .collect();
        let volume = path.join("vol");
        run(weft().arg("create").arg(&volume).args(["--code", code]).args(create).args(&addresses)).good();
        let (meta, port) = loop {
            let port = free_port();
            let listen = format!("127.0.0.1:{port}");
            let mut arguments = ["--json", "serve", "meta", "--listen", &listen].map(OsString::from).to_vec();
            arguments.extend(meta.iter().map(OsString::from));
            arguments.push(volume.clone().into());
            let server = Process::new("meta".into(), arguments, &path);
            match server.try_start() {
                Ok(()) => break (server, port),
                Err(why) => assert!(why.contains("cannot listen"), "{why}"),
            }
        };
        Self::of(stores, meta, port, ports, scratch)
    }

    /// Watches over a test that may hang.
    pub fn of(stores: Vec<Process>, meta: Process, port: u16, ports: Vec<u16>, scratch: Scratch) -> Self {
        let mounts = Arc::<Mutex<Vec<(Arc<Process>, PathBuf)>>>::default();
        let ended = Arc::new(AtomicBool::new(false));
        let watch = (mounts.clone(), ended.clone());
        let longest = TEST_TIMEOUT + crate::soak::time();
        std::thread::spawn(move || {
            let begun = Instant::now();
            while !watch.1.load(Ordering::SeqCst) {
                if begun.elapsed() > longest {
                    eprintln!("the test hangs: its mounts are killed");
                    for (process, point) in watch.0.lock().unwrap().iter() {
                        process.kill();
                        detach(point);
                    }
                    return;
                }
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        let host = Ipv4Addr::LOCALHOST;
        Self { stores, meta, port, ports, mounts, ended, scratch, host, between: None }
    }

    /// The address of the volume.
    pub fn url(&self) -> String {
        format!("weft://{}:{}/vol", self.host, self.port)
    }

    /// The address of a file in it.
    pub fn at(&self, path: &str) -> String {
        format!("{}:/{path}", self.url())
    }

    /// A command with the volume as its last argument.
    pub fn on(&self, command: &[&str]) -> Ended {
        run(&mut self.command(command))
    }

    #[track_caller]
    pub fn mount(&self, name: &str) -> Mount {
        self.mount_with(name, &[])
    }

    #[track_caller]
    pub fn mount_with(&self, name: &str, options: &[&str]) -> Mount {
        self.mount_of(&self.url(), name, options)
    }

    /// Mounts the volume by another address.
    #[track_caller]
    pub fn mount_at(&self, url: &str, name: &str) -> Mount {
        self.mount_of(url, name, &[])
    }

    #[track_caller]
    fn mount_of(&self, url: &str, name: &str, options: &[&str]) -> Mount {
        let point = self.scratch.path.join(name);
        fs::create_dir_all(&point).unwrap();
        let mut arguments: Vec<OsString> =
            ["mount", "--foreground", "--tell"].iter().chain(options).map(OsString::from).collect();
        let mut place = None;
        let mut machine = None;
        if let Some(between) = &self.between {
            let joined = between.join();
            (machine, place) = (Some(joined.0), Some(joined.1));
            arguments.extend(["--identity".into(), self.scratch.path.join("client/client").into()]);
        }
        arguments.extend([url.into(), point.clone().into()]);
        let process = Arc::new(Process::new(name.into(), arguments, &self.scratch.path).inside(place));
        self.mounts.lock().unwrap().push((process.clone(), point.clone()));
        process.start();
        Mount { process, point, machine }
    }

    /// All blocks are as they were written, once what a late store lacks is repaired: one is late
    /// on a busy machine.
    #[track_caller]
    pub fn is_healthy(&self) {
        self.heal();
        self.on(&["verify"]).good();
    }

    /// Repairs until nothing is at risk.
    #[track_caller]
    pub fn heal(&self) {
        self.heal_by(|words| self.on(words));
    }

    /// The same with commands that are given in another way.
    #[track_caller]
    pub fn heal_by(&self, on: impl Fn(&[&str]) -> Ended) {
        heal(on, || self.meta.log());
    }
}

/// Repairs a volume until nothing of it is at risk.
#[track_caller]
pub fn heal(on: impl Fn(&[&str]) -> Ended, log: impl Fn() -> String) {
    let begun = Instant::now();
    loop {
        let (repair, status) = (on(&["repair"]), on(&["status", "--json"]));
        if repair.status == 0 && status.status == 0 {
            return;
        }
        let status = String::from_utf8_lossy(&status.output);
        assert!(begun.elapsed() < WAIT_TIMEOUT, "it does not heal: {}{status}{}", repair.errors, log());
        std::thread::sleep(Duration::from_millis(300));
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        if std::thread::panicking() {
            for process in self.stores.iter().chain([&self.meta]) {
                eprint!("--- {}\n{}", process.name, process.log());
            }
            for (process, _) in self.mounts.lock().unwrap().iter() {
                eprint!("--- {}\n{}", process.name, process.log());
            }
        }
        for (process, point) in self.mounts.lock().unwrap().iter() {
            process.kill();
            detach(point);
        }
        self.meta.kill();
        self.stores.iter().for_each(Process::kill);
    }
}
