//! The router of a process: it sorts what arrives, and gathers what goes out. It never waits,
//! so that the thread that moves the messages can call it: under MPI one thread of each process, in
//! tests the sender's.

use crate::layout::{LEADER, Layout, Process};
use crate::process_message::ProcessMessage;
use archive::message::Message;
use archive::transport::{Broken, Rank, Transport, receive_from};
use bytes::Bytes;
use cli::archiving::warning;
use fs::FileSystem;
use plan::SessionId;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};
use volume::Control;
use volume::lock;

/// How often a process says that it is alive.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);
/// A process that says nothing for this long is given up, and the job with it.
pub const SILENCE_TIMEOUT: Duration = Duration::from_secs(120);

/// Messages of roles, and their senders.
type Letters = (Sender<(Rank, Message)>, Option<Receiver<(Rank, Message)>>);

/// Messages for the process itself, in the order in which they arrive.
pub type Mail = Receiver<(Process, ProcessMessage)>;

/// What goes out: to whom, and the bytes.
pub type Outgoing = Receiver<(Process, Vec<u8>)>;

/// Answers the questions of other processes to the metadata.
pub trait Service: Send + Sync {
    /// Carries out a request of another process, on a thread that may wait, and sends the answer.
    /// `call` is the number of the request, and its session.
    fn carry_out(
        self: Arc<Self>,
        router: &Arc<Router>,
        from: Process,
        call: (u64, SessionId),
        operation: u16,
        arguments: Bytes,
    );
}

/// The router of a process.
pub struct Router {
    me: Process,
    processes: u32,
    out: Sender<(Process, Vec<u8>)>,
    mail: Sender<(Process, ProcessMessage)>,
    layout: OnceLock<Layout>,
    inboxes: Mutex<HashMap<Rank, Letters>>,
    /// Questions that were not answered yet.
    asked: Mutex<HashMap<u64, Sender<Option<Bytes>>>>,
    next: AtomicU64,
    service: Mutex<Option<Arc<dyn Service>>>,
    volume: Mutex<Weak<FileSystem>>,
    control: Arc<Control>,
    pulse: Mutex<Pulse>,
}

/// Which processes are alive.
struct Pulse {
    looked: Instant,
    told_to_stop: bool,
    heard: Vec<Instant>,
}

impl Router {
    /// The router of one of `processes` processes. `control` stops the whole job.
    pub fn new(me: Process, processes: u32, control: Arc<Control>) -> (Arc<Self>, Outgoing, Mail) {
        let ((out, outgoing), (mail, incoming)) = (channel(), channel());
        let now = Instant::now();
        let pulse = Pulse { looked: now, told_to_stop: false, heard: vec![now; processes as usize] };
        let router = Self {
            me,
            processes,
            out,
            mail,
            layout: OnceLock::new(),
            inboxes: Mutex::default(),
            asked: Mutex::default(),
            next: AtomicU64::new(1),
            service: Mutex::default(),
            volume: Mutex::default(),
            control,
            pulse: Mutex::new(pulse),
        };
        (Arc::new(router), outgoing, incoming)
    }

    /// The number of this process.
    pub fn me(&self) -> Process {
        self.me
    }

    /// The number of all processes.
    pub fn processes(&self) -> u32 {
        self.processes
    }

    /// What stops the job.
    pub fn control(&self) -> &Arc<Control> {
        &self.control
    }

    /// Sets the roles of all processes and, at a leader that has the volume open itself, the
    /// service that answers questions to its metadata.
    pub fn begin(&self, layout: Layout, service: Option<Arc<dyn Service>>) {
        let _ = self.layout.set(layout);
        *lock(&self.service) = service;
    }

    /// Answers no more questions: all other processes have closed the volume.
    pub fn close_service(&self) {
        *lock(&self.service) = None;
    }

    /// The volume that this process has open, and of which others may recall files.
    pub fn opened(&self, volume: &Arc<FileSystem>) {
        *lock(&self.volume) = Arc::downgrade(volume);
    }

    /// Sends to another process.
    pub fn send(&self, to: Process, process_message: &ProcessMessage) {
        // If no thread moves messages any more, the process is about to end.
        let _ = self.out.send((to, process_message.encode()));
    }

    /// Sends to all other processes.
    pub fn send_all(&self, process_message: &ProcessMessage) {
        let others = (0..self.processes).filter(|&other| other != self.me);
        others.for_each(|other| self.send(other, process_message));
    }

    /// Asks the leader, and waits for the answer; None if there will be none.
    pub fn ask(&self, session: SessionId, operation: u16, arguments: &[u8]) -> Option<Bytes> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = channel();
        lock(&self.asked).insert(number, answer);
        self.send(LEADER, &ProcessMessage::Call(number, session, operation, Bytes::copy_from_slice(arguments)));
        answered.recv().ok().flatten()
    }

    /// The way of a role of this process.
    pub fn way(self: &Arc<Self>, role: Rank) -> Way {
        let inbox = lock(&self.inboxes).entry(role).or_insert_with(new_inbox).1.take();
        Way { role, router: self.clone(), inbox: Mutex::new(inbox.unwrap_or_else(|| channel().1)) }
    }

    fn put(&self, to: Rank, from: Rank, message: Message) {
        // A role that has ended needs no message; one that has not begun finds it when it does.
        let _ = lock(&self.inboxes).entry(to).or_insert_with(new_inbox).0.send((from, message));
    }

    /// Takes what arrived.
    ///
    /// # Errors
    /// If this version does not know what it is: the job cannot go on.
    pub fn deliver(self: &Arc<Self>, from: Process, bytes: &[u8]) -> Result<(), Broken> {
        let process_message = ProcessMessage::decode(bytes).ok_or_else(|| {
            Broken(format!("rank {from} sent what rank {} does not understand; are all of one version?", self.me))
        })?;
        if let Some(heard) = lock(&self.pulse).heard.get_mut(from as usize) {
            *heard = Instant::now();
        }
        match process_message {
            ProcessMessage::Role(of, to, message) => self.put(to, of, *message),
            ProcessMessage::Call(number, session, operation, arguments) => {
                let service = lock(&self.service).clone();
                match service {
                    Some(service) => service.carry_out(self, from, (number, session), operation, arguments),
                    None => self.send(from, &ProcessMessage::Answer(number, None)),
                }
            }
            ProcessMessage::Answer(number, answer) => {
                if let Some(asked) = lock(&self.asked).remove(&number) {
                    let _ = asked.send(answer);
                }
            }
            ProcessMessage::Recall(questions) => {
                let volume = lock(&self.volume).upgrade();
                // It commits and asks, and both wait.
                volume.into_iter().for_each(|volume| {
                    let questions = questions.clone();
                    std::thread::spawn(move || volume.recall(&questions));
                });
            }
            ProcessMessage::Stop => self.control.cancel(),
            ProcessMessage::Alive => {}
            other => _ = self.mail.send((from, other)),
        }
        Ok(())
    }

    /// To be called now and then: passes on that the job is to stop, and says that this process is
    /// alive.
    ///
    /// # Errors
    /// Names the process that has been silent for too long.
    pub fn tick(&self, now: Instant) -> Result<(), Broken> {
        let mut pulse = lock(&self.pulse);
        if self.control.go_on().is_err() && !std::mem::replace(&mut pulse.told_to_stop, true) {
            match self.me {
                LEADER => {
                    warning("the job stops: what is committed stays, and the same command goes on with the rest");
                    self.send_all(&ProcessMessage::Stop);
                }
                _ => self.send(LEADER, &ProcessMessage::Stop),
            }
        }
        let since = now.saturating_duration_since(pulse.looked);
        if since < HEARTBEAT_INTERVAL {
            return Ok(());
        }
        pulse.looked = now;
        if self.me != LEADER {
            self.send(LEADER, &ProcessMessage::Alive);
            return Ok(());
        }
        if since > 2 * HEARTBEAT_INTERVAL {
            // This process did not run, so it did not hear the others. That does not make them
            // silent.
            pulse.heard.fill(now);
        }
        let silent = |heard: &Instant| now.saturating_duration_since(*heard) > SILENCE_TIMEOUT;
        match pulse.heard.iter().skip(1).position(silent) {
            None => Ok(()),
            Some(other) => Err(Broken(format!(
                "rank {} has said nothing for {} s: the job ends; what is committed stays, and the same command goes \
                 on with the rest",
                other + 1,
                SILENCE_TIMEOUT.as_secs()
            ))),
        }
    }
}

fn new_inbox() -> Letters {
    let (sender, receiver) = channel();
    (sender, Some(receiver))
}

/// A role's way to the others.
pub struct Way {
    role: Rank,
    router: Arc<Router>,
    inbox: Mutex<Receiver<(Rank, Message)>>,
}

impl Transport for Way {
    fn send(&self, to: Rank, message: Message) -> Result<(), Broken> {
        match self.router.layout.get().and_then(|layout| layout.process_of(to)) {
            Some(process) if process == self.router.me => self.router.put(to, self.role, message),
            Some(process) => self.router.send(process, &ProcessMessage::Role(self.role, to, Box::new(message))),
            None => return Err(Broken(format!("there is no role {to} in this job, which is a defect"))),
        }
        Ok(())
    }

    fn receive(&self, wait: Option<Duration>) -> Result<Option<(Rank, Message)>, Broken> {
        let inbox = lock(&self.inbox);
        receive_from(&inbox, wait).map_err(|_| Broken("the other processes have ended".into()))
    }
}
