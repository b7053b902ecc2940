//! The metadata servers of a volume, as each of them knows them: where they are, and how they were
//! when the holder heard of them last. There are no side effects: the caller passes times in. A
//! list is a hint for clients and for a handover; the targets decide who holds the volume.

use super::seat::Peer;
use plan::TxId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How often a standby tells the holder of itself.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(500);
/// A standby that is silent for this long is down.
pub const DOWN_AFTER: Duration = Duration::from_secs(3);
/// No volume has more servers.
pub const MAX_SERVERS: usize = 16;
/// The longest name and address, in bytes.
const MAX_NAME_BYTES: usize = 255;

/// What a server tells of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandbyProgress {
    /// The last transaction that its index has; None before it has one.
    pub applied: Option<TxId>,
}

#[derive(Clone, Debug)]
struct Member {
    address: String,
    heard: Option<Instant>,
    progress: StandbyProgress,
}

/// How another server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Which one.
    pub peer: Peer,
    /// How long ago it was heard; None if never since this server has the volume.
    pub heard: Option<Duration>,
    /// What it told.
    pub progress: StandbyProgress,
}

impl Standing {
    /// Whether it was heard lately.
    pub fn is_up(&self) -> bool {
        self.heard.is_some_and(|ago| ago < DOWN_AFTER)
    }
}

/// Why a server is not taken into the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unwelcome {
    /// Its name or address is empty, too long, or has a character that is in none.
    Odd,
    /// Another server has the name, and lives.
    Taken,
    /// There are too many.
    Full,
}

impl std::fmt::Display for Unwelcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Odd => f.write_str("its name or address cannot be one"),
            Self::Taken => f.write_str("another metadata server has this name; choose another"),
            Self::Full => write!(f, "the volume has {MAX_SERVERS} metadata servers already"),
        }
    }
}

/// All servers of a volume.
#[derive(Clone, Debug)]
pub struct Company {
    own: Peer,
    others: BTreeMap<String, Member>,
}

/// Whether a text can be a name, or an address: nothing that a terminal or a list would take for
/// something else.
fn is_word(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b',' | b'/' | b'\\' | b'"');
    !text.is_empty() && text.len() <= MAX_NAME_BYTES && text.bytes().all(plain)
}

impl Company {
    /// This server, and those that it knew before.
    pub fn new(own: Peer, member: Vec<Peer>) -> Self {
        let mut company = Self { own, others: BTreeMap::new() };
        company.learn(member);
        company
    }

    /// This server.
    pub fn own(&self) -> &Peer {
        &self.own
    }

    /// All servers, in the order of their names.
    pub fn list(&self) -> Vec<Peer> {
        let others =
            self.others.iter().map(|(name, member)| Peer { name: name.clone(), address: member.address.clone() });
        let mut all: Vec<Peer> = others.chain([self.own.clone()]).collect();
        all.sort();
        all
    }

    /// The addresses of all servers.
    pub fn addresses(&self) -> Vec<String> {
        self.list().into_iter().map(|peer| peer.address).collect()
    }

    /// The list that the holder has replaces that of a standby. Returns whether it is another one.
    pub fn learn(&mut self, list: Vec<Peer>) -> bool {
        let before = self.list();
        let mut others = BTreeMap::new();
        let fits = |peer: &Peer| is_word(&peer.name) && is_word(&peer.address);
        for peer in list.into_iter().filter(fits).take(MAX_SERVERS) {
            if peer.name != self.own.name && peer.address != self.own.address {
                let before = self.others.get(&peer.name).filter(|member| member.address == peer.address).cloned();
                let new =
                    || Member { address: peer.address.clone(), heard: None, progress: StandbyProgress::default() };
                others.insert(peer.name, before.unwrap_or_else(new));
            }
        }
        self.others = others;
        before != self.list()
    }

    /// A standby tells of itself. Returns whether the list is another one now.
    ///
    /// # Errors
    /// When it cannot be one of them.
    pub fn hear(&mut self, peer: &Peer, progress: StandbyProgress, now: Instant) -> Result<bool, Unwelcome> {
        if !is_word(&peer.name) || !is_word(&peer.address) {
            return Err(Unwelcome::Odd);
        }
        let lives =
            |member: &Member| member.heard.is_some_and(|heard| now.saturating_duration_since(heard) < DOWN_AFTER);
        let is_other = |member: &Member| member.address != peer.address && lives(member);
        if peer.name == self.own.name || self.others.get(&peer.name).is_some_and(is_other) {
            return Err(Unwelcome::Taken);
        }
        // A server that comes with another name is the same one; an address has one server.
        let before = self.others.len();
        self.others.retain(|name, member| *name == peer.name || member.address != peer.address);
        let is_new = before != self.others.len();
        if !self.others.contains_key(&peer.name) && self.others.len() + 1 >= MAX_SERVERS {
            return Err(Unwelcome::Full);
        }
        let member = Member { address: peer.address.clone(), heard: Some(now), progress };
        let replaced = self.others.insert(peer.name.clone(), member);
        Ok(is_new || replaced.is_none_or(|member| member.address != peer.address))
    }

    /// Takes a server that does not come back out of the list. Returns whether it was in it.
    pub fn forget(&mut self, name: &str) -> bool {
        self.others.remove(name).is_some()
    }

    /// What was heard before this server had the volume is old.
    pub fn begin(&mut self) {
        self.others.values_mut().for_each(|member| member.heard = None);
    }

    /// How the others are.
    pub fn standings(&self, now: Instant) -> Vec<Standing> {
        let standing = |(name, member): (&String, &Member)| Standing {
            peer: Peer { name: name.clone(), address: member.address.clone() },
            heard: member.heard.map(|heard| now.saturating_duration_since(heard)),
            progress: member.progress,
        };
        self.others.iter().map(standing).collect()
    }

    /// The server with this name or address.
    pub fn find(&self, word: &str) -> Option<Peer> {
        self.list().into_iter().find(|peer| peer.name == word || peer.address == word)
    }

    /// The standby that would take over fastest, if any is up.
    pub fn best(&self, now: Instant) -> Option<Peer> {
        let up = self.standings(now).into_iter().filter(Standing::is_up);
        up.max_by_key(|standing| standing.progress.applied).map(|standing| standing.peer)
    }

    /// The number of standbys that go before this one when `holder` is gone. Without an index that
    /// follows the holder, it lets all others go first: reading the whole index takes long, and
    /// clients wait meanwhile.
    pub fn rank(&self, holder: Option<&str>, follows: bool) -> u32 {
        let before = |name: &&String| **name < self.own.name && Some(name.as_str()) != holder;
        let behind = if follows { 0 } else { self.others.len() };
        u32::try_from(self.others.keys().filter(before).count() + behind).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(name: &str) -> Peer {
        Peer { name: name.into(), address: format!("{name}:7600") }
    }

    fn names(company: &Company) -> Vec<String> {
        company.list().into_iter().map(|peer| peer.name).collect()
    }

    #[test]
    fn a_holder_hears_of_standbys_and_they_learn_of_each_other() {
        let now = Instant::now();
        let mut holder = Company::new(peer("b"), Vec::new());
        assert_eq!(holder.best(now), None);
        let tell = |company: &mut Company, name, applied| company.hear(&peer(name), StandbyProgress { applied }, now);
        assert_eq!(tell(&mut holder, "c", None), Ok(true));
        assert_eq!(tell(&mut holder, "a", Some(TxId(7))), Ok(true));
        assert_eq!(tell(&mut holder, "a", Some(TxId(8))), Ok(false));
        assert_eq!(names(&holder), ["a", "b", "c"]);
        assert_eq!(holder.best(now), Some(peer("a")));
        let mut standby = Company::new(peer("c"), Vec::new());
        assert!(standby.learn(holder.list()));
        assert!(!standby.learn(holder.list()));
        assert_eq!(names(&standby), ["a", "b", "c"]);
        // The holder is gone: a goes first, then c.
        assert_eq!(standby.rank(Some("b"), true), 1);
        assert_eq!(standby.rank(None, true), 2);
        let first = Company::new(peer("a"), holder.list());
        assert_eq!(first.rank(Some("b"), true), 0);
        assert!(first.rank(Some("b"), false) > standby.rank(Some("b"), true), "it has to read its index first");
        // Taken out everywhere.
        assert!(holder.forget("a") && !holder.forget("a"));
        assert!(standby.learn(holder.list()));
        assert_eq!(names(&standby), ["b", "c"]);
    }

    #[test]
    fn who_is_silent_is_down_and_stays_in_the_list() {
        let now = Instant::now();
        let mut holder = Company::new(peer("a"), vec![peer("c")]);
        holder.hear(&peer("b"), StandbyProgress::default(), now).unwrap();
        let up = |company: &Company, when| company.standings(when).iter().map(Standing::is_up).collect::<Vec<_>>();
        assert_eq!(up(&holder, now), [true, false]);
        assert_eq!(up(&holder, now + DOWN_AFTER), [false, false]);
        assert_eq!(holder.best(now + DOWN_AFTER), None);
        assert_eq!(names(&holder), ["a", "b", "c"]);
        holder.begin();
        assert_eq!(up(&holder, now), [false, false]);
    }

    #[test]
    fn a_name_and_an_address_have_one_server() {
        let now = Instant::now();
        let mut holder = Company::new(peer("a"), Vec::new());
        let mut hear = |name: &str, address: &str, when| {
            holder.hear(&Peer { name: name.into(), address: address.into() }, StandbyProgress::default(), when)
        };
        assert_eq!(hear("b", "x:1", now), Ok(true));
        assert_eq!(hear("b", "y:1", now), Err(Unwelcome::Taken));
        assert_eq!(hear("a", "y:1", now), Err(Unwelcome::Taken));
        // It moved.
        assert_eq!(hear("b", "y:1", now + DOWN_AFTER), Ok(true));
        // It has another name now.
        assert_eq!(hear("c", "y:1", now + DOWN_AFTER), Ok(true));
        for (name, address) in [("", "x:1"), ("b", ""), ("b c", "x:1"), ("b", "x:1,y:1"), ("b\u{1b}", "x:1")] {
            assert_eq!(hear(name, address, now), Err(Unwelcome::Odd), "{name:?} {address:?}");
        }
        assert_eq!(hear(&"x".repeat(256), "x:1", now), Err(Unwelcome::Odd));
        assert_eq!(names(&holder), ["a", "c"]);
        assert_eq!(holder.find("y:1"), holder.find("c"));
    }

    #[test]
    fn there_are_not_more_than_so_many() {
        let now = Instant::now();
        let mut holder = Company::new(peer("a"), Vec::new());
        let answers: Vec<_> = (0..MAX_SERVERS)
            .map(|number| holder.hear(&peer(&format!("s{number}")), StandbyProgress::default(), now))
            .collect();
        assert_eq!(answers.iter().filter(|answers| answers.is_ok()).count(), MAX_SERVERS - 1);
        assert_eq!(answers.last(), Some(&Err(Unwelcome::Full)));
        assert_eq!(holder.list().len(), MAX_SERVERS);
        // A made-up list is cut, too.
        let many = (0..100).map(|number| peer(&format!("t{number}"))).collect();
        holder.learn(many);
        assert!(holder.list().len() <= MAX_SERVERS + 1);
    }
}
