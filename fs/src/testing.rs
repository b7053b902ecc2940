//! Volumes in memory, for tests of internal behaviour.

use crate::volume::label::{Label, Member};
use crate::{FileKind, FileSystem, New, OpenOptions, ROOT, Server, Sessions};
use meta::kv::MemoryIndex;
use plan::{Ino, SessionId, TargetId};
use session::port::{Entry, Remote, Session, VERSION, session_of_work};
use session::transport::Call;
use session::transport::{Answer, Recall};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use volume::target::{Claim, ClaimRequest, Epoch, Faulty, Memory, Target};

/// Targets with a volume on them.
pub(crate) struct Lab {
    label: Label,
    pub disks: Vec<Arc<Memory>>,
}

impl Lab {
    pub fn new(code: &str, targets: usize) -> Self {
        Self::at(code, targets, |_| PathBuf::new())
    }

    /// The same; the label names these places of the targets.
    pub fn at(code: &str, targets: usize, path: impl Fn(usize) -> PathBuf) -> Self {
        let shape = ec::parse(code).unwrap().shape();
        let member = |number: usize| Member::new(TargetId(number as u16), path(number));
        let members = (0..targets).map(member).collect();
        let label = Label::new([7; 16], "test", code, 6 << 20, shape.k, members);
        let lab = Self { label, disks: (0..targets).map(|_| Arc::new(Memory::default())).collect() };
        FileSystem::create_on(&lab.label, lab.places()).unwrap();
        lab
    }

    fn places(&self) -> Vec<(TargetId, Arc<dyn Target>)> {
        let place = |(number, disk): (usize, &Arc<Memory>)| (TargetId(number as u16), disk.clone() as Arc<dyn Target>);
        self.disks.iter().enumerate().map(place).collect()
    }

    /// A disk for changes by hand, which need a claim of their own.
    pub fn by_hand(&self, number: usize) -> &Memory {
        let disk = &self.disks[number];
        if let Some(last) = disk.claim(&ClaimRequest::Read).unwrap().claim {
            let claim = Claim { epoch: Epoch { number: last.epoch.number + 1, id: 1 }, ..last };
            disk.claim(&ClaimRequest::Take { claim, lease: Duration::ZERO, blank: 0 }).unwrap();
        }
        disk
    }

    pub fn open(&self) -> Arc<FileSystem> {
        self.open_as(OpenOptions::default())
    }

    pub fn open_as(&self, options: OpenOptions) -> Arc<FileSystem> {
        FileSystem::open_on(self.label.clone(), self.places(), Box::new(MemoryIndex::default()), options).unwrap()
    }

    /// The volume on targets that can fail. A stripe is written when so many targets have it.
    pub fn open_faulty(&self, durability: usize) -> (Arc<FileSystem>, Vec<Arc<Faulty>>) {
        let faulty: Vec<Arc<Faulty>> = self.disks.iter().map(|disk| Arc::new(Faulty::new(disk.clone()))).collect();
        let places = faulty.iter().enumerate().map(|(number, target)| {
            let target: Arc<dyn Target> = target.clone();
            (TargetId(number as u16), target)
        });
        let label = Label { durability, ..self.label.clone() };
        let index = Box::new(MemoryIndex::default());
        (FileSystem::open_on(label, places.collect(), index, OpenOptions::default()).unwrap(), faulty)
    }

    /// A server of clients that keep their sessions for so long.
    pub fn serve(&self, lease: Duration) -> Arc<Sessions> {
        Sessions::new(self.open_as(OpenOptions { serve: true, ..OpenOptions::default() }), lease)
    }

    /// The only client of a server in this process. Its session does not end.
    pub fn client(&self) -> Arc<FileSystem> {
        self.client_over(|way| way)
    }

    /// The same; its messages go another way.
    pub fn client_over<C: Call + 'static>(&self, over: impl Fn(Way) -> C) -> Arc<FileSystem> {
        let server = self.serve(Duration::from_secs(600));
        let entry = Entry { name: "client".into(), ..Entry::default() };
        let entered = Remote(Way(server.clone(), None)).enter(VERSION, &entry).unwrap();
        let way = || Arc::new(Remote(over(Way(server.clone(), Some(entered.welcome.session)))));
        let find = {
            let disks = self.disks.clone();
            Box::new(move |member: &Member| Ok(disks[usize::from(member.id.0)].clone() as Arc<dyn Target>))
        };
        let (port, session) = (way(), way());
        let server = Server { port, session, entered, find, ending: Arc::default() };
        FileSystem::connect(server, "client", OpenOptions::default()).unwrap()
    }
}

/// A connection to a server in this process, in a session if there is one.
pub(crate) struct Way(pub Arc<Sessions>, pub Option<SessionId>);

impl Call for Way {
    fn call(&self, operation: u16, arguments: &[u8]) -> meta::Result<Vec<u8>> {
        if self.1.is_some() && session_of_work().is_some_and(|other| Some(other) != self.1) {
            return Err(meta::Error::Unavailable("the session ended before this was done".into()));
        }
        let recall: Recall = Arc::new(|_: &[session::Question]| ());
        match self.0.answer(self.1, &recall, operation, arguments) {
            Answer::Done(answer) => Ok(answer),
            other => Err(meta::Error::Unavailable(format!("{other:?}"))),
        }
    }
}

/// Creates a file in the root directory.
pub(crate) fn make(fs: &FileSystem, name: &str) -> Ino {
    let new = New { kind: FileKind::File, mode: 0o644, uid: 1, gid: 2, device: 0, link: Vec::new() };
    fs.make(ROOT, name.as_bytes(), &new).unwrap().ino
}
