//! A network for one test: each machine of it is a network namespace on a bridge, which is in a
//! namespace of its own. They have no names, so that tests do not meet, and are gone with the
//! processes that have them, however those end. A cut is silent: packets vanish without an error,
//! and every link stays up.

use crate::lab::{Cluster, Process};
use crate::scratch::{Scratch, run, weft};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::ffi::OsString;
use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// Machines at most.
const MACHINES: u8 = 24;

/// A network namespace; it is there as long as this is, or a process in it.
struct Namespace(File);

impl Namespace {
    fn new() -> Self {
        let made = std::thread::spawn(|| {
            // SAFETY: only the network of this thread changes, and it ends here.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
            Ok::<_, std::io::Error>(Self(File::open("/proc/thread-self/ns/net")?))
        });
        made.join().unwrap().expect("root can make network namespaces")
    }

    fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd()).into()
    }
}

/// A command in a network namespace.
pub fn inside(namespace: &Path, program: &Command) -> Command {
    let mut option = std::ffi::OsString::from("--net=");
    option.push(namespace);
    let mut command = Command::new("nsenter");
    command.arg(option).arg("--").arg(program.get_program()).args(program.get_args());
    command
}

/// Machines that reach each other.
pub struct Network {
    hub: Namespace,
    machines: Mutex<Vec<Namespace>>,
}

/// A machine by its number.
pub type Machine = usize;

impl Network {
    /// Whether there can be one; says so if not.
    pub fn possible(test: &str) -> bool {
        let answers = |name: &str| run(Command::new("sh").arg("-c").arg(format!("command -v {name}"))).status == 0;
        if !crate::lab::possible(test) {
            return false;
        }
        let missing = ["ip", "nsenter", "tc"].into_iter().find(|name| !answers(name));
        if let Some(missing) = missing {
            eprintln!("{test} is skipped: there is no program {missing}");
        }
        missing.is_none()
    }

    pub fn new() -> Self {
        let network = Self { hub: Namespace::new(), machines: Mutex::default() };
        network.tool(&network.hub.path(), "ip", "link add bridge type bridge");
        network.tool(&network.hub.path(), "ip", "link set bridge up");
        network
    }

    /// One more machine, and the namespace of its processes.
    pub fn join(&self) -> (Machine, PathBuf) {
        let place = Namespace::new();
        let (path, hub) = (place.path(), self.hub.path());
        let machine = {
            let mut machines = self.machines.lock().unwrap();
            machines.push(place);
            machines.len() - 1
        };
        assert!(machine < usize::from(MACHINES), "too many machines");
        let shown = path.display();
        self.tool(&hub, "ip", &format!("link add port{machine} type veth peer name wire netns {shown}"));
        self.tool(&hub, "ip", &format!("link set port{machine} master bridge up"));
        self.tool(&path, "ip", &format!("link set wire address {}", hardware(machine)));
        self.tool(&path, "ip", &format!("address add {}/24 dev wire", address(machine)));
        self.tool(&path, "ip", "link set lo up");
        self.tool(&path, "ip", "link set wire up");
        // Static neighbour entries: a question for an address would reveal a machine that is cut
        // off.
        for other in (0..usize::from(MACHINES)).filter(|other| *other != machine) {
            self.knows(&path, other, &hardware(other));
        }
        (machine, path)
    }

    fn knows(&self, place: &Path, other: Machine, hardware: &str) {
        let neighbour = format!("neighbour replace {} lladdr {hardware} dev wire nud permanent", address(other));
        self.tool(place, "ip", &neighbour);
    }

    fn place(&self, machine: Machine) -> PathBuf {
        self.machines.lock().unwrap()[machine].path()
    }

    /// Cuts a machine off from all others.
    pub fn cut(&self, machine: Machine) {
        self.tool(&self.hub.path(), "ip", &format!("link set port{machine} nomaster"));
    }

    /// Ends that.
    pub fn heal(&self, machine: Machine) {
        self.tool(&self.hub.path(), "ip", &format!("link set port{machine} master bridge"));
    }

    /// Cuts two machines off from each other only: what one sends to the other goes to a machine
    /// that is not there.
    pub fn part(&self, a: Machine, b: Machine) {
        let nowhere = hardware(usize::from(MACHINES));
        self.knows(&self.place(a), b, &nowhere);
        self.knows(&self.place(b), a, &nowhere);
    }

    /// Ends that.
    pub fn rejoin(&self, a: Machine, b: Machine) {
        self.knows(&self.place(a), b, &hardware(b));
        self.knows(&self.place(b), a, &hardware(a));
    }

    /// Lets no more than `kilobits` a second through to a machine and from it; None lets all
    /// through.
    pub fn limit(&self, machine: Machine, kilobits: Option<u32>) {
        for (place, link) in [(self.hub.path(), format!("port{machine}")), (self.place(machine), "wire".into())] {
            match kilobits {
                // A queue that is longer than what connections have in flight: nothing is dropped,
                // all is late.
                Some(rate) => {
                    let queue = format!("qdisc replace dev {link} root tbf rate {rate}kbit burst 64kb limit 16mb");
                    self.tool(&place, "tc", &queue);
                }
                None => self.tool(&place, "tc", &format!("qdisc del dev {link} root")),
            }
        }
    }

    /// Runs a tool in a namespace.
    #[track_caller]
    fn tool(&self, place: &Path, program: &str, arguments: &str) {
        let mut command = Command::new(program);
        let ended = run(&mut inside(place, command.args(arguments.split(' '))));
        assert_eq!(ended.status, 0, "{program} {arguments}: {}", ended.errors);
    }
}

/// The address of a machine.
pub fn address(machine: Machine) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, machine as u8 + 1)
}

fn hardware(machine: Machine) -> String {
    format!("02:00:00:00:00:{:02x}", machine + 1)
}

/// The network of a cluster whose parts are machines: the metadata server is the first, the stores
/// are behind it.
pub struct Between {
    network: Network,
    /// Where commands are.
    console: PathBuf,
}

impl Between {
    /// One more machine.
    pub fn join(&self) -> (Machine, PathBuf) {
        self.network.join()
    }
}

impl Cluster {
    /// Each store and each mount is a machine of its own in a network of its own, with
    /// certificates; the metadata server, too.
    pub fn networked(code: &str, stores: usize, meta: &[&str]) -> Self {
        let scratch = Scratch::new(0);
        let path = scratch.path.clone();
        let network = Network::new();
        let ids = path.join("ids");
        let mut init = weft();
        init.args(["cluster", "init"]).arg(&ids).args(["--operator", "client"]);
        let names: Vec<String> =
            std::iter::once("meta".into()).chain((0..stores).map(|n| format!("store{n}"))).collect();
        for (machine, name) in names.iter().enumerate() {
            init.args(["--member", &format!("{name}={}", address(machine))]);
        }
        run(&mut init).good();
        let keys = path.join("client");
        fs::create_dir(&keys).unwrap();
        for file in ["authority.pem", "client.pem", "client.key"] {
            fs::copy(ids.join(file), keys.join(file)).unwrap();
        }
        let (_, at_meta) = network.join();
        let server = |name: &str, kind: &str, listen: String| -> Vec<OsString> {
            let identity = ids.join(name).into_os_string();
            ["--json", "--identity"]
                .into_iter()
                .map(OsString::from)
                .chain([identity])
                .chain(["serve", kind, "--listen", &listen].map(OsString::from))
                .collect()
        };
        let mut addresses = Vec::new();
        let stores: Vec<Process> = (0..stores)
            .map(|number| {
                let (machine, place) = network.join();
                let disk = path.join(format!("disk{number}"));
                fs::create_dir(&disk).unwrap();
                let name = format!("store{number}");
                let listen = format!("{}:7701", address(machine));
                addresses.push(format!("store://{listen}/disk{number}"));
                let mut arguments = server(&name, "store", listen);
                arguments.push(disk.into());
                let store = Process::new(name, arguments, &path).inside(Some(place));
                store.start();
                store
            })
            .collect();
        let volume = path.join("vol");
        let mut create = weft();
        create
            .arg("--identity")
            .arg(ids.join("meta"))
            .arg("create")
            .arg(&volume)
            .args(["--code", code])
            .args(&addresses);
        run(&mut inside(&at_meta, &create)).good();
        let mut arguments = server("meta", "meta", format!("{}:7600", address(0)));
        arguments.extend(meta.iter().map(OsString::from));
        arguments.push(volume.into());
        let meta = Process::new("meta".into(), arguments, &path).inside(Some(at_meta));
        meta.start();
        let (_, console) = network.join();
        let mut cluster = Self::of(stores, meta, 7600, Vec::new(), scratch);
        cluster.host = address(0);
        cluster.between = Some(Between { network, console });
        cluster
    }

    /// The network of a cluster that has one.
    pub fn network(&self) -> &Network {
        &self.between.as_ref().expect("a network").network
    }

    /// Where a store is in it.
    pub fn machine(&self, store: usize) -> Machine {
        store + 1
    }

    /// A command that is given to the cluster.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = weft();
        if let Some(between) = &self.between {
            command.arg("--identity").arg(self.scratch.path.join("client/client")).args(arguments).arg(self.url());
            return inside(&between.console, &command);
        }
        command.args(arguments).arg(self.url());
        command
    }
}
