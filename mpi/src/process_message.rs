//! What processes send each other: messages of roles, questions to the metadata and their answers,
//! and the few words with which a job begins and ends.

use crate::layout::Layout;
use archive::message::{Message, Problem};
use archive::report::Facts;
use archive::transport::Rank;
use bytes::Bytes;
use plan::{Ino, SessionId, TargetId};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// What the leader tells all processes before the job begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// The roles of each process.
    pub layout: Layout,
    /// When the job began, after 1970.
    pub began: Duration,
    /// The volume, as it was given.
    pub volume: PathBuf,
    /// The job's directory in the volume.
    pub hidden: Ino,
    /// Files of the archive that have changed since are replaced.
    pub update: bool,
    /// The directory to restore into, or the source that a verification reads; absolute.
    pub place: Option<Vec<u8>>,
    /// Where the volume itself is: these directories are not archived.
    pub places: Vec<PathBuf>,
    /// Targets that the leader lacks too.
    pub absent: Vec<TargetId>,
    /// What is known of the job.
    pub facts: Facts,
}

/// What a process did, when it has closed the volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Farewell {
    /// Chunk sets that it began.
    pub sets: u64,
    /// Bytes of blocks that it wrote.
    pub bytes: u64,
    /// Processor time since the job began.
    pub cpu_seconds: f64,
    /// Why the volume could not be closed.
    pub trouble: Option<String>,
}

/// What processes send each other. The leader is process 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ProcessMessage {
    /// To the leader: its version, and its host.
    Hello(String, String),
    /// From the leader: the job begins.
    Setup(Box<Setup>),
    /// From a role to a role.
    Role(Rank, Rank, Box<Message>),
    /// To the leader, a question to the metadata: its number, the session, the operation and its
    /// arguments.
    Call(u64, SessionId, u16, Bytes),
    /// The answer to a question, by its number; None: the session is not known.
    Answer(u64, Option<Bytes>),
    /// From the leader: others want to read what was written to these files.
    Recall(Vec<session::Question>),
    /// From the reporter to the leader: something went wrong with a file.
    Problem(Problem),
    /// From the reporter to the leader: how far it is.
    Progress(Box<Facts>),
    /// From the reporter to the leader, at the end; and why the job could not go on.
    Facts(Box<Facts>, Option<String>),
    /// To the leader: it is done.
    Farewell(Farewell),
    /// To the leader, and from it to everybody: a signal came, the job shall stop.
    Stop,
    /// To the leader: it lives.
    Alive,
    /// From the leader: there is nothing more.
    End,
}

impl ProcessMessage {
    /// As bytes.
    ///
    /// # Panics
    /// Never: all of it can be written down.
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("plain data can be written down")
    }

    /// From bytes; None if they are no message.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        postcard::from_bytes(bytes).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back() {
        let messages = [
            ProcessMessage::Role(2, 0, Box::new(Message::Found { groups: vec![], walks: vec![], done: true })),
            ProcessMessage::Call(1 << 40, SessionId(7), 27, Bytes::from(vec![5; 300_000])),
            ProcessMessage::Facts(Box::default(), Some("no room".into())),
            ProcessMessage::End,
        ];
        for process_message in messages {
            let bytes = process_message.encode();
            assert!(ProcessMessage::decode(&bytes[..bytes.len() - 1]).is_none());
            assert_eq!(ProcessMessage::decode(&bytes), Some(process_message));
        }
        assert!(ProcessMessage::decode(&[255, 255]).is_none());
    }
}
