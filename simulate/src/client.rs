//! A client: a process that has the volume open through the metadata server.

use crate::lab::Lab;
use crate::link::{Connection, Link};
use crate::network::Host;
use fs::label::Member;
use fs::{FileSystem, OpenOptions, Server};
use plan::SessionId;
use session::port::{Entry, Port, Remote, Session, VERSION};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::Duration;
use volume::lock;
use volume::target::Target;
use world::Process;

/// Pause before a failed opening is repeated.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// A client.
pub struct Client {
    /// Its machine.
    pub number: usize,
    pub process: Process,
    pub connection: Arc<Connection>,
    pub fs: Arc<FileSystem>,
}

impl Client {
    /// Opens the volume, in the process of the calling thread: tries until it succeeds.
    pub fn connect(lab: &Arc<Lab>, number: usize) -> Arc<Self> {
        loop {
            match Self::try_connect(lab, number) {
                Ok(client) => return client,
                Err(why) => world::note(format_args!("cannot open the volume: {why}")),
            }
            sleep(RETRY_PAUSE);
        }
    }

    fn try_connect(lab: &Arc<Lab>, number: usize) -> fs::Result<Arc<Self>> {
        let process = Process::current();
        let connection = Connection::new(lab, number, process);
        let port: Arc<dyn Port> = Arc::new(Remote(Link::new(&connection)));
        let session: Arc<dyn Session> = Arc::new(Remote(Link::new(&connection)));
        let entry = Entry { name: format!("client{number}"), ..Entry::default() };
        let entered = session.enter(VERSION, &entry)?;
        connection.have(&entered);
        let views = lab.views(Host::Client(number), Some(&connection.session));
        let find = Box::new(move |member: &Member| Ok(views[usize::from(member.id.0)].clone() as Arc<dyn Target>));
        let warn: fs::Warn = Box::new(|what| world::note(format_args!("warning: {what}")));
        let options = OpenOptions { warn: Some(warn), ..OpenOptions::default() };
        let server = Server { port, session, entered, find, ending: Arc::default() };
        let fs = FileSystem::connect(server, "client", options)?;
        *lock(&connection.volume) = Arc::downgrade(&fs);
        Ok(Arc::new(Self { number, process, connection, fs }))
    }

    /// Its session now.
    pub fn session(&self) -> SessionId {
        SessionId(self.connection.session.load(Ordering::SeqCst))
    }
}
