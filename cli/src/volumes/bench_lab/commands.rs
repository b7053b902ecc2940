//! Which commands make, limit and remove the network of a run: a pure function of its number.
//!
//! Each machine is a network namespace, and a bridge in a namespace of its own joins them. Their
//! addresses are those of loopback, which no other machine can use, so the servers need no
//! certificates: encryption would be measured, too. A namespace has to be told that such an address
//! may be on a wire.

use std::net::Ipv4Addr;

/// What the names of all namespaces of the bench begin with.
pub const PREFIX: &str = "weft-bench-";
/// The length of the longest frame.
const FRAME: u64 = 1514;
/// Bytes that wait at a limited link at most: more than connections have in flight, so that what is
/// too fast is late and not lost.
const QUEUE: u64 = 16 << 20;
/// Frames that are under way on a link with a latency.
const DELAYED_FRAMES: u64 = 100_000;
/// How a machine decides how fast it sends. Nothing is lost on these links, so reno, which every
/// kernel has, sends what it has. BBR, a default on some machines, sends at the speed that it has
/// seen, which is too slow for records that come one by one.
const CONGESTION: &str = "/proc/sys/net/ipv4/tcp_congestion_control";
/// The end of a link at a machine.
const WIRE: &str = "wire";

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A program and its arguments.
    Run(Vec<String>),
    /// A setting of the kernel in a namespace.
    Set { namespace: String, file: &'static str, value: &'static str },
}

/// The limit of each link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    pub bits_per_second: f64,
    /// What an idle link lets through at once.
    pub burst_bytes: u64,
    /// What waits at most; what comes beyond that is lost.
    pub queue_bytes: u64,
}

impl Limit {
    /// With a burst of so many microseconds, and at least two frames.
    pub fn of(bits_per_second: f64, burst_microseconds: u64) -> Self {
        let burst = (bits_per_second / 8.0 * burst_microseconds as f64 / 1e6) as u64;
        Self { bits_per_second, burst_bytes: burst.max(2 * FRAME), queue_bytes: QUEUE }
    }

    /// As a switch has it: bursts of 5 ms, and what waits for 200 ms is lost. A longer queue of
    /// bulk data would let every small message of a slow link come seconds late.
    pub fn switched(bits_per_second: f64) -> Self {
        let queue = (bits_per_second / 8.0 * 0.2) as u64;
        Self { queue_bytes: queue.max(100 * FRAME), ..Self::of(bits_per_second, 5000) }
    }
}

/// The namespace of the bridge of a run.
pub fn hub(run: u32) -> String {
    format!("{PREFIX}{run}-hub")
}

/// The namespace of a machine.
pub fn machine(run: u32, number: usize) -> String {
    format!("{PREFIX}{run}-{number}")
}

/// The run that a namespace is of, if it is of one.
pub fn run_of(namespace: &str) -> Option<u32> {
    namespace.strip_prefix(PREFIX)?.split_once('-')?.0.parse().ok()
}

/// The address of a machine.
pub fn address(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 77, (number / 250) as u8, (number % 250) as u8 + 1)
}

/// Makes so many machines.
pub fn build(run: u32, machines: usize) -> Vec<Step> {
    let hub = hub(run);
    let mut steps = vec![
        step(&format!("ip netns add {hub}")),
        step(&format!("ip -n {hub} link add bridge type bridge")),
        step(&format!("ip -n {hub} link set bridge up")),
    ];
    for number in 0..machines {
        let (namespace, address) = (machine(run, number), address(number));
        let port = format!("port{number}");
        steps.extend([
            step(&format!("ip netns add {namespace}")),
            step(&format!("ip -n {hub} link add {port} type veth peer name wire netns {namespace}")),
            step(&format!("ip -n {hub} link set {port} master bridge up")),
            step(&format!("ip -n {namespace} link set lo up")),
            // Else all addresses that begin with 127 are this machine's.
            step(&format!("ip -n {namespace} address delete 127.0.0.1/8 dev lo")),
            Step::Set { namespace: namespace.clone(), file: "/proc/sys/net/ipv4/conf/wire/route_localnet", value: "1" },
            Step::Set { namespace: namespace.clone(), file: CONGESTION, value: "reno" },
            step(&format!("ip -n {namespace} address add {address}/16 dev wire")),
            step(&format!("ip -n {namespace} link set wire up")),
        ]);
    }
    steps
}

/// Limits what machines send and get: each of these by its limit.
pub fn limit(run: u32, limits: impl IntoIterator<Item = (usize, Limit)>, delayed: bool) -> Vec<Step> {
    let limited = limits.into_iter().flat_map(|(machine, limit)| {
        let (bits, burst, queue) = (limit.bits_per_second as u64, limit.burst_bytes, limit.queue_bytes);
        let what = format!("tbf rate {bits}bit burst {burst}b limit {queue}b");
        links(run, machine).map(move |(namespace, device)| {
            // What is sent waits for the limit first, and then for the latency.
            let place = if delayed && device == WIRE { "parent 1:1" } else { "root" };
            step(&format!("tc {namespace} qdisc add dev {device} {place} {what}"))
        })
    });
    limited.collect()
}

/// Makes each message take longer, one way: what each machine sends. Before the limit.
pub fn delay(run: u32, machines: usize, microseconds: u128) -> Vec<Step> {
    let what = format!("root handle 1: netem delay {microseconds}us limit {DELAYED_FRAMES}");
    (0..machines).map(|number| step(&format!("tc -n {} qdisc add dev {WIRE} {what}", machine(run, number)))).collect()
}

/// Ends the limits of these machines and, if there is one, the latency of all; drops what waits.
pub fn unlimit(run: u32, machines: usize, limited: &[usize], delayed: bool) -> Vec<Step> {
    let has = |machine: usize, device: &str| limited.contains(&machine) || delayed && device == WIRE;
    let ends = (0..machines).flat_map(|machine| links(run, machine).map(|link| (machine, link)));
    ends.filter(|(machine, (_, device))| has(*machine, device))
        .map(|(_, (namespace, device))| step(&format!("tc {namespace} qdisc delete dev {device} root")))
        .collect()
}

/// Both ends of a machine's link.
fn links(run: u32, number: usize) -> [(String, String); 2] {
    let to = (format!("-n {}", hub(run)), format!("port{number}"));
    [to, (format!("-n {}", machine(run, number)), WIRE.into())]
}

fn step(words: &str) -> Step {
    Step::Run(words.split(' ').map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(steps: &[Step]) -> Vec<String> {
        let line = |step: &Step| match step {
            Step::Run(words) => words.join(" "),
            Step::Set { namespace, file, value } => format!("{namespace}: {file} = {value}"),
        };
        steps.iter().map(line).collect()
    }

    #[test]
    fn two_machines() {
        let steps = shown(&build(7, 2));
        assert_eq!(steps.len(), 3 + 2 * 9);
        assert_eq!(
            steps[..12],
            [
                "ip netns add weft-bench-7-hub",
                "ip -n weft-bench-7-hub link add bridge type bridge",
                "ip -n weft-bench-7-hub link set bridge up",
                "ip netns add weft-bench-7-0",
                "ip -n weft-bench-7-hub link add port0 type veth peer name wire netns weft-bench-7-0",
                "ip -n weft-bench-7-hub link set port0 master bridge up",
                "ip -n weft-bench-7-0 link set lo up",
                "ip -n weft-bench-7-0 address delete 127.0.0.1/8 dev lo",
                "weft-bench-7-0: /proc/sys/net/ipv4/conf/wire/route_localnet = 1",
                "weft-bench-7-0: /proc/sys/net/ipv4/tcp_congestion_control = reno",
                "ip -n weft-bench-7-0 address add 127.77.0.1/16 dev wire",
                "ip -n weft-bench-7-0 link set wire up",
            ]
        );
    }

    #[test]
    fn both_ends_of_a_link_are_limited() {
        assert_eq!(
            shown(&limit(7, [(0, Limit::of(1e9, 50))], false)),
            [
                "tc -n weft-bench-7-hub qdisc add dev port0 root tbf rate 1000000000bit burst 6250b limit 16777216b",
                "tc -n weft-bench-7-0 qdisc add dev wire root tbf rate 1000000000bit burst 6250b limit 16777216b",
            ]
        );
        assert_eq!(
            shown(&unlimit(7, 2, &[0], false)),
            ["tc -n weft-bench-7-hub qdisc delete dev port0 root", "tc -n weft-bench-7-0 qdisc delete dev wire root"]
        );
        assert_eq!(Limit::of(2e8, 50).burst_bytes, 3028, "two frames");
        let switched = Limit::switched(2e8);
        assert_eq!((switched.burst_bytes, switched.queue_bytes), (125_000, 5_000_000));
        assert_eq!(Limit::switched(1e6).queue_bytes, 151_400, "some frames always wait");
    }

    #[test]
    fn a_latency_is_added_where_a_machine_sends() {
        assert_eq!(
            shown(&delay(7, 1, 250)),
            ["tc -n weft-bench-7-0 qdisc add dev wire root handle 1: netem delay 250us limit 100000"]
        );
        assert_eq!(
            shown(&limit(7, [(0, Limit::of(1e9, 50))], true)),
            [
                "tc -n weft-bench-7-hub qdisc add dev port0 root tbf rate 1000000000bit burst 6250b limit 16777216b",
                "tc -n weft-bench-7-0 qdisc add dev wire parent 1:1 tbf rate 1000000000bit burst 6250b limit 16777216b",
            ]
        );
        assert_eq!(shown(&unlimit(7, 1, &[], true)), ["tc -n weft-bench-7-0 qdisc delete dev wire root"]);
    }

    #[test]
    fn names_say_whose_they_are() {
        assert_eq!(run_of(&hub(12)), Some(12));
        assert_eq!(run_of(&machine(12, 3)), Some(12));
        for other in ["", "weft-bench-", "weft-bench-x-1", "weft-bench-1", "films-1-2"] {
            assert_eq!(run_of(other), None, "{other}");
        }
        assert_eq!([address(0), address(251)].map(|address| address.to_string()), ["127.77.0.1", "127.77.1.2"]);
    }
}
