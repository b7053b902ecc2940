//! Machines that become a cluster by a token: on loopback, and in network namespaces as machines.

use crate::lab::{Process, free_port};
use crate::network::{Network, address, inside};
use crate::scratch::{Ended, Scratch, run, weft};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A machine: where its files are, its address, and its network if it has one of its own.
struct Machine {
    name: String,
    folder: PathBuf,
    host: String,
    place: Option<PathBuf>,
    /// Of its store and its metadata server.
    ports: (u16, u16),
}

impl Machine {
    fn keys(&self) -> PathBuf {
        self.folder.join("keys")
    }

    fn run(&self, words: &[&str]) -> Ended {
        let mut command = weft();
        command.args(words);
        match &self.place {
            Some(place) => run(&mut inside(place, &command)),
            None => run(&mut command),
        }
    }

    /// One of its servers.
    fn serve(&self, kind: &str, scratch: &Path) -> Process {
        let config = self.keys().join(format!("{}.toml", self.name));
        let arguments = ["--json", "serve", kind, "--config"].map(OsString::from).into_iter().chain([config.into()]);
        let process = Process::new(format!("{}-{kind}", self.name), arguments.collect(), scratch);
        let process = process.inside(self.place.clone());
        process.start();
        process
    }

    /// The words that make it a machine of a cluster.
    fn words(&self, disks: usize) -> Vec<String> {
        let mut words = vec!["--name".into(), self.name.clone(), "--port".into(), self.ports.0.to_string()];
        words.push("--disk".into());
        words.extend((0..disks).map(|disk| text(&self.folder.join(format!("disk{disk}")))));
        words
    }
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().into()
}

fn words<'a>(first: &[&'a str], more: &'a [String]) -> Vec<&'a str> {
    first.iter().copied().chain(more.iter().map(String::as_str)).collect()
}

fn machines(scratch: &Scratch, network: Option<&Network>) -> Vec<Machine> {
    let machine = |number: usize| {
        let place = network.map(Network::join);
        let host = place.as_ref().map_or_else(|| "127.0.0.1".into(), |(machine, _)| address(*machine).to_string());
        let ports = if network.is_some() { (7701, 7600) } else { (free_port(), free_port()) };
        let name = format!("node{}", number + 1);
        Machine { folder: scratch.path.join(&name), name, host, place: place.map(|(_, path)| path), ports }
    };
    (0..3).map(machine).collect()
}

/// Makes a cluster of three machines, a volume and a second metadata server.
fn three_machines(scratch: &Scratch, machines: &[Machine]) {
    let [one, two, three] = machines else { unreachable!() };
    let keys = machines.iter().map(|machine| text(&machine.keys())).collect::<Vec<_>>();
    let join_port = if one.place.is_some() { 7599 } else { free_port() };
    // The first machine.
    let own = [one.words(2), vec!["--join-port".into(), join_port.to_string(), "--uses".into(), "2".into()]].concat();
    let begun = one.run(&words(&["--json", "cluster", "init", &keys[0], "--address", &one.host], &own));
    assert_eq!(begun.status, 0, "{}", begun.errors);
    let begun: Value = begun.json();
    let token = begun["token"].as_str().unwrap().to_owned();
    let secret = token.rsplit('/').next().unwrap().to_owned();
    let mut running = vec![one.serve("store", &scratch.path), one.serve("join", &scratch.path)];
    // The others.
    for (machine, keys) in [(two, &keys[1]), (three, &keys[2])] {
        let own = machine.words(2);
        let joined = machine.run(&words(&["--json", "cluster", "join", &token, "--directory", keys], &own));
        assert_eq!(joined.status, 0, "{}", joined.errors);
        assert_eq!(joined.json()["kind"], "server");
        running.push(machine.serve("store", &scratch.path));
        let again = machine.run(&words(&["cluster", "join", &token, "--directory", keys], &own));
        assert!(again.failed(1).contains("has a member"), "a machine joins once");
    }
    let late = scratch.path.join("late");
    let refused = two.run(&["cluster", "join", &token, "--name", "node4", "--directory", &text(&late)]).failed(1);
    assert!(refused.contains("used up") && !refused.contains(&secret), "{refused}");
    // The volume. Only the first machine knows all disks.
    let elsewhere = two.run(&["cluster", "volume", "films", "--directory", &keys[1]]).failed(1);
    assert!(elsewhere.contains("first machine") && !two.keys().join("admission").exists(), "{elsewhere}");
    let (place, port) = (text(&one.folder.join("films")), one.ports.1.to_string());
    let volume = ["--json", "cluster", "volume", "films", "--directory", &keys[0], "--at", &place, "--port", &port];
    let volume = one.run(&volume);
    assert_eq!(volume.status, 0, "{}", volume.errors);
    let volume = volume.json();
    assert_eq!((&volume["code"], &volume["targets"]), (&"rs:4+2".into(), &6.into()));
    let url = volume["address"].as_str().unwrap().to_owned();
    // Who does not know whether it was done gives the same command again.
    let again = ["cluster", "volume", "films", "--directory", &keys[0], "--at", &place, "--port", &port];
    one.run(&again).good();
    let meta = one.serve("meta", &scratch.path);
    let (place, port) = (text(&two.folder.join("films")), two.ports.1.to_string());
    let standby = ["cluster", "standby", &url, "--directory", &keys[1], "--at", &place, "--port", &port];
    two.run(&standby).good();
    running.push(two.serve("meta", &scratch.path));
    // An operator of the third machine, by a token of its own.
    let asked = one.run(&["--json", "cluster", "token", "--kind", "operator", "--directory", &keys[0]]);
    let operator = asked.json()["token"].as_str().unwrap().to_owned();
    let folder = scratch.path.join("laptop");
    let joined = three.run(&["cluster", "join", &operator, "--name", "laptop", "--directory", &text(&folder)]);
    joined.good();
    assert!(!folder.join("cluster.key").exists(), "a client has the cluster's key");
    let identity = text(&folder.join("laptop"));
    let file = scratch.file("file", 300_000);
    three.run(&["cp", &text(&file), &format!("{url}:/file"), "--identity", &identity]).good();
    let status = three.run(&["--json", "status", &url, "--identity", &identity]);
    assert_eq!(status.status, 0, "{}", status.errors);
    // A machine is lost, which is a domain: what is there can still be read, from the other server.
    drop(running.remove(0));
    meta.kill();
    let url = format!("weft://{}:{},{}:{}/films", one.host, one.ports.1, two.host, two.ports.1);
    let read = three.run(&["cat", &format!("{url}:/file"), "--identity", &identity]).good();
    assert!(read == fs::read(file).unwrap(), "other bytes");
    // Keys are for their owner, and secrets are in no log.
    for machine in machines {
        for name in [format!("{}.key", machine.name), "cluster.key".into()] {
            let mode = fs::metadata(machine.keys().join(&name)).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{name} of {}", machine.name);
        }
        let has_authority = machine.keys().join("authority.key").exists();
        assert_eq!(has_authority, machine.name == "node1", "the authority's key is on {}", machine.name);
    }
    let logs = running.iter().map(Process::log).collect::<String>();
    assert!(logs.contains("node2 at ") && !logs.contains(&secret), "{logs}");
}

#[test]
fn three_machines_become_a_cluster_on_loopback() {
    let scratch = Scratch::new(0);
    three_machines(&scratch, &machines(&scratch, None));
}

#[test]
fn three_machines_become_a_cluster_over_a_network() {
    if !Network::possible("three_machines_become_a_cluster_over_a_network") {
        return;
    }
    let (scratch, network) = (Scratch::new(0), Network::new());
    three_machines(&scratch, &machines(&scratch, Some(&network)));
}

#[test]
fn what_is_no_token_is_not_repeated() {
    let scratch = Scratch::new(0);
    let folder = text(&scratch.path.join("keys"));
    let secret = "0123456789abcdef";
    let given = format!("weft-join://127.0.0.1:1/{secret}");
    let why = run(weft().args(["cluster", "join", &given, "--directory", &folder])).failed(1);
    assert!(why.contains("not a token") && !why.contains(secret), "{why}");
    let why = run(weft().args(["cluster", "token", "--directory", &folder])).failed(1);
    assert!(why.contains("on the first machine"), "{why}");
    let port = free_port();
    let nobody = format!("weft-join://127.0.0.1:{port}/{}/{}", "0".repeat(64), "0".repeat(32));
    let mut join: Command = weft();
    let why = run(join.args(["cluster", "join", "--directory", &folder]).arg(&nobody)).failed(1);
    assert!(why.contains(&format!("127.0.0.1:{port}")), "{why}");
    assert!(!scratch.path.join("keys").exists(), "a failed visit leaves files");
}

/// A first machine, and words with which another one joins by its token.
fn first(scratch: &Scratch, uses: &str) -> (Machine, Process, Machine, Vec<String>) {
    let mut both = machines(scratch, None);
    both.truncate(2);
    let (two, one) = (both.pop().unwrap(), both.pop().unwrap());
    let more = ["--join-port".into(), free_port().to_string(), "--uses".into(), uses.into()].to_vec();
    let own = [one.words(1), more].concat();
    let begun = one.run(&words(&["--json", "cluster", "init", &text(&one.keys()), "--address", "127.0.0.1"], &own));
    assert_eq!(begun.status, 0, "{}", begun.errors);
    let token = begun.json()["token"].as_str().unwrap().to_owned();
    let desk = one.serve("join", &scratch.path);
    let start = ["cluster", "join", &token, "--directory", &text(&two.keys())].map(str::to_owned);
    let join = [start.to_vec(), two.words(1)].concat();
    (one, desk, two, join)
}

#[test]
fn a_join_that_was_interrupted_goes_on_with_the_same_command() {
    let scratch = Scratch::new(0);
    let (one, _desk, two, join) = first(&scratch, "1");
    let join = words(&[], &join);
    let at = |name: &str| two.keys().join(name);
    two.run(&join).good();
    let whole = ["node2.key", "node2.toml", "authority.pem", "cluster.key"].map(|name| fs::read(at(name)).unwrap());
    // Killed before the certificate was written, and earlier.
    for gone in [&["node2.pem"][..], &["node2.pem", "node2.toml"], &["node2.pem", "node2.toml", "cluster.key"]] {
        gone.iter().for_each(|name| fs::remove_file(at(name)).unwrap());
        fs::write(at("node2.pem.new"), "ha").unwrap();
        two.run(&join).good();
        let now = ["node2.key", "node2.toml", "authority.pem", "cluster.key"].map(|name| fs::read(at(name)).unwrap());
        assert!(now == whole, "other files without {gone:?}");
    }
    // What is there counts by what is in it.
    fs::remove_file(at("node2.pem")).unwrap();
    for (name, why) in [
        ("cluster.key", "of another cluster, or damaged"),
        ("authority.pem", "of another cluster, or damaged"),
        ("node2.toml", "other settings"),
        ("node2.key", "no key of a machine"),
    ] {
        let good = fs::read(at(name)).unwrap();
        fs::write(at(name), "").unwrap();
        let said = two.run(&join).failed(1);
        assert!(said.contains(why) && said.contains(name) && !at("node2.pem").exists(), "{name}: {said}");
        fs::write(at(name), good).unwrap();
    }
    two.run(&join).good();
    let said = two.run(&join).failed(1);
    assert!(said.contains("keep node2.key"), "{said}");
    // Without its key it is not known; the first machine can forget it.
    fs::remove_dir_all(two.keys()).unwrap();
    let own = text(&one.keys());
    let token = one.run(&["--json", "cluster", "token", "--directory", &own]).json();
    let mut join = join;
    join[2] = token["token"].as_str().unwrap();
    let said = two.run(&join).failed(1);
    assert!(said.contains("weft cluster forget node2"), "{said}");
    assert!(
        two.run(&["cluster", "forget", "node2", "--directory", &text(&two.keys())]).failed(1).contains("first machine")
    );
    assert!(one.run(&["cluster", "forget", "node1", "--directory", &own]).failed(1).contains("first machine"));
    let forgotten = one.run(&["--json", "cluster", "forget", "node2", "--directory", &own]);
    assert_eq!(forgotten.json()["forgotten"], "node2");
    two.run(&join).good();
}

#[test]
fn a_first_machine_can_be_made_in_two_tries() {
    let scratch = Scratch::new(0);
    let one = machines(&scratch, None).remove(0);
    let keys = text(&one.keys());
    let port = free_port().to_string();
    let init = |address: &str, disk: &str| {
        let disk = text(&one.folder.join(disk));
        let words = ["cluster", "init", &keys, "--name", "node1", "--join-port", &port, "--address", address];
        one.run(&[&words[..], &["--disk", &disk, "--port", &one.ports.0.to_string()]].concat())
    };
    // What cannot be is refused before anything is written.
    assert!(init("node1.example", "disk").failed(2).contains("host names come after it"));
    assert!(init("127.0.0.1", "my disk").failed(1).contains("no spaces"));
    assert!(!one.keys().exists(), "a refused command leaves files");
    let said = run(weft().args(["cluster", "join", "--address", "node2.example", "--directory", &keys]).arg(format!(
        "weft-join://127.0.0.1:1/{}/{}",
        "0".repeat(64),
        "0".repeat(32)
    )))
    .failed(2);
    assert!(said.contains("host names come after it") && !one.keys().exists(), "{said}");
    init("127.0.0.1,node1.example", "disk").good();
    let said = String::from_utf8(init("127.0.0.1,node1.example", "disk").good()).unwrap();
    assert!(said.contains("weft-join://127.0.0.1:"), "{said}");
    // A certificate for another address would be of no use.
    let said = init("127.0.0.2", "disk").failed(1);
    assert!(said.contains("node1.pem is there already, and is not for 127.0.0.2"), "{said}");
    let said = run(weft().args(["cluster", "init", &keys, "--name", "node9", "--address", "127.0.0.1"])).failed(1);
    assert!(said.contains("a first machine already: node1"), "{said}");
}

#[test]
fn a_cautious_umask_hides_no_certificate_from_the_servers() {
    let scratch = Scratch::new(0);
    let keys = scratch.path.join("keys");
    let mut shell = Command::new("sh");
    shell.args(["-c", "umask 077; exec \"$@\"", "sh"]).arg(weft().get_program());
    shell.args(["cluster", "init", &text(&keys), "--name", "node1", "--address", "127.0.0.1", "--disk"]);
    run(shell.arg(scratch.path.join("disk"))).good();
    for (name, wanted) in
        [("", 0o750), ("authority.pem", 0o644), ("node1.pem", 0o644), ("node1.key", 0o600), ("cluster.key", 0o600)]
    {
        assert_eq!(fs::metadata(keys.join(name)).unwrap().permissions().mode() & 0o777, wanted, "{name:?}");
    }
}

/// What systemd needs of a unit of Type=notify.
#[test]
fn systemd_hears_that_a_server_is_ready_and_that_it_ends() {
    let scratch = Scratch::new(1);
    let socket = scratch.path.join("notify");
    let systemd = UnixDatagram::bind(&socket).unwrap();
    systemd.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let heard = || {
        let mut bytes = [0; 512];
        let length = systemd.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let mut store = weft();
    store.args(["serve", "store", "--listen", "127.0.0.1:0"]).arg(&scratch.disks[0]).env("NOTIFY_SOCKET", &socket);
    let mut store = store.stdout(Stdio::null()).spawn().unwrap();
    let ready = heard();
    assert!(ready.starts_with("READY=1\nSTATUS=store server on 127.0.0.1:"), "{ready}");
    kill_process(Pid::from_child(&store), Signal::TERM).unwrap();
    assert_eq!(heard(), "STOPPING=1");
    assert!(store.wait().unwrap().success());
}
