//! The metadata servers that a client knows, and which of them has the volume open. The client asks
//! that one. When it does not answer, or says that it does not have the volume, all are asked.

use super::whereabouts::{Holds, Whereabouts};
use super::{NOT_HOLDER, WHO};
use crate::address::{MAX_SERVERS, server};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::sleep;
use volume::lock;
use wire::{Client, Error};

/// How long a server may take to say whether it has the volume.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);
/// The pause before a failed attempt is repeated: the first one, and the longest.
const FIRST_RETRY_PAUSE: Duration = Duration::from_millis(25);
const MAX_RETRY_PAUSE: Duration = Duration::from_millis(200);

/// How often in a row a server is believed that names another one.
const POINTS: u32 = 2;

/// Makes the client of a server. The second argument says whether there are several servers.
pub(super) type Make = Box<dyn Fn(&str, bool) -> Client + Send + Sync>;

/// The servers.
pub(super) struct Servers {
    make: Make,
    list: Mutex<ServerList>,
    /// Held by the one task that looks for the server that has the volume.
    looking: tokio::sync::Mutex<()>,
}

struct ServerList {
    all: Vec<(String, Client)>,
    /// The one that is asked.
    current: usize,
    /// How often another one became the current one, or the current one was looked for.
    turn: u64,
    /// How often in a row none was found.
    failures: u32,
}

/// What one server answers.
enum Says {
    /// It has the volume open.
    Holds(Holds),
    /// It does not.
    Not(Whereabouts),
    /// Nothing, or nothing that can be understood.
    Nothing,
}

impl Servers {
    /// The servers at these addresses, of which there is at least one.
    pub fn new(addresses: &[String], make: Make) -> Self {
        let several = addresses.len() > 1;
        let all = addresses.iter().map(|address| (address.clone(), make(address, several))).collect();
        Self {
            make,
            list: Mutex::new(ServerList { all, current: 0, turn: 0, failures: 0 }),
            looking: Default::default(),
        }
    }

    fn list(&self) -> MutexGuard<'_, ServerList> {
        lock(&self.list)
    }

    /// The server to ask, and the turn that `look` takes.
    pub fn current(&self) -> (Client, u64) {
        let list = self.list();
        (list.all[list.current].1.clone(), list.turn)
    }

    /// The address of the server that is asked.
    pub fn address(&self) -> String {
        let list = self.list();
        list.all[list.current].0.clone()
    }

    /// Whether there is more than one.
    pub fn are_several(&self) -> bool {
        self.list().all.len() > 1
    }

    /// The number of servers.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.list().all.len()
    }

    /// Remembers servers that a server told of.
    pub fn learn(&self, whereabouts: &[String]) {
        let mut list = self.list();
        let before = list.all.len();
        for address in whereabouts.iter().filter_map(|address| server(address)).take(MAX_SERVERS) {
            if list.all.len() < MAX_SERVERS && !list.all.iter().any(|(other, _)| *other == address) {
                let client = (self.make)(&address, true);
                list.all.push((address, client));
            }
        }
        if before == 1 && list.all.len() > 1 {
            // There is another one to go to now: the first one gets a shorter timeout.
            let address = list.all[0].0.clone();
            list.all[0].1 = (self.make)(&address, true);
        }
    }

    /// The current server does not have the volume, and says who may have it.
    pub fn is_not_holder(&self, turn: u64, whereabouts: &Whereabouts) {
        self.learn(&whereabouts.servers);
        self.learn(whereabouts.holder.as_slice());
        let mut list = self.list();
        let holder = whereabouts.holder.as_deref().and_then(server);
        let at = list.all.iter().position(|(address, _)| Some(address) == holder.as_ref());
        // What it says may be old: after a few such answers, `look` asks all.
        if let Some(at) = at.filter(|&at| list.turn == turn && at != list.current && list.failures < POINTS) {
            (list.current, list.turn, list.failures) = (at, turn + 1, list.failures + 1);
        }
    }

    /// An attempt of that turn failed: pauses, longer each time, and asks all servers which one has
    /// the volume, unless another task just did. A server of an opening before `least` does not
    /// count: another one took over from it.
    pub async fn look(&self, turn: u64, least: u64) {
        let _one_at_a_time = self.looking.lock().await;
        let (all, failures) = {
            let list = self.list();
            if list.turn != turn {
                return;
            }
            (list.all.clone(), list.failures)
        };
        let longest = FIRST_RETRY_PAUSE.saturating_mul(1 << failures.min(8)).min(MAX_RETRY_PAUSE);
        // With one server, the failed attempt was the question.
        let found = if all.len() > 1 { self.ask_all(all, least).await } else { None };
        if found.is_none() {
            sleep(longest.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
        }
        let mut list = self.list();
        list.turn += 1;
        list.failures = if found.is_some() { 0 } else { failures.saturating_add(1) };
        match found {
            Some(at) => list.current = at,
            None => list.current = (list.current + 1) % list.all.len(),
        }
    }

    /// An attempt succeeded.
    pub fn succeeded(&self) {
        self.list().failures = 0;
    }

    /// Asks all servers; returns the first that has the volume open, by its index.
    async fn ask_all(&self, all: Vec<(String, Client)>, least: u64) -> Option<usize> {
        let mut asked = JoinSet::new();
        for (at, (_, client)) in all.into_iter().enumerate() {
            asked.spawn(async move { (at, ask(&client).await) });
        }
        let mut pointed = None;
        while let Some(answer) = asked.join_next().await {
            match answer {
                Ok((at, Says::Holds(holds))) => {
                    self.learn(&holds.servers);
                    if holds.opening == 0 || holds.opening >= least {
                        return Some(at);
                    }
                }
                Ok((_, Says::Not(whereabouts))) => {
                    self.learn(&whereabouts.servers);
                    self.learn(whereabouts.holder.as_slice());
                    pointed = whereabouts.holder.as_deref().and_then(server).or(pointed);
                }
                _ => {}
            }
        }
        // A server that was not known before.
        let list = self.list();
        let at = list.all.iter().position(|(address, _)| Some(address) == pointed.as_ref())?;
        (at != list.current).then_some(at)
    }

    /// Asks the current server for the list of all.
    pub async fn refresh(&self) {
        let (client, _) = self.current();
        match ask(&client).await {
            Says::Holds(Holds { servers, .. }) | Says::Not(Whereabouts { servers, .. }) => self.learn(&servers),
            Says::Nothing => {}
        }
    }
}

/// Asks a server whether it has the volume open.
async fn ask(client: &Client) -> Says {
    match client.call(WHO, &[], &[], ANSWERS_WITHIN).await {
        Ok(answer) => postcard::from_bytes(&answer.body).map_or(Says::Nothing, Says::Holds),
        Err(Error::Remote { status: NOT_HOLDER, body }) => postcard::from_bytes(&body).map_or(Says::Nothing, Says::Not),
        Err(_) => Says::Nothing,
    }
}
