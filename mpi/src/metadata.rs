//! The metadata of a volume that the leader has open, for the other processes: each is a client in
//! a session of its own, as with a metadata server, but its requests travel as messages of the job.
//! So it needs no port and no certificate. A message arrives once and in order, or the job ends: no
//! request is ever repeated.

use crate::layout::Process;
use crate::process_message::ProcessMessage;
use crate::router::{Router, SILENCE_TIMEOUT, Service};
use bytes::Bytes;
use cluster::StoreAddress;
use fs::label::{Label, Member};
use fs::{FileSystem, OpenOptions, Server, Sessions};
use plan::SessionId;
use session::Question;
use session::port::{Entry, Port, Remote, Session, VERSION};
use session::transport::Call;
use session::transport::{Answer, Recall};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use volume::target::{Disk, Target};
use volume::{Shown, lock};

/// Answers what clients ask.
pub struct MetadataService {
    sessions: Arc<Sessions>,
}

impl MetadataService {
    /// For the clients of this volume.
    pub fn new(volume: &Arc<FileSystem>) -> Arc<Self> {
        // A process that is silent for that long ends the job anyway, and no other takes its place.
        let sessions = Sessions::new(volume.clone(), 2 * SILENCE_TIMEOUT);
        sessions.keep_ticking();
        Arc::new(Self { sessions })
    }

    fn answer(&self, session: SessionId, recall: &Recall, operation: u16, arguments: &[u8]) -> Option<Bytes> {
        match self.sessions.answer(session.given(), recall, operation, arguments) {
            Answer::Done(answer) => Some(answer.into()),
            Answer::NoSession | Answer::Unknown => None,
        }
    }
}

impl Service for MetadataService {
    fn carry_out(
        self: Arc<Self>,
        router: &Arc<Router>,
        from: Process,
        (number, session): (u64, SessionId),
        operation: u16,
        arguments: Bytes,
    ) {
        let router = router.clone();
        cluster::runtime().spawn_blocking(move || {
            let weak_router = Arc::downgrade(&router);
            let recall: Recall = Arc::new(move |questions: &[Question]| {
                weak_router.upgrade().inspect(|router| router.send(from, &ProcessMessage::Recall(questions.to_vec())));
            });
            let answer = self.answer(session, &recall, operation, &arguments);
            router.send(from, &ProcessMessage::Answer(number, answer));
        });
    }
}

/// A client's line to the metadata.
#[derive(Clone)]
pub struct Line {
    end: End,
    session: Arc<AtomicU64>,
}

#[derive(Clone)]
enum End {
    /// In this process.
    Here(Arc<MetadataService>, Recall),
    /// At the leader.
    There(Arc<Router>),
}

impl Line {
    /// To the leader.
    pub fn to_leader(router: &Arc<Router>) -> Self {
        Self { end: End::There(router.clone()), session: Arc::default() }
    }

    /// Of the leader itself, whose own roles are clients like all others.
    pub fn here(service: &Arc<MetadataService>, router: &Arc<Router>) -> Self {
        let router = Arc::downgrade(router);
        let recall: Recall = Arc::new(move |questions: &[Question]| {
            let process_message = ProcessMessage::Recall(questions.to_vec()).encode();
            router.upgrade().inspect(|router| _ = router.deliver(router.me(), &process_message));
        });
        Self { end: End::Here(service.clone(), recall), session: Arc::default() }
    }
}

impl Call for Line {
    fn call(&self, operation: u16, arguments: &[u8]) -> meta::Result<Vec<u8>> {
        let session = SessionId(self.session.load(Ordering::SeqCst));
        let answer = match &self.end {
            End::Here(service, recall) => service.answer(session, recall, operation, arguments),
            End::There(router) => router.ask(session, operation, arguments),
        };
        let ended = || meta::Error::Unavailable("the session with rank 0, which has the volume open, ended".into());
        answer.map(|answer| answer.to_vec()).ok_or_else(ended)
    }
}

/// Opens a volume whose metadata the leader has. Chunks go straight to the targets, which the
/// leader locks for the whole job. Each target that the leader has, except those in `absent`, must
/// be there under the same path.
///
/// # Errors
/// Names the target that is not there.
pub fn connect(
    line: &Line,
    name: &str,
    absent: &[plan::TargetId],
    options: OpenOptions,
) -> fs::Result<Arc<FileSystem>> {
    let session: Arc<dyn Session> = Arc::new(Remote(line.clone()));
    let port: Arc<dyn Port> = Arc::new(Remote(line.clone()));
    let entered = session.enter(VERSION, &Entry { name: name.into(), ..Entry::default() })?;
    line.session.store(entered.welcome.session.0, Ordering::SeqCst);
    let id = Label::from_json(&entered.welcome.label)?.volume;
    let places = options.places.clone();
    let missing = Arc::new(Mutex::new(Vec::new()));
    let noted = missing.clone();
    let find = Box::new(move |member: &Member| {
        let found = match StoreAddress::of(&member.path) {
            Some(_) => places.open(&member.path),
            None => directory(&id, member),
        };
        found.inspect_err(|why| {
            lock(&noted).push((member.id, why.to_string()));
        })
    });
    let volume = FileSystem::connect(Server { port, session, entered, find, ending: Arc::default() }, name, options)?;
    let missing = lock(&missing);
    match missing.iter().find(|(target, _)| !absent.contains(target)) {
        None => Ok(volume),
        Some((target, why)) => {
            let _ = volume.close_volume();
            Err(fs::Error::NotFound(format!(
                "target {} is not here, but rank 0 has it: {why}; directories must be shared, under the same path on \
                 all nodes",
                target.0
            )))
        }
    }
}

/// A target that is a directory, if it is one of this volume.
fn directory(volume: &str, member: &Member) -> fs::Result<Arc<dyn Target>> {
    let target: Arc<dyn Target> = Arc::new(Disk::open(&member.path)?);
    let shown = Shown(&member.path).to_string();
    match Label::read(&*target, &shown)? {
        Some(label) if label.volume == volume && label.target == Some(member.id) => Ok(target),
        _ => Err(fs::Error::NotFound(format!("{shown} is not that target"))),
    }
}
