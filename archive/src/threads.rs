//! The transport between threads of one process.

use crate::message::Message;
use crate::transport::{Broken, Rank, Transport, receive_from};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use volume::lock;

/// A thread's connection to the others.
pub struct Threads {
    me: Rank,
    ways: Vec<Sender<(Rank, Message)>>,
    inbox: Mutex<Receiver<(Rank, Message)>>,
}

impl Threads {
    /// Connections between this number of ranks, one for each rank.
    pub fn between(ranks: u32) -> Vec<Self> {
        let (ways, inboxes): (Vec<_>, Vec<_>) = (0..ranks).map(|_| channel()).unzip();
        let one = |(me, inbox)| Self { me, ways: ways.clone(), inbox: Mutex::new(inbox) };
        (0..).zip(inboxes).map(one).collect()
    }
}

impl Transport for Threads {
    fn send(&self, to: Rank, message: Message) -> Result<(), Broken> {
        // A rank that has ended needs no message.
        if let Some(way) = self.ways.get(to as usize) {
            let _ = way.send((self.me, message));
        }
        Ok(())
    }

    fn receive(&self, wait: Option<Duration>) -> Result<Option<(Rank, Message)>, Broken> {
        let inbox = lock(&self.inbox);
        receive_from(&inbox, wait).map_err(|_| Broken("the other threads have ended".into()))
    }
}
