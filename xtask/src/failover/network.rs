//! The network of a run: each metadata server is a machine of its own, and everything else is on
//! one machine. A machine is a network namespace. Their addresses are those of loopback, which need
//! no certificates.

use crate::peers::run;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the names of the namespaces of all runs begin with; the number of the process follows.
const PREFIX: &str = "weft-failover-";
/// The programs that it takes.
const PROGRAMS: [&str; 3] = ["ip", "tc", "nsenter"];
/// Where everything is but the metadata servers.
const HOME: &str = "127.77.0.1";
/// Where everything is without a network.
const THIS: &str = "127.0.0.1";

/// Which way a machine is cut off from all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    Both,
    /// What is sent to it is lost.
    Deaf,
    /// What it sends is lost.
    Mute,
}

/// The network. It goes with this value.
pub struct Network {
    servers: usize,
}

/// The address of a metadata server, that has a machine of its own or has not.
pub fn address(separate: bool, server: usize) -> String {
    if separate { format!("127.77.0.{}", server + 2) } else { THIS.into() }
}

/// The address of everything else.
pub fn home_address(separate: bool) -> &'static str {
    if separate { HOME } else { THIS }
}

fn home() -> String {
    format!("{PREFIX}{}-home", std::process::id())
}

fn machine(server: usize) -> String {
    format!("{PREFIX}{}-{server}", std::process::id())
}

/// The command that cuts a machine off, or ends that. A queue that holds one byte drops each packet
/// without an error.
fn cut(server: usize, cut: Cut, begins: bool) -> Vec<String> {
    let (home, machine) = (home(), machine(server));
    let queue = if begins { "add" } else { "delete" };
    let limit = if begins { " bfifo limit 1" } else { "" };
    let line = match (cut, begins) {
        (Cut::Both, true) => format!("ip -n {home} link set port{server} nomaster"),
        (Cut::Both, false) => format!("ip -n {home} link set port{server} master bridge"),
        (Cut::Deaf, _) => format!("tc -n {home} qdisc {queue} dev port{server} root{limit}"),
        (Cut::Mute, _) => format!("tc -n {machine} qdisc {queue} dev wire root{limit}"),
    };
    line.split(' ').map(str::to_owned).collect()
}

fn tool(line: &str) -> Result<(), String> {
    let words: Vec<&str> = line.split(' ').collect();
    run(Command::new(words[0]).args(&words[1..]))
}

impl Network {
    /// Makes it.
    ///
    /// # Errors
    /// Why that is not possible here.
    pub fn new(servers: usize) -> Result<Self, String> {
        for program in PROGRAMS {
            Command::new(program).arg("-V").output().map_err(|why| format!("there is no program {program}: {why}"))?;
        }
        remove_left()?;
        let (network, home) = (Self { servers }, home());
        tool(&format!("ip netns add {home}"))?;
        tool(&format!("ip -n {home} link add bridge type bridge"))?;
        network.settle(&home, "bridge", HOME)?;
        for server in 0..servers {
            let machine = machine(server);
            tool(&format!("ip netns add {machine}"))?;
            tool(&format!("ip -n {home} link add port{server} type veth peer name wire netns {machine}"))?;
            tool(&format!("ip -n {home} link set port{server} master bridge up"))?;
            network.settle(&machine, "wire", &address(true, server))?;
        }
        // Some kernels lack one of them.
        for kind in [Cut::Both, Cut::Deaf, Cut::Mute] {
            network.cut(0, kind)?;
            network.heal(0, kind)?;
        }
        Ok(network)
    }

    /// Gives a machine its address.
    fn settle(&self, machine: &str, device: &str, address: &str) -> Result<(), String> {
        tool(&format!("ip -n {machine} link set lo up"))?;
        // Else all addresses that begin with 127 are this machine's.
        tool(&format!("ip -n {machine} address delete 127.0.0.1/8 dev lo"))?;
        let allowed = format!("echo 1 > /proc/sys/net/ipv4/conf/{device}/route_localnet");
        run(Command::new("nsenter").arg(place(machine)).args(["sh", "-c", &allowed]))?;
        tool(&format!("ip -n {machine} address add {address}/16 dev {device}"))?;
        tool(&format!("ip -n {machine} link set {device} up"))
    }

    /// Cuts a metadata server off from everything: packets vanish, and no link goes down.
    pub fn cut(&self, server: usize, kind: Cut) -> Result<(), String> {
        tool(&cut(server, kind, true).join(" "))
    }

    /// Ends that.
    pub fn heal(&self, server: usize, kind: Cut) -> Result<(), String> {
        tool(&cut(server, kind, false).join(" "))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let all = (0..self.servers).map(machine).chain([home()]);
        all.filter(|name| Path::new("/run/netns").join(name).exists())
            .for_each(|name| _ = tool(&format!("ip netns delete {name}")));
    }
}

/// Removes what runs left behind that were killed.
fn remove_left() -> Result<(), String> {
    let Ok(all) = fs::read_dir("/run/netns") else { return Ok(()) };
    for name in all.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()) {
        let number = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        if number.is_some_and(|number| !Path::new("/proc").join(number).exists()) {
            tool(&format!("ip netns delete {name}"))?;
        }
    }
    Ok(())
}

fn place(machine: &str) -> String {
    format!("--net=/run/netns/{machine}")
}

/// A program on the machine of a metadata server, or at home: the program to start, and its
/// arguments.
pub fn inside(server: Option<usize>, program: &Path, arguments: Vec<OsString>) -> (PathBuf, Vec<OsString>) {
    let machine = server.map_or_else(home, machine);
    let mut all: Vec<OsString> = vec![place(&machine).into(), "--".into(), program.into()];
    all.extend(arguments);
    ("nsenter".into(), all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_a_cut_is_ended() {
        let (home, own) = (home(), machine(1));
        let lines =
            [Cut::Both, Cut::Deaf, Cut::Mute].map(|kind| [true, false].map(|begins| cut(1, kind, begins).join(" ")));
        let expected = [
            [format!("ip -n {home} link set port1 nomaster"), format!("ip -n {home} link set port1 master bridge")],
            [
                format!("tc -n {home} qdisc add dev port1 root bfifo limit 1"),
                format!("tc -n {home} qdisc delete dev port1 root"),
            ],
            [
                format!("tc -n {own} qdisc add dev wire root bfifo limit 1"),
                format!("tc -n {own} qdisc delete dev wire root"),
            ],
        ];
        assert_eq!(lines, expected);
    }
}
