//! Requests of a client to a metadata server: each is the number of an operation, the length of its
//! arguments, and these. All go to one volume, in one session.
#![no_main]

use fs::label::{Label, Member};
use fs::{FileSystem, OpenOptions, Sessions};
use session::caller::Caller;
use session::transport::{Answer, Recall, Request};
use meta::kv::MemoryIndex;
use session::port::{BEGIN, Remote, Session};
use session::transport::Call;
use plan::TargetId;
use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use volume::target::{Memory, Target};

/// Operations that wait when nobody answers: one that another client was asked for, a lock.
const WAIT: [u16; 1] = [74];

struct Client {
    sessions: Arc<Sessions>,
    session: Option<u64>,
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

fn begin(sessions: &Arc<Sessions>) -> Client {
    let welcome = Remote(Client { sessions: sessions.clone(), session: None }).begin(None, "fuzz".into(), Vec::new());
    Client { sessions: sessions.clone(), session: welcome.ok().map(|welcome| welcome.session) }
}

fn serve() -> Client {
    let members = (0..3).map(|number| Member::new(TargetId(number), PathBuf::new())).collect();
    let label = Label::new([7; 16], "fuzz", "rs:2+1", 3 << 20, 2, members);
    let disks: Vec<Arc<Memory>> = (0..3).map(|_| Arc::default()).collect();
    let places = || (0..).map(TargetId).zip(disks.iter().map(|disk| disk.clone() as Arc<dyn Target>)).collect();
    FileSystem::create_on(&label, places()).expect("a volume");
    let options = OpenOptions { serve: true, ..OpenOptions::default() };
    let volume = FileSystem::open_on(label, places(), Box::new(MemoryIndex::default()), options).expect("a volume");
    begin(&Sessions::new(volume, Duration::from_secs(86_400)))
}

thread_local! {
    static CLIENT: RefCell<Client> = RefCell::new(serve());
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    CLIENT.with_borrow_mut(|client| {
        let mut rest = bytes;
        while let [operation, length, after @ ..] = rest {
            let (arguments, behind) = after.split_at(usize::from(*length).min(after.len()));
            rest = behind;
            let operation = u16::from(*operation);
            if operation != BEGIN && !WAIT.contains(&operation) && client.call(operation, arguments).is_err() {
                // It ended its session.
                *client = begin(&client.sessions);
            }
        }
        assert_eq!(client.sessions.volume().counts().defects(), 0);
    });
});
