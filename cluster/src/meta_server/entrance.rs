//! What connections to a metadata server reach, whether it has the volume or stands by. While it
//! has the volume, requests go to the sessions; otherwise the answer is where to ask. An answer
//! that was made when the volume had gone to another server is not given: the client asks that one,
//! which knows which requests were carried out.

use super::commands::Commands;
use super::company::{Company, StandbyProgress};
use super::peers::{Door, PEER, PeerAnswer, What, reply};
use super::seat::Peer;
use super::service::{MetaServer, Shared};
use super::whereabouts::{Whereabouts, not_holder};
use super::{COMMAND, WHO};
use crate::capability::now_ms;
use crate::ranks::StandbyPosition;
use fs::Tenure;
use plan::TxId;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::{Duration, Instant};
use tokio::sync::{oneshot, watch};
use volume::ranked::Ranked;
use volume::{Control, lock, unpoisoned};
use wire::{Reply, Request, Service};

/// How often to see whether a lease was renewed that is not fresh, and how long.
const LEASE_POLL_INTERVAL: Duration = Duration::from_millis(5);
const LEASE_TIMEOUT: Duration = Duration::from_millis(1500);
/// How long a command waits for a server that takes over, and how often it looks.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(5);
const COMMAND_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How long a client waits for the answer while the volume goes from this server to another, or
/// from another to this one. A server that is asked which one has it must answer within a second.
const HANDOVER_TIMEOUT: Duration = Duration::from_millis(800);
/// How long what was open may take to be gone. What hangs longer is left to itself.
const DROP_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a server that was invited may take until it has the volume.
pub(super) const TAKEOVER_TIMEOUT: Duration = Duration::from_secs(60);

/// Answers whether this server has the volume now, or why not.
pub(super) type Invited = oneshot::Sender<Result<(), String>>;

/// One time in which this server has the volume.
pub(super) struct Term {
    pub meta: Arc<MetaServer>,
    over: AtomicBool,
}

/// The end of what was open.
pub(super) struct Leaving(Receiver<()>);

/// Closes the index of what was open, which is closed or abandoned, and drops it with its threads
/// and locks. It waits for neither.
pub(super) fn let_go(term: Option<Arc<Term>>) -> Leaving {
    let (sender, gone) = channel::<()>();
    std::thread::spawn(move || {
        if let Some(term) = &term {
            term.meta.volume().release();
        }
        drop(term);
        drop(sender);
    });
    Leaving(gone)
}

impl Leaving {
    /// Waits until it is gone.
    pub fn wait(self) {
        let _ = self.0.recv_timeout(DROP_TIMEOUT);
    }
}

/// What a server knows and shares with its connections.
pub(super) struct Entrance {
    term: RwLock<Option<Arc<Term>>>,
    /// A handover from or to this server is under way.
    moves: watch::Sender<bool>,
    company: Mutex<Company>,
    /// The server that has the volume, as far as this one knows.
    holder: Mutex<Option<Peer>>,
    /// What this server tells the holder, and the last transaction that the holder told.
    pub progress: Ranked<(StandbyProgress, TxId), StandbyPosition>,
    /// The list of servers is another one than that which was kept last.
    pub changed: AtomicBool,
    door: Door,
    /// The volume's label, for servers that join.
    label: Mutex<String>,
    commands: Commands,
    invited: Box<dyn Fn(Invited) + Send + Sync>,
}

impl Entrance {
    pub fn new(
        company: Company,
        door: Door,
        label: String,
        commands: Commands,
        invited: impl Fn(Invited) + Send + Sync + 'static,
    ) -> Self {
        Self {
            term: RwLock::default(),
            moves: watch::Sender::new(false),
            company: Mutex::new(company),
            holder: Mutex::default(),
            progress: Ranked::default(),
            changed: AtomicBool::new(false),
            door,
            label: Mutex::new(label),
            commands,
            invited: Box::new(invited),
        }
    }

    pub fn company(&self) -> MutexGuard<'_, Company> {
        lock(&self.company)
    }

    /// The server that has the volume, as far as this one knows.
    pub fn holder(&self) -> Option<Peer> {
        lock(&self.holder).clone()
    }

    pub fn set_holder(&self, holder: Option<Peer>) {
        *lock(&self.holder) = holder;
    }

    pub fn set_label(&self, label: String) {
        *lock(&self.label) = label;
    }

    /// The volume is open: from now on requests are answered.
    pub fn begin(&self, meta: Arc<MetaServer>) {
        let own = {
            let mut company = self.company();
            company.begin();
            company.own().clone()
        };
        self.set_holder(Some(own));
        let term = Arc::new(Term { meta, over: AtomicBool::new(false) });
        *unpoisoned(self.term.write()) = Some(term);
        self.set_moves(false);
    }

    /// From now on no request is answered, and none that is under way gets the answer that it
    /// would have got.
    pub fn end(&self, next: Option<Peer>) -> Option<Arc<Term>> {
        self.set_holder(next);
        let term = unpoisoned(self.term.write()).take()?;
        term.over.store(true, Ordering::SeqCst);
        Some(term)
    }

    /// Whether a handover from or to this server is under way. Clients wait for its end here, and
    /// do not ask one server after the other meanwhile, with pauses that grow.
    pub fn set_moves(&self, moves: bool) {
        self.moves.send_replace(moves);
    }

    /// Waits for the end of a handover, if one is under way.
    async fn moved(&self) {
        let mut moves = self.moves.subscribe();
        // At the least, the client gets the answer that it would have had at once.
        let _ = tokio::time::timeout(HANDOVER_TIMEOUT, moves.wait_for(|moves| !moves)).await;
    }

    /// What is open, if this server has the volume.
    pub fn open(&self) -> Option<Arc<MetaServer>> {
        self.now().map(|term| term.meta.clone())
    }

    fn now(&self) -> Option<Arc<Term>> {
        unpoisoned(self.term.read()).clone()
    }

    /// The answer of a server that does not have the volume.
    fn elsewhere(&self) -> Reply {
        let (own, servers) = {
            let company = self.company();
            (company.own().clone(), company.addresses())
        };
        let holder = self.holder().filter(|peer| *peer != own).map(|peer| peer.address);
        not_holder(&Whereabouts { holder: holder.filter(|at| !at.is_empty()), servers })
    }

    /// Answers another server.
    async fn hear(&self, request: &Request) -> Reply {
        let (from, what) = match self.door.open(&request.body, now_ms()) {
            Ok(said) => said,
            Err(refused) => return refused,
        };
        let term = self.now();
        let mut peer_answer = PeerAnswer { holds: term.is_some(), ..PeerAnswer::default() };
        match what {
            What::Join => peer_answer.label = Some(lock(&self.label).clone()),
            What::Heartbeat(progress) if term.is_some() => {
                let heard = self.company().hear(&from, progress, Instant::now());
                match heard {
                    Ok(changes) => _ = self.changed.fetch_or(changes, Ordering::Relaxed),
                    Err(why) => peer_answer.refused = Some(why.to_string()),
                }
            }
            What::Heartbeat(_) => {}
            What::TakeOver => {
                let (sender, taken) = oneshot::channel();
                (self.invited)(sender);
                let ended = || Err("it ended".to_owned());
                let taken = tokio::time::timeout(TAKEOVER_TIMEOUT, taken).await;
                let taken =
                    taken.map_or_else(|_| Err("it takes too long".into()), |taken| taken.unwrap_or_else(|_| ended()));
                (peer_answer.refused, peer_answer.holds) = (taken.err(), self.now().is_some());
            }
        }
        peer_answer.last = term.map(|term| term.meta.volume().last_transaction()).unwrap_or_default();
        peer_answer.servers = self.company().list();
        peer_answer.holder = self.holder();
        reply(&peer_answer)
    }

    /// Carries out a command about this server, which stands by.
    async fn command(&self, request: Request) -> Reply {
        let (commands, operator) = (self.commands.clone(), crate::identity::is_operator(&request.peer));
        let control = Arc::<Control>::default();
        match crate::beside(move || commands.execute(&request.body, operator, &control)).await {
            Ok(answer) => Reply::default().with_payload(answer),
            Err(_) => Reply::error(wire::STATUS_PANICKED, Vec::new()),
        }
    }

    async fn answer(&self, request: Request) -> Reply {
        if request.method == PEER {
            return self.hear(&request).await;
        }
        if self.now().is_none() {
            self.moved().await;
        }
        if request.method == COMMAND {
            self.somebody_has_it().await;
        }
        let Some(term) = self.now() else {
            // With no server to ask, it reports its own state.
            let tells = request.method == COMMAND && !self.is_elsewhere();
            return if tells { self.command(request).await } else { self.elsewhere() };
        };
        if request.method == WHO {
            term.meta.set_servers(self.company().addresses());
        }
        if request.method == COMMAND {
            // It may be the command that hands the volume over, which must not wait for itself.
            let answer = term.meta.command(request);
            drop(term);
            return answer.await;
        }
        let service = Shared(term.meta.clone());
        // A client that asks which server has the volume asks all of them.
        let timeout = if request.method == WHO { Duration::ZERO } else { LEASE_TIMEOUT };
        let reply = service.call(request).await;
        if self.may_answer(&term, timeout).await {
            return reply;
        }
        // The handover waits for who holds them.
        drop((term, service));
        self.moved().await;
        self.elsewhere()
    }

    /// Whether another server has the volume, as far as this one knows.
    fn is_elsewhere(&self) -> bool {
        self.holder().is_some_and(|holder| holder != *self.company().own())
    }

    /// Waits a little for a server that takes over.
    async fn somebody_has_it(&self) {
        let begun = Instant::now();
        while self.now().is_none() && !self.is_elsewhere() && begun.elapsed() < COMMAND_TIMEOUT {
            tokio::time::sleep(COMMAND_POLL_INTERVAL).await;
        }
    }

    /// Whether no other server had the volume when the answer was made. While that is not certain,
    /// the answer waits; after that the client looks for another server.
    async fn may_answer(&self, term: &Term, timeout: Duration) -> bool {
        let mut begun = None;
        loop {
            if term.over.load(Ordering::SeqCst) {
                return false;
            }
            match term.meta.volume().tenure() {
                Tenure::Fresh => return true,
                Tenure::Over | Tenure::Failed => return false,
                Tenure::Stale if begun.get_or_insert_with(Instant::now).elapsed() >= timeout => return false,
                Tenure::Stale => tokio::time::sleep(LEASE_POLL_INTERVAL).await,
            }
        }
    }
}

/// The service of a server.
pub struct EntranceService(pub(super) Arc<Entrance>);

impl Service for EntranceService {
    async fn call(&self, request: Request) -> Reply {
        self.0.answer(request).await
    }
}

#[cfg(test)]
mod tests {
    use super::super::company::Company;
    use super::*;
    use std::task::{Context, Poll, Waker};

    /// It asked other servers meanwhile, which knew no more, and paused longer each time.
    #[test]
    fn a_client_waits_for_the_end_of_a_handover() {
        let own = Peer { name: "a".into(), address: "a:1".into() };
        let (company, door) = (Company::new(own, Vec::new()), Door::new([7; 16], None));
        let entrance = Entrance::new(company, door, String::new(), Commands::new(|_, _, _| Vec::new()), drop);
        let _inside = crate::runtime().enter();
        let is_answered = |answer: &mut std::pin::Pin<Box<dyn Future<Output = ()> + '_>>| {
            answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
        };
        assert!(is_answered(&mut (Box::pin(entrance.moved()) as _)), "nothing is under way");
        entrance.set_moves(true);
        let mut answer = Box::pin(entrance.moved()) as _;
        assert!(!is_answered(&mut answer));
        entrance.set_moves(false);
        crate::runtime().block_on(answer);
    }
}
