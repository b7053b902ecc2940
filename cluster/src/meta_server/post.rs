//! A process that serves a volume's metadata beside others: it does what its seat says. One thread
//! has the seat. Long work has a thread of its own, which reports its end to the seat's thread.

use super::commands::Commands;
use super::company::{Company, HEARTBEAT_INTERVAL, StandbyProgress, Standing};
use super::entrance::{Entrance, EntranceService, Invited, TAKEOVER_TIMEOUT, let_go};
use super::heartbeat::{Heartbeats, Trouble};
use super::list::{read_list, write_list};
use super::peers::{ANSWER_TIMEOUT, Door, Ways, What};
use super::seat::{Action, Claimed, Peer, Rules, Seat, SeatState};
use super::service::MetaServer;
use super::trail::Trail;
use super::watch::{Watch, WatchResult};
use crate::capability::ClusterKey;
use crate::places::ClusterPlaces;
use fs::{Error, Tenure};
use plan::TxId;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use volume::lock;

/// How often a holder looks whether it still is one.
const SEAT_CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// How long requests under way may take when the volume goes to another server.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(250);
/// The same when no other one is known.
const LONG_DRAIN: Duration = Duration::from_secs(10);
/// How long a server that ends waits for the next one to have the volume.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a server that ends waits for an opening that has begun.
const ENDS: Duration = Duration::from_secs(1);

/// What a post is for, and what it needs.
pub struct PostOptions {
    /// The volume directory. The caller holds its lock.
    pub directory: PathBuf,
    /// This server.
    pub own: Peer,
    /// The id of this server in claims.
    pub id: u128,
    /// Finds targets.
    pub places: Arc<ClusterPlaces>,
    /// What servers know each other by.
    pub key: Option<Arc<ClusterKey>>,
    /// Carries out commands while this server stands by.
    pub commands: Commands,
}

/// What a process does for its post.
pub trait Host: Send + Sync + 'static {
    /// Claims and opens the volume. With `insists`, it fails while more voters are silent than
    /// the code can miss.
    ///
    /// # Errors
    /// When it is not open then.
    fn open(&self, insists: bool) -> fs::Result<Arc<MetaServer>>;

    /// From now on, requests are answered. `holder` is the server that has the volume; None stands
    /// for this one.
    fn ready(&self, holder: Option<&Peer>);

    /// The volume is about to be closed: commands that work on it end.
    fn closing(&self);

    /// The result of `open` is not used any more.
    fn closed(&self);

    /// The volume cannot be opened yet. Returns whether to go on trying.
    fn waits(&self, why: &Error, begun: Duration) -> bool;

    /// Tells the operator something.
    fn say(&self, line: &str);
}

/// What happens to a post.
enum Event {
    Looked(Box<Watch>, WatchResult),
    Opened(fs::Result<Arc<MetaServer>>),
    Closed(fs::Result<usize>),
    Fenced,
    Failed(String),
    Invited(Invited),
    HandOver(Peer, Sender<Result<Duration, String>>),
    Stop,
}

/// How a server and those beside it are.
#[derive(Clone, Debug)]
pub struct Standings {
    /// This server.
    pub own: Peer,
    /// The one that has the volume, as far as this one knows.
    pub holder: Option<Peer>,
    /// The others, as the holder knows them; on a standby without when they were heard.
    pub others: Vec<Standing>,
    /// The last transaction of the holder, and that of this server's index.
    pub last: TxId,
    /// What this server's index has.
    pub progress: StandbyProgress,
}

/// A post.
pub struct Post {
    directory: PathBuf,
    places: Arc<ClusterPlaces>,
    entrance: Arc<Entrance>,
    trail: Trail,
    ways: Ways,
    events: Mutex<Sender<Event>>,
    received: Mutex<Option<Receiver<Event>>>,
    watch: Mutex<Option<Box<Watch>>>,
}

impl Post {
    /// A post that has nothing open yet.
    ///
    /// # Errors
    /// When the directory holds no volume.
    pub fn new(options: PostOptions) -> fs::Result<Arc<Self>> {
        let PostOptions { directory, own, id, places, key, commands } = options;
        let watch = Watch::new(&directory, id, places.clone())?;
        let volume = watch.label().id()?;
        let company = Company::new(own.clone(), read_list(&directory));
        let (sender, receiver) = channel();
        let invites = Mutex::new(sender.clone());
        let invited = move |answer| {
            // Without the thread of the seat, the answer is dropped, which is one.
            let _ = lock(&invites).send(Event::Invited(answer));
        };
        let door = Door::new(volume, key.clone());
        let entrance = Arc::new(Entrance::new(company, door, watch.label().to_json(), commands, invited));
        Ok(Arc::new(Self {
            trail: Trail::new(&directory, entrance.clone(), places.clone()),
            directory,
            places,
            entrance,
            ways: Ways::new(own, (volume, &watch.label().name), key),
            events: Mutex::new(sender),
            received: Mutex::new(Some(receiver)),
            watch: Mutex::new(Some(Box::new(watch))),
        }))
    }

    /// The service that answers requests.
    pub fn service(&self) -> EntranceService {
        EntranceService(self.entrance.clone())
    }

    /// What is open, if this server has the volume.
    pub fn open(&self) -> Option<Arc<MetaServer>> {
        self.entrance.open()
    }

    /// How the servers are.
    pub fn standings(&self) -> Standings {
        let (progress, mut last) = *self.entrance.progress.lock();
        if let Some(meta) = self.open() {
            last = meta.volume().last_transaction();
        }
        let company = self.entrance.company();
        let (own, others) = (company.own().clone(), company.standings(Instant::now()));
        drop(company);
        Standings { own, holder: self.entrance.holder(), others, last, progress }
    }

    /// Takes a server that does not come back out of the list. Returns whether it was in it.
    pub fn forget(&self, name: &str) -> bool {
        let known = {
            let mut company = self.entrance.company();
            company.find(name).is_some_and(|peer| company.forget(&peer.name))
        };
        if known {
            self.note_list();
        }
        known
    }

    /// Ends the post: `run` returns when the volume is closed.
    pub fn stop(&self) {
        self.send(Event::Stop);
    }

    /// Gives the volume to another server, by name or address, and waits until that one has it.
    /// Returns how long the volume had no holder.
    ///
    /// # Errors
    /// Why it has it not, in a line.
    pub fn hand_over(&self, to: &str) -> Result<Duration, String> {
        let standing = {
            let company = self.entrance.company();
            let peer = company.find(to);
            let known = peer.filter(|peer| peer != company.own());
            let own = company.find(to).is_some_and(|peer| peer == *company.own());
            if own {
                return Err(format!("{to} has the volume already"));
            }
            known.and_then(|peer| company.standings(Instant::now()).into_iter().find(|one| one.peer == peer))
        };
        let standing = standing.ok_or_else(|| format!("no metadata server of the volume has the name {to}"))?;
        if !standing.is_up() {
            return Err(format!("{} does not answer", standing.peer.name));
        }
        let (sender, done) = channel();
        self.send(Event::HandOver(standing.peer, sender));
        done.recv().unwrap_or_else(|_| Err("this server ends".into()))
    }

    fn send(&self, event: Event) {
        let _ = lock(&self.events).send(event);
    }

    /// Does `what` on a thread that goes on after a panic.
    fn caught<T>(&self, host: &impl Host, what: &str, work: impl FnOnce() -> T) -> Option<T> {
        self.places.stores().caught(what, |line| host.say(line), work)
    }

    /// Keeps the list of servers for the next start.
    fn note_list(&self) {
        let list = self.entrance.company().list();
        // A list that is not kept is found again at the holder, whom the targets name.
        let _ = write_list(&self.directory, &list);
    }

    /// Serves until `stop`. Returns how many targets are away, if that keeps something on this
    /// machine.
    ///
    /// # Errors
    /// When the volume cannot be opened in time, or something could not be committed at the end.
    pub fn run(self: &Arc<Self>, host: &Arc<impl Host>) -> fs::Result<usize> {
        let received = lock(&self.received).take().ok_or_else(|| Error::Conflict("the post runs already".into()))?;
        let heartbeats = {
            let (post, ends) = (Arc::downgrade(self), Arc::new(()));
            let (alive, host) = (Arc::downgrade(&ends), host.clone());
            std::thread::spawn(move || {
                let mut heartbeats = Heartbeats::default();
                while alive.strong_count() > 0 {
                    let Some(post) = post.upgrade() else { return };
                    let trouble = post.caught(&*host, "heartbeats to the holder", || post.send_heartbeat());
                    heartbeats.note(trouble.flatten(), Instant::now()).iter().for_each(|line| host.say(line));
                    drop(post);
                    std::thread::sleep(HEARTBEAT_INTERVAL);
                }
            });
            ends
        };
        let name = self.entrance.company().own().name.clone();
        let mut driver = Driver {
            post: self.clone(),
            host: host.clone(),
            seat: Seat::new(&name),
            rules: Rules::new(1),
            begun: Instant::now(),
            ready: false,
            waiting: Vec::new(),
            giving: None,
            outcome: Ok(0),
            stopped: None,
        };
        let outcome = driver.run(&received);
        self.trail.stop();
        drop(heartbeats);
        outcome
    }

    /// A standby tells the holder of itself, and learns who the others are.
    fn send_heartbeat(&self) -> Option<Trouble> {
        let stands_by = || self.entrance.open().is_none();
        let own = self.entrance.company().own().clone();
        let holder = self.entrance.holder().filter(|it| stands_by() && *it != own && !it.address.is_empty())?;
        let progress = self.entrance.progress.lock().0;
        let peer_answer = match self.ways.ask(&holder.address, What::Heartbeat(progress), ANSWER_TIMEOUT) {
            Ok(peer_answer) => peer_answer,
            Err(why) => return Some(Trouble::Failed(format!("{}: {why}", holder.address))),
        };
        if !peer_answer.holds || !stands_by() {
            return None;
        }
        self.entrance.progress.lock().1 = peer_answer.last;
        if peer_answer.refused.is_none() && self.entrance.company().learn(peer_answer.servers) {
            self.note_list();
        }
        peer_answer.refused.map(Trouble::Refused)
    }
}

/// A handover in progress: the successor, its begin, and the channel of the caller that waits.
struct Giving {
    to: Peer,
    since: Instant,
    answer: Option<Sender<Result<Duration, String>>>,
}

/// The thread that has the seat.
struct Driver<H> {
    post: Arc<Post>,
    host: Arc<H>,
    seat: Seat,
    rules: Rules,
    begun: Instant,
    /// Whether requests were ever answered.
    ready: bool,
    /// Servers that want to know when this one has the volume.
    waiting: Vec<Invited>,
    giving: Option<Giving>,
    outcome: fs::Result<usize>,
    /// When it was told to end.
    stopped: Option<Instant>,
}

impl<H: Host> Driver<H> {
    fn run(&mut self, received: &Receiver<Event>) -> fs::Result<usize> {
        loop {
            let now = self.begun.elapsed();
            if let Some(action) = self.seat.poll(now) {
                if action == Action::Exit {
                    return std::mem::replace(&mut self.outcome, Ok(0));
                }
                self.act(action);
                continue;
            }
            // An opening waits for what does not answer, and an end does not.
            let ends = self.stopped.filter(|_| self.seat.state() == SeatState::Claiming);
            let ends = ends.map(|since| ENDS.saturating_sub(since.elapsed()));
            let event = match (self.seat.next(), ends) {
                (_, Some(Duration::ZERO)) => return Ok(0),
                (_, Some(left)) => received.recv_timeout(left),
                (Some(next), None) => received.recv_timeout(next.saturating_sub(now)),
                (None, None) => received.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match event {
                Ok(event) => self.happens(event)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(Error::Invalid("a defect in the post".into())),
            }
        }
    }

    /// Does `what` on a thread. If it panics, its event is that of an error.
    fn spawn<T: 'static>(
        &self,
        what: &'static str,
        event: impl FnOnce(fs::Result<T>) -> Event + Send + 'static,
        work: impl FnOnce(&Arc<Post>, &H) -> fs::Result<T> + Send + 'static,
    ) {
        let (post, host) = (self.post.clone(), self.host.clone());
        std::thread::spawn(move || {
            let done = post.caught(&*host, what, || work(&post, &host));
            post.send(event(done.unwrap_or_else(|| Err(Error::Invalid(format!("a defect in {what}"))))));
        });
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Look => {
                let Some(mut watch) = lock(&self.post.watch).take() else { return };
                let (post, host) = (self.post.clone(), self.host.clone());
                std::thread::spawn(move || {
                    let found = post.caught(&*host, "looking at claims", || watch.look());
                    post.send(Event::Looked(watch, found.unwrap_or_default()));
                });
            }
            Action::Claim => {
                let insists = !self.ready;
                self.spawn("opening the volume", Event::Opened, move |post, host| {
                    post.trail.stop();
                    host.open(insists)
                });
            }
            Action::Discard => {
                let term = self.post.entrance.end(None);
                self.spawn("giving the volume up", Event::Closed, move |_, host| {
                    if let Some(term) = &term {
                        term.meta.stop();
                        term.meta.send_away();
                        term.meta.volume().abandon();
                    }
                    host.closing();
                    host.closed();
                    let_go(term).wait();
                    Ok(0)
                });
            }
            Action::Close { .. } => {
                let next = self.giving.as_ref().map(|giving| (giving.to.clone(), giving.answer.is_some()));
                self.post.entrance.set_moves(next.is_some());
                let term = self.post.entrance.end(next.as_ref().map(|(to, _)| to.clone()));
                self.spawn("closing the volume", Event::Closed, move |post, host| {
                    let drain = if next.is_some() { DRAIN_TIMEOUT } else { LONG_DRAIN };
                    let closed = term.as_ref().map_or(Ok(0), |term| {
                        term.meta.stop();
                        term.meta.send_away();
                        let begun = Instant::now();
                        // Requests under way have it, too.
                        while Arc::strong_count(term) > 1 && begun.elapsed() < drain {
                            std::thread::sleep(Duration::from_millis(1));
                        }
                        host.closing();
                        term.meta.close()
                    });
                    host.closed();
                    // Before the invitation, as the next one may need the locks of directories; it
                    // tries again until they are free.
                    let leaving = let_go(term);
                    if let (Ok(_), Some((to, stays))) = (&closed, &next) {
                        post.invite(to, if *stays { TAKEOVER_TIMEOUT } else { LEAVE_TIMEOUT });
                    }
                    leaving.wait();
                    closed
                });
            }
            Action::Exit => {}
        }
    }

    fn happens(&mut self, event: Event) -> fs::Result<()> {
        let now = self.begun.elapsed();
        let random = u64::from(std::process::id()) ^ now.subsec_nanos().wrapping_mul(2_654_435_761) as u64;
        match event {
            Event::Looked(watch, found) => self.looked(watch, &found, now),
            Event::Opened(Ok(meta)) => {
                self.seat.claimed(Claimed::Holds, &self.rules, now, random);
                self.holds(meta);
            }
            Event::Opened(Err(why)) => {
                let others = match why {
                    // It may be this server that cannot read the targets, and others could. Until
                    // it was ready once, the operator's patience is for the one that is alone.
                    Error::TooFew(_) => {
                        !self.ready && self.post.entrance.company().standings(Instant::now()).is_empty()
                    }
                    Error::Meta(meta::Error::Unavailable(_)) => true,
                    _ => waits(&why),
                };
                let how = if others { Claimed::Failed } else { Claimed::Unable };
                self.seat.claimed(how, &self.rules, now, random);
                self.post.entrance.set_moves(false);
                self.waiting.drain(..).for_each(|answer| _ = answer.send(Err(why.to_string())));
                self.cannot_open(why)?;
            }
            Event::Closed(closed) => {
                self.post.entrance.set_moves(false);
                if let Err(why) = closed.as_ref()
                    && self.stopped.is_none()
                {
                    let line = "its index is closed all the same, and this server stands by";
                    self.host.say(&format!("the volume could not be closed: {why}; {line}"));
                }
                self.finish_giving(&closed);
                if closed.is_err() || self.seat.state() == SeatState::HandingOver {
                    self.outcome = closed;
                }
                self.seat.ended(&self.rules, now, random);
            }
            Event::Fenced => {
                self.host.say("another metadata server has taken the volume over: this one stands by");
                self.seat.fenced();
            }
            Event::Failed(why) => {
                self.host.say(&format!("this metadata server cannot go on and stands by: {why}"));
                self.seat.failed();
            }
            Event::Invited(answer) => {
                match self.seat.state() {
                    SeatState::Standby | SeatState::Claiming => {
                        self.post.entrance.set_moves(true);
                        self.waiting.push(answer);
                    }
                    SeatState::Holder => _ = answer.send(Ok(())),
                    _ => _ = answer.send(Err("it ends".into())),
                }
                self.seat.invited();
            }
            Event::HandOver(to, answer) => {
                if self.seat.hand_over(&to.name) {
                    self.giving = Some(Giving { to, since: Instant::now(), answer: Some(answer) });
                } else {
                    let _ = answer.send(Err("this server does not have the volume".into()));
                }
            }
            Event::Stop => {
                self.stopped = Some(Instant::now());
                let best = self.post.entrance.company().best(Instant::now());
                if let Some(to) = best.filter(|_| self.seat.state() == SeatState::Holder) {
                    self.giving = Some(Giving { to, since: Instant::now(), answer: None });
                }
                self.seat.stop(None);
            }
        }
        Ok(())
    }

    fn looked(&mut self, mut watch: Box<Watch>, found: &WatchResult, now: Duration) {
        self.rules = Rules::new(watch.enough());
        watch.follow(&self.post.directory, found);
        self.post.entrance.set_label(watch.label().clone().for_clients().to_json());
        let course = found.held.then(|| watch.course(found)).flatten();
        *lock(&self.post.watch) = Some(watch);
        if self.seat.state() != SeatState::Standby {
            return;
        }
        if found.held || found.last.is_some() {
            self.post.entrance.set_holder(found.last.clone().filter(|_| found.held));
        }
        if let Some(holder) = found.last.as_ref().filter(|_| found.held && !self.ready) {
            self.ready = true;
            self.host.ready(Some(holder));
        }
        if let Some(course) = course {
            self.post.trail.follow(course);
        }
        let gone = found.last.as_ref().map(|peer| peer.name.as_str());
        let follows = self.post.entrance.progress.lock().0.applied.is_some();
        let rank = self.post.entrance.company().rank(gone, follows);
        self.seat.looked(&found.votes, rank, &self.rules, now);
        // A server that was just started says why it cannot open the volume.
        if !self.ready && !found.held {
            self.seat.invited();
        }
    }

    fn holds(&mut self, meta: Arc<MetaServer>) {
        if self.seat.state() != SeatState::Holder {
            // Meanwhile it was told to end; it closes what is open.
            self.post.entrance.begin(meta);
            return;
        }
        let volume = Arc::downgrade(meta.volume());
        self.post.entrance.begin(meta);
        let post = Arc::downgrade(&self.post);
        std::thread::spawn(move || {
            // It ends when the volume is closed.
            while let Some(volume) = volume.upgrade().filter(|volume| !volume.is_closed()) {
                let Some(post) = post.upgrade() else { return };
                let end = volume.beside("looking at the seat", || match volume.tenure() {
                    Tenure::Over => Some(Event::Fenced),
                    Tenure::Failed => Some(Event::Failed(volume.trouble().unwrap_or_default())),
                    Tenure::Fresh | Tenure::Stale => {
                        if post.entrance.changed.swap(false, Ordering::Relaxed) {
                            post.note_list();
                        }
                        None
                    }
                });
                if let Some(event) = end.flatten() {
                    return post.send(event);
                }
                drop((volume, post));
                std::thread::sleep(SEAT_CHECK_INTERVAL);
            }
        });
        self.waiting.drain(..).for_each(|answer| _ = answer.send(Ok(())));
        self.ready = true;
        self.host.ready(None);
        self.post.note_list();
    }

    /// Before the first time, the operator decides how long it is tried, and a volume that cannot
    /// be opened at all is an error.
    fn cannot_open(&mut self, why: Error) -> fs::Result<()> {
        let waits = waits(&why) || matches!(why, Error::TooFew(_));
        if self.ready {
            // Another one was faster, as a rule; the next look says which.
            if !matches!(why, Error::Meta(meta::Error::Held(_) | meta::Error::Fenced(_))) {
                self.host.say(&format!("cannot take the volume over: {why}"));
            }
            return Ok(());
        }
        if waits && self.host.waits(&why, self.begun.elapsed()) { Ok(()) } else { Err(why) }
    }

    fn finish_giving(&mut self, closed: &fs::Result<usize>) {
        let Some(Giving { to, since, answer }) = self.giving.take() else { return };
        let Some(answer) = answer else { return };
        let taken = match closed {
            Err(why) => Err(format!("the volume could not be closed: {why}")),
            Ok(_) if self.post.entrance.holder() == Some(to.clone()) => Ok(since.elapsed()),
            Ok(_) => Err(format!("{} has not taken the volume; another server will", to.name)),
        };
        let _ = answer.send(taken);
    }
}

impl Post {
    /// Asks another server to take the volume, which has no holder now.
    fn invite(&self, next: &Peer, timeout: Duration) {
        let taken = self.ways.ask(&next.address, What::TakeOver, timeout);
        let takes = matches!(taken, Ok(peer_answer) if peer_answer.refused.is_none());
        self.entrance.set_holder(takes.then(|| next.clone()));
        self.entrance.set_moves(false);
    }
}

/// Whether a volume that could not be opened may be opened later.
fn waits(why: &Error) -> bool {
    use meta::Error as Meta;
    matches!(why, Error::Unavailable(_) | Error::Meta(Meta::Held(_) | Meta::TooFew(_) | Meta::Fenced(_)))
}
