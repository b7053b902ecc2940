//! A client with its session.

use super::lab::Lab;
use crate::meta_server::link::{Link, LinkState, Unanswered, Wish, way};
use crate::simulation::PORT;
use meta::Error;
use plan::SessionId;
use session::port::{Entry, Held, Remote, Session, VERSION};
use session::transport::Call;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::sleep;
use wire::{Client, ClientOptions};

/// Pause before a failed attempt is repeated.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Records the request, or returns the given answer.
#[derive(Default)]
pub(super) struct Tape {
    asked: Mutex<(u16, Vec<u8>)>,
    answer: Option<Vec<u8>>,
}

impl Call for Tape {
    fn call(&self, operation: u16, arguments: &[u8]) -> meta::Result<Vec<u8>> {
        *self.asked.lock().unwrap() = (operation, arguments.to_vec());
        self.answer.clone().ok_or(Error::Invalid("it was not asked yet".into()))
    }
}

/// A client with its session.
pub(super) struct Mount {
    pub lab: Arc<Lab>,
    state: Arc<LinkState>,
    taking_up: tokio::sync::Mutex<()>,
}

impl Mount {
    pub async fn begin(lab: Arc<Lab>) -> Arc<Self> {
        let (connect, runtime) = (lab.network.connect("client"), Handle::current());
        let make = move |address: &str, _: bool| {
            Client::new(runtime.clone(), address, ClientOptions { connect: connect.clone(), ..way("") })
        };
        let state = LinkState::new(&[format!("meta:{PORT}")], Box::new(make));
        let mount = Self { lab, state: Arc::new(state), taking_up: tokio::sync::Mutex::default() };
        let entry = Entry { name: "client".into(), ..Entry::default() };
        let entered = mount.ask(|port| port.enter(VERSION, &entry)).await.expect("a session");
        mount.state.have(&entered);
        Arc::new(mount)
    }

    /// Sends a request as the real client does, but without a thread that waits.
    pub async fn ask<T>(&self, what: impl Fn(&Remote<Tape>) -> meta::Result<T>) -> meta::Result<T> {
        let link = Link::new(&self.state);
        let tape = Remote(Tape::default());
        let _ = what(&tape);
        let (operation, arguments) = tape.0.asked.into_inner().unwrap();
        let request = self.state.begin();
        let mut wish = Wish::new(operation, request, &arguments);
        let answer = loop {
            match link.ask_until_answered(&mut wish).await {
                Ok(answer) => break Ok(answer),
                Err(Unanswered::Failed(error)) => break Err(error),
                Err(Unanswered::NoSession) => {
                    if self.reclaim().await.is_err() {
                        sleep(RETRY_PAUSE).await;
                    }
                }
            }
        };
        self.state.end(request);
        what(&Remote(Tape { answer: Some(answer?), ..Tape::default() }))
    }

    /// Reclaims the session at a server that restarted.
    async fn reclaim(&self) -> meta::Result<()> {
        let _one_at_a_time = self.taking_up.lock().await;
        let session = Some(SessionId(self.state.session.load(Ordering::SeqCst)));
        let entry = Entry { session, name: "client".into(), ..Entry::default() };
        let entered = self.ask_once(|port| port.enter(VERSION, &entry)).await?;
        self.state.have(&entered);
        if entered.welcome.fresh {
            self.lab.record.note("the client takes its session up");
            self.ask_once(|port| port.reclaim(0, true, &Held::default())).await?;
        }
        Ok(())
    }

    /// As `ask`, but gives up when the server does not know the session.
    async fn ask_once<T>(&self, what: impl Fn(&Remote<Tape>) -> meta::Result<T>) -> meta::Result<T> {
        let tape = Remote(Tape::default());
        let _ = what(&tape);
        let (operation, arguments) = tape.0.asked.into_inner().unwrap();
        let request = self.state.begin();
        let mut wish = Wish::new(operation, request, &arguments);
        let answer = Link::taking_up(&self.state).ask_until_answered(&mut wish).await;
        self.state.end(request);
        match answer {
            Ok(answer) => what(&Remote(Tape { answer: Some(answer), ..Tape::default() })),
            Err(Unanswered::Failed(error)) => Err(error),
            Err(Unanswered::NoSession) => Err(Error::Unavailable("no session".into())),
        }
    }
}
