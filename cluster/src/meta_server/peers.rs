//! Messages between the metadata servers of a volume: a standby tells the holder of itself and
//! gets the list of all servers; a new one gets the label; a holder that hands the volume over
//! invites the next one. Where there is a cluster key, each message has a token for everything,
//! which only servers can make.

use super::company::StandbyProgress;
use super::link::way;
use super::seat::Peer;
use crate::address::VolumeAddress;
use crate::capability::{CLOCK_TOLERANCE, ClusterKey, Guard, Wanted, now_ms};
use fs::Error;
use plan::TxId;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use volume::lock;
use wire::{Client, ClientOptions, Reply, Role};

/// The operation of these messages.
pub(super) const PEER: u16 = 1002;
/// Status of an answer: the sender is no server of this cluster, or the message cannot be read.
const PEER_REFUSED: u16 = 1;
/// How long another server may take to answer.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Connections to other servers; there are never more than a few.
const MAX_CONNECTIONS: usize = 64;

/// What a server wants of another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum What {
    /// A new server wants the volume's label.
    Join,
    /// A standby is there.
    Heartbeat(StandbyProgress),
    /// The sender has given the volume back: the receiver shall claim it.
    TakeOver,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Message {
    /// A token with all rights; empty where there is no cluster key.
    token: Vec<u8>,
    /// The volume's id; zeroes if the sender does not know it yet.
    volume: [u8; 16],
    from: Peer,
    what: What,
}

/// The answer to a message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PeerAnswer {
    /// The server that has the volume, as far as the asked one knows.
    pub holder: Option<Peer>,
    /// Whether that is the asked one.
    pub holds: bool,
    /// All servers.
    pub servers: Vec<Peer>,
    /// The last transaction, at the holder.
    pub last: TxId,
    /// For `Join`: the volume's label, as JSON.
    pub label: Option<String>,
    /// Why the request was refused.
    pub refused: Option<String>,
}

/// Sends messages to other servers.
pub(super) struct Ways {
    own: Peer,
    volume: [u8; 16],
    /// The name of the volume; empty if it is not known.
    name: String,
    key: Option<Arc<ClusterKey>>,
    clients: Mutex<HashMap<String, Client>>,
}

impl Ways {
    /// From this server, about a volume with this id and name.
    pub fn new(own: Peer, (volume, name): ([u8; 16], &str), key: Option<Arc<ClusterKey>>) -> Self {
        Self { own, volume, name: name.to_owned(), key, clients: Mutex::default() }
    }

    fn client(&self, address: &str) -> Client {
        let mut clients = lock(&self.clients);
        if clients.len() >= MAX_CONNECTIONS {
            clients.clear();
        }
        let new = || {
            let tls = crate::identity::client_tls();
            let backoff = Duration::from_millis(20)..=Duration::from_millis(200);
            let options = ClientOptions { tls, channels: 1, direct: 0, role: Role::META, backoff, ..way(&self.name) };
            Client::new(crate::runtime().handle().clone(), address, options)
        };
        clients.entry(address.to_owned()).or_insert_with(new).clone()
    }

    /// Sends a message and waits for the answer.
    ///
    /// # Errors
    /// When the server does not answer, or the answer cannot be decoded: the reason, in one line.
    pub fn ask(&self, address: &str, what: What, deadline: Duration) -> Result<PeerAnswer, String> {
        let token = self.key.as_ref().map_or_else(Vec::new, |key| key.own(now_ms()).as_bytes().to_vec());
        let message = Message { token, volume: self.volume, from: self.own.clone(), what };
        let body = postcard::to_stdvec(&message).map_err(|why| why.to_string())?;
        match self.client(address).call_blocking(PEER, &body, &[], deadline) {
            Ok(answer) => postcard::from_bytes(&answer.payload).map_err(|_| "it said what cannot be read".into()),
            Err(wire::Error::Remote { status: PEER_REFUSED, body }) => Err(String::from_utf8_lossy(&body).into_owned()),
            Err(wire::Error::Remote { .. }) => Err("it is no metadata server of this version".into()),
            Err(why) => Err(why.to_string()),
        }
    }
}

/// Asks the servers of a volume for the volume's label, and for the list of servers.
///
/// # Errors
/// If none of them answers with a label.
pub fn join(volume: &VolumeAddress, own: &Peer, key: Option<Arc<ClusterKey>>) -> fs::Result<(String, Vec<Peer>)> {
    let ways = Ways::new(own.clone(), ([0; 16], &volume.volume), key);
    let mut refused = Vec::new();
    for address in &volume.servers {
        match ways.ask(address, What::Join, ANSWER_TIMEOUT).map(|peer_answer| (peer_answer.label, peer_answer.servers))
        {
            Ok((Some(label), servers)) => return Ok((label, servers)),
            Ok((None, _)) => refused.push(format!("{address}: it has no label to give")),
            Err(why) => refused.push(format!("{address}: {why}")),
        }
    }
    Err(Error::Unavailable(refused.join("; ")))
}

/// Reads messages of other servers and checks their tokens.
pub(super) struct Door {
    volume: [u8; 16],
    guard: Option<Guard>,
}

impl Door {
    pub fn new(volume: [u8; 16], key: Option<Arc<ClusterKey>>) -> Self {
        Self { volume, guard: key.map(|key| Guard::new(key, CLOCK_TOLERANCE)) }
    }

    /// Returns the sender of a message, and what it wants.
    ///
    /// # Errors
    /// The reply to a sender that is refused.
    pub fn open(&self, body: &[u8], now_ms: u64) -> Result<(Peer, What), Reply> {
        let refused = |why: &str| Err(Reply::error(PEER_REFUSED, why.as_bytes().to_vec()));
        let Ok(Message { token, volume, from, what }) = postcard::from_bytes(body) else {
            return refused("it does not understand this version of a metadata server");
        };
        if let Some(guard) = &self.guard
            && let Err(why) = guard.check(&token, Wanted::Everything, None, now_ms)
        {
            return refused(&format!("it answers the servers of its cluster alone: {why}"));
        }
        if volume != self.volume && (volume != [0; 16] || what != What::Join) {
            return refused("it has another volume");
        }
        Ok((from, what))
    }
}

/// An answer as a reply.
pub(super) fn reply(peer_answer: &PeerAnswer) -> Reply {
    Reply::default().with_payload(postcard::to_stdvec(peer_answer).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::super::whereabouts::{Holds, Whereabouts};
    use super::super::{Ticket, seat};
    use super::*;
    use crate::golden::{is_table, row};
    use plan::Ino;
    use plan::SessionId;

    #[test]
    fn messages_have_fixed_bytes() {
        let peer = |name: &str| seat::Peer { name: name.into(), address: format!("{name}:1") };
        let message = |what| Message { token: b"token".to_vec(), volume: [0xab; 16], from: peer("a"), what };
        let answer = PeerAnswer {
            holder: Some(peer("b")),
            holds: true,
            servers: vec![peer("a"), peer("b")],
            last: TxId(300),
            label: Some("{}".into()),
            refused: Some("why".into()),
        };
        let servers = vec!["a:1".to_owned(), "b:1".to_owned()];
        let whereabouts = Whereabouts { holder: Some("b:1".into()), servers: servers.clone() };
        let ticket = Ticket { session: SessionId(7), secret: [0x5e; 16], request: 300, answered: 299, again: true };
        let heartbeat = |applied| message(What::Heartbeat(StandbyProgress { applied }));
        let lines = [
            row!("join", Message, message(What::Join)),
            row!("heartbeat", Message, heartbeat(Some(TxId(300)))),
            row!("heartbeat-without-index", Message, heartbeat(None)),
            row!("take-over", Message, message(What::TakeOver)),
            row!("answer", PeerAnswer, answer),
            row!("empty-answer", PeerAnswer, PeerAnswer::default()),
            row!("whereabouts", Whereabouts, whereabouts),
            row!("whereabouts-unknown", Whereabouts, Whereabouts::default()),
            row!("holds", Holds, Holds { opening: 300, servers }),
            row!("ticket", Ticket, ticket),
            row!("recall", Vec<session::Question>, vec![(Ino(1000), 300)]),
        ];
        is_table(include_str!("../golden/peers.txt"), &lines);
    }

    fn key(name: &str) -> Arc<ClusterKey> {
        let path = std::env::temp_dir().join(format!("weft-peers-{name}-{}", std::process::id()));
        ClusterKey::create(&path).unwrap();
        let key = ClusterKey::read(&path).unwrap().unwrap();
        std::fs::remove_file(&path).unwrap();
        Arc::new(key)
    }

    fn message(token: Vec<u8>, volume: [u8; 16], what: What) -> Vec<u8> {
        let from = Peer { name: "b".into(), address: "b:1".into() };
        postcard::to_stdvec(&Message { token, volume, from, what }).unwrap()
    }

    #[test]
    fn only_servers_of_the_cluster_and_the_volume_are_heard() {
        let (own, other, now) = (key("own"), key("other"), 1_000_000);
        let door = Door::new([7; 16], Some(own.clone()));
        let send_heartbeat = || What::Heartbeat(StandbyProgress::default());
        let good = own.own(now).as_bytes().to_vec();
        let opened = |token: &[u8], volume, what, now| door.open(&message(token.to_vec(), volume, what), now).is_ok();
        assert!(opened(&good, [7; 16], send_heartbeat(), now));
        assert!(opened(&good, [0; 16], What::Join, now), "who joins does not know the volume");
        assert!(!opened(&good, [0; 16], What::TakeOver, now) && !opened(&good, [8; 16], What::Join, now));
        assert!(
            !opened(&[], [7; 16], send_heartbeat(), now)
                && !opened(other.own(now).as_bytes(), [7; 16], send_heartbeat(), now)
        );
        assert!(!opened(&good, [7; 16], send_heartbeat(), now + 3_600_000), "an old one");
        for bytes in [&[][..], &[0xFF; 64]] {
            assert!(door.open(bytes, now).is_err());
        }
        assert!(
            Door::new([7; 16], None).open(&message(Vec::new(), [7; 16], send_heartbeat()), now).is_ok(),
            "on loopback"
        );
    }
}
