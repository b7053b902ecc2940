//! The post office of a process: it sorts what arrives, and gathers what goes out. It never waits,
//! so that the thread that moves the parcels can call it: under MPI one thread of each process, in
//! tests the sender's.

use crate::layout::{LEADER, Layout, Process};
use crate::metadata::Desk;
use crate::parcel::Parcel;
use archive::message::Message;
use archive::transport::{Broken, Rank, Transport, receive_from};
use bytes::Bytes;
use cli::archiving::warning;
use fs::FileSystem;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};
use volume::Control;
use volume::lock;

/// How often a process says that it is alive.
const BEAT: Duration = Duration::from_secs(5);
/// A process that says nothing for this long is given up, and the job with it.
pub const SILENCE: Duration = Duration::from_secs(120);

/// Messages of roles, and their senders.
type Letters = (Sender<(Rank, Message)>, Option<Receiver<(Rank, Message)>>);

/// Messages for the process itself, in the order in which they arrive.
pub type Mail = Receiver<(Process, Parcel)>;

/// What goes out: to whom, and the bytes.
pub type Outgoing = Receiver<(Process, Vec<u8>)>;

/// The post office of a process.
pub struct Office {
    me: Process,
    processes: u32,
    out: Sender<(Process, Vec<u8>)>,
    mail: Sender<(Process, Parcel)>,
    layout: OnceLock<Layout>,
    inboxes: Mutex<HashMap<Rank, Letters>>,
    /// Questions that were not answered yet.
    asked: Mutex<HashMap<u64, Sender<Option<Bytes>>>>,
    next: AtomicU64,
    desk: Mutex<Option<Arc<Desk>>>,
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

impl Office {
    /// The office of one of `processes` processes. `control` stops the whole job.
    pub fn new(me: Process, processes: u32, control: Arc<Control>) -> (Arc<Self>, Outgoing, Mail) {
        let ((out, outgoing), (mail, incoming)) = (channel(), channel());
        let now = Instant::now();
        let pulse = Pulse { looked: now, told_to_stop: false, heard: vec![now; processes as usize] };
        let office = Self {
            me,
            processes,
            out,
            mail,
            layout: OnceLock::new(),
            inboxes: Mutex::default(),
            asked: Mutex::default(),
            next: AtomicU64::new(1),
            desk: Mutex::default(),
            volume: Mutex::default(),
            control,
            pulse: Mutex::new(pulse),
        };
        (Arc::new(office), outgoing, incoming)
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

    /// Sets the roles of all processes and, at a leader that has the volume open itself, the desk
    /// that answers questions to its metadata.
    pub fn begin(&self, layout: Layout, desk: Option<Arc<Desk>>) {
        let _ = self.layout.set(layout);
        *lock(&self.desk) = desk;
    }

    /// Answers no more questions: all other processes have closed the volume.
    pub fn close_desk(&self) {
        *lock(&self.desk) = None;
    }

    /// The volume that this process has open, and of which others may recall files.
    pub fn opened(&self, volume: &Arc<FileSystem>) {
        *lock(&self.volume) = Arc::downgrade(volume);
    }

    /// Sends to another process.
    pub fn send(&self, to: Process, parcel: &Parcel) {
        // If no thread moves parcels any more, the process is about to end.
        let _ = self.out.send((to, parcel.encode()));
    }

    /// Sends to all other processes.
    pub fn send_all(&self, parcel: &Parcel) {
        let others = (0..self.processes).filter(|&other| other != self.me);
        others.for_each(|other| self.send(other, parcel));
    }

    /// Asks the leader, and waits for the answer; None if there will be none.
    pub fn ask(&self, session: u64, operation: u16, arguments: &[u8]) -> Option<Bytes> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = channel();
        lock(&self.asked).insert(number, answer);
        self.send(LEADER, &Parcel::Call(number, session, operation, Bytes::copy_from_slice(arguments)));
        answered.recv().ok().flatten()
    }

    /// The way of a role of this process.
    pub fn way(self: &Arc<Self>, role: Rank) -> Way {
        let inbox = lock(&self.inboxes).entry(role).or_insert_with(new_inbox).1.take();
        Way { role, office: self.clone(), inbox: Mutex::new(inbox.unwrap_or_else(|| channel().1)) }
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
        let parcel = Parcel::decode(bytes).ok_or_else(|| {
            Broken(format!("rank {from} sent what rank {} does not understand; are all of one version?", self.me))
        })?;
        if let Some(heard) = lock(&self.pulse).heard.get_mut(from as usize) {
            *heard = Instant::now();
        }
        match parcel {
            Parcel::Role(of, to, message) => self.put(to, of, *message),
            Parcel::Call(number, session, operation, arguments) => {
                let desk = lock(&self.desk).clone();
                match desk {
                    Some(desk) => desk.carry_out(self, from, (number, session), operation, arguments),
                    None => self.send(from, &Parcel::Answer(number, None)),
                }
            }
            Parcel::Answer(number, answer) => {
                if let Some(asked) = lock(&self.asked).remove(&number) {
                    let _ = asked.send(answer);
                }
            }
            Parcel::Recall(questions) => {
                let volume = lock(&self.volume).upgrade();
                // It commits and asks, and both wait.
                volume.into_iter().for_each(|volume| {
                    let questions = questions.clone();
                    std::thread::spawn(move || volume.recall(&questions));
                });
            }
            Parcel::Stop => self.control.cancel(),
            Parcel::Alive => {}
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
                    self.send_all(&Parcel::Stop);
                }
                _ => self.send(LEADER, &Parcel::Stop),
            }
        }
        let since = now.saturating_duration_since(pulse.looked);
        if since < BEAT {
            return Ok(());
        }
        pulse.looked = now;
        if self.me != LEADER {
            self.send(LEADER, &Parcel::Alive);
            return Ok(());
        }
        if since > 2 * BEAT {
            // This process did not run, so it did not hear the others. That does not make them
            // silent.
            pulse.heard.fill(now);
        }
        let silent = |heard: &Instant| now.saturating_duration_since(*heard) > SILENCE;
        match pulse.heard.iter().skip(1).position(silent) {
            None => Ok(()),
            Some(other) => Err(Broken(format!(
                "rank {} has said nothing for {} s: the job ends; what is committed stays, and the same command goes \
                 on with the rest",
                other + 1,
                SILENCE.as_secs()
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
    office: Arc<Office>,
    inbox: Mutex<Receiver<(Rank, Message)>>,
}

impl Transport for Way {
    fn send(&self, to: Rank, message: Message) -> Result<(), Broken> {
        match self.office.layout.get().and_then(|layout| layout.process_of(to)) {
            Some(process) if process == self.office.me => self.office.put(to, self.role, message),
            Some(process) => self.office.send(process, &Parcel::Role(self.role, to, Box::new(message))),
            None => return Err(Broken(format!("there is no role {to} in this job, which is a defect"))),
        }
        Ok(())
    }

    fn receive(&self, wait: Option<Duration>) -> Result<Option<(Rank, Message)>, Broken> {
        let inbox = lock(&self.inbox);
        receive_from(&inbox, wait).map_err(|_| Broken("the other processes have ended".into()))
    }
}
