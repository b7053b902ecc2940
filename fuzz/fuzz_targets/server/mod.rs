//! A metadata server for fuzzing, with a volume in memory and one client.

use fs::label::{Label, Member};
use fs::{FileSystem, OpenOptions, Sessions};
use meta::kv::MemoryIndex;
use plan::{SessionId, TargetId};
use session::caller::Caller;
use session::port::{Remote, Session};
use session::transport::{Answer, Call, Recall, Request};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use volume::target::{Memory, Target};

#[derive(Clone)]
pub struct Client {
    pub sessions: Arc<Sessions>,
    pub session: Option<SessionId>,
}

impl Call for Client {
    fn call(&self, operation: u16, arguments: &[u8]) -> meta::Result<Vec<u8>> {
        let recall: Recall = Arc::new(|_: &[session::Question]| ());
        let caller = Caller::trusted(self.session);
        match self.sessions.answer_request(&caller, &recall, operation, arguments, Request::default()).0 {
            Answer::Done(answer) => Ok(answer),
            other => Err(meta::Error::Unavailable(format!("{other:?}"))),
        }
    }
}

impl Client {
    /// A client of a new server.
    pub fn new() -> Self {
        let members = (0..3).map(|number| Member::new(TargetId(number), PathBuf::new())).collect();
        let label = Label::new([7; 16], "fuzz", "rs:2+1", 3 << 20, 2, members);
        let disks: Vec<Arc<Memory>> = (0..3).map(|_| Arc::default()).collect();
        let places = || (0..).map(TargetId).zip(disks.iter().map(|disk| disk.clone() as Arc<dyn Target>)).collect();
        FileSystem::create_on(&label, places()).expect("a volume");
        let options = OpenOptions { serve: true, ..OpenOptions::default() };
        let volume = FileSystem::open_on(label, places(), Box::new(MemoryIndex::default()), options).expect("a volume");
        Self { sessions: Sessions::new(volume, Duration::from_secs(86_400)), session: None }.begin()
    }

    /// The same in a new session.
    pub fn begin(&self) -> Self {
        let nobody = Self { session: None, ..self.clone() };
        let welcome = Remote(nobody).begin(None, "fuzz".into(), Vec::new());
        Self { sessions: self.sessions.clone(), session: welcome.ok().map(|welcome| welcome.session) }
    }

    /// That the server has no defects.
    pub fn check(&self) {
        assert_eq!(self.sessions.volume().counts().defects(), 0);
    }
}
