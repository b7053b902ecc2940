//! The network: which machines reach each other, and how long a message takes.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::thread::sleep;
use std::time::Duration;
use volume::lock;

/// A machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Host {
    /// A store, by its number.
    Store(usize),
    /// A client, by its number.
    Client(usize),
    /// A metadata server, by its number.
    Server(usize),
}

/// The state of one direction between two machines.
#[derive(Clone, Copy, Debug, Default)]
struct Path {
    cut: bool,
    /// Added to what a message takes.
    slow: Duration,
    /// One of this many messages is lost; 0: none.
    loses: u64,
}

/// All machines' connections.
#[derive(Default)]
pub struct Network(Mutex<BTreeMap<(Host, Host), Path>>);

impl Network {
    fn change(&self, from: Host, to: Host, change: impl FnOnce(&mut Path)) {
        world::atomically(|| change(lock(&self.0).entry((from, to)).or_default()));
    }

    fn path(&self, from: Host, to: Host) -> Path {
        let paths = || lock(&self.0).get(&(from, to)).copied();
        world::atomically(paths).unwrap_or_default()
    }

    /// Cuts one direction, or heals it.
    pub fn cut(&self, from: Host, to: Host, cut: bool) {
        self.change(from, to, |path| path.cut = cut);
    }

    /// Makes one direction slow, and has it lose one of `loses` messages; 0: none.
    pub fn degrade(&self, from: Host, to: Host, slow: Duration, loses: u64) {
        self.change(from, to, |path| (path.slow, path.loses) = (slow, loses));
    }

    /// Sends a message: takes the time of its way. Returns whether it arrives.
    pub fn send(&self, from: Host, to: Host) -> bool {
        let path = self.path(from, to);
        let (takes, lost) = world::roll(|dice| {
            // Mostly short, sometimes long.
            let takes = if dice.one_in(40) { dice.within(2_000..60_000) } else { dice.within(30..400) };
            (Duration::from_micros(takes), path.loses > 0 && dice.one_in(path.loses))
        });
        sleep(takes + path.slow);
        !lost && !path.cut && !self.path(from, to).cut
    }
}
