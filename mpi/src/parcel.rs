//! What processes send each other: messages of roles, questions to the metadata and their answers,
//! and the few words with which a job begins and ends.

use crate::layout::Layout;
use archive::message::{Message, Problem};
use archive::report::Facts;
use archive::transport::Rank;
use bytes::Bytes;
use plan::TargetId;
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
    pub hidden: u64,
    /// Files of the archive that have changed since are replaced.
    pub update: bool,
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
pub enum Parcel {
    /// To the leader: its version, and its host.
    Hello(String, String),
    /// From the leader: the job begins.
    Setup(Box<Setup>),
    /// From a role to a role.
    Role(Rank, Rank, Box<Message>),
    /// To the leader, a question to the metadata: its number, the session, the operation and its
    /// arguments.
    Call(u64, u64, u16, Bytes),
    /// The answer to a question, by its number; None: the session is not known.
    Answer(u64, Option<Bytes>),
    /// From the leader: others want to read what was written to these files.
    Recall(Vec<fs::Question>),
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

impl Parcel {
    /// As bytes.
    ///
    /// # Panics
    /// Never: all of it can be written down.
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("plain data can be written down")
    }

    /// From bytes; None if they are no parcel.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        postcard::from_bytes(bytes).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{row, table};

    #[test]
    fn parcels_have_fixed_bytes() {
        let hosts = ["a".to_owned(), "b".to_owned(), "b".to_owned()];
        let facts = || Facts { job: "job".into(), code: "rs:4+2".into(), k: 4, m: 2, files: 300, ..Facts::default() };
        let setup = Setup {
            layout: Layout::new(&hosts, 1, 1, false),
            began: Duration::new(5, 6),
            volume: "/volume".into(),
            hidden: 1000,
            update: true,
            places: vec!["/disk".into()],
            absent: vec![TargetId(300)],
            facts: facts(),
        };
        let farewell = Farewell { sets: 1, bytes: 300, cpu_seconds: 0.5, trouble: Some("why".into()) };
        let problem = Problem { path: b"/a".to_vec(), what: "why".into() };
        let lines = [
            row!("hello", Parcel, Parcel::Hello("1.0".into(), "a".into())),
            row!("setup", Parcel, Parcel::Setup(Box::new(setup))),
            row!("role", Parcel, Parcel::Role(2, 300, Box::new(Message::Bye))),
            row!("call", Parcel, Parcel::Call(300, 7, 27, Bytes::from_static(b"call"))),
            row!("answer", Parcel, Parcel::Answer(300, Some(Bytes::from_static(b"answer")))),
            row!("answer-unknown", Parcel, Parcel::Answer(301, None)),
            row!("recall", Parcel, Parcel::Recall(vec![(1000, 300)])),
            row!("problem", Parcel, Parcel::Problem(problem)),
            row!("progress", Parcel, Parcel::Progress(Box::new(facts()))),
            row!("facts", Parcel, Parcel::Facts(Box::new(facts()), Some("why".into()))),
            row!("farewell", Parcel, Parcel::Farewell(farewell)),
            row!("stop", Parcel, Parcel::Stop),
            row!("alive", Parcel, Parcel::Alive),
            row!("end", Parcel, Parcel::End),
        ];
        table(include_str!("golden.txt"), &lines);
    }

    #[test]
    fn parcels_come_back() {
        let parcels = [
            Parcel::Role(2, 0, Box::new(Message::Found { groups: vec![], walks: vec![], done: true })),
            Parcel::Call(1 << 40, 7, 27, Bytes::from(vec![5; 300_000])),
            Parcel::Facts(Box::default(), Some("no room".into())),
            Parcel::End,
        ];
        for parcel in parcels {
            let bytes = parcel.encode();
            assert!(Parcel::decode(&bytes[..bytes.len() - 1]).is_none());
            assert_eq!(Parcel::decode(&bytes), Some(parcel));
        }
        assert!(Parcel::decode(&[255, 255]).is_none());
    }
}
