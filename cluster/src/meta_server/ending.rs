//! What a server that gives the volume away, or could not close it, still holds of it: nothing.

use super::company::StandbyProgress;
use super::peers::{Door, PeerAnswer, Ways, What, reply};
use super::post::{Host, Post, PostOptions};
use super::switching::serve;
use super::{Commands, MetaServer, Peer};
use crate::VolumeAddress;
use crate::capability::now_ms;
use fs::label::{Label, Member};
use fs::{Directories, FileSystem, Holder, OpenOptions, Places, Sessions};
use meta::kv::MemoryIndex;
use plan::TargetId;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use volume::Control;
use volume::target::{Faults, Faulty, Memory, Target};
use wire::{Reply, Request, Service};

/// Upper limit for every wait.
const WAIT_TIMEOUT: Duration = Duration::from_secs(120);
/// How long the next server waits for what it needs, until it gives up.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);

/// The post of the test with commands, and whether its long command has begun.
static POST: Mutex<Option<Arc<Post>>> = Mutex::new(None);
static BEGUN: AtomicBool = AtomicBool::new(false);

fn until(what: &str, reached: impl Fn() -> bool) {
    let begun = Instant::now();
    while !reached() {
        assert!(begun.elapsed() < WAIT_TIMEOUT, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Directories that may fail.
#[derive(Debug, Default)]
struct FaultyPlaces(Mutex<Vec<Arc<Faulty>>>);

impl Places for FaultyPlaces {
    fn format(&self, place: &Path) -> fs::Result<Arc<dyn Target>> {
        Directories.format(place)
    }

    fn open(&self, place: &Path) -> fs::Result<Arc<dyn Target>> {
        let target = Arc::new(Faulty::new(Directories.open(place)?));
        self.0.lock().unwrap().push(target.clone());
        Ok(target)
    }

    fn full(&self, place: &Path) -> fs::Result<PathBuf> {
        Directories.full(place)
    }
}

/// A metadata server of a volume on directories, and what it opened last.
struct Serving {
    directory: PathBuf,
    places: Arc<FaultyPlaces>,
    opened: Mutex<Weak<FileSystem>>,
    lines: Mutex<Vec<String>>,
}

impl Host for Serving {
    fn open(&self, _: bool) -> fs::Result<Arc<MetaServer>> {
        let holder = Holder { id: 7, name: "a".into(), address: String::new() };
        let options = OpenOptions { serve: true, places: self.places.clone(), holder, ..OpenOptions::default() };
        let volume = FileSystem::open_volume(&self.directory, options)?;
        *self.opened.lock().unwrap() = Arc::downgrade(&volume);
        Ok(Arc::new(MetaServer::new(Sessions::new(volume, Duration::from_secs(600)), Commands::new(command))))
    }

    fn ready(&self, _: Option<&Peer>) {}

    fn closing(&self) {}

    fn closed(&self) {}

    fn waits(&self, _: &fs::Error, _: Duration) -> bool {
        true
    }

    fn say(&self, line: &str) {
        self.lines.lock().unwrap().push(line.into());
    }
}

/// A process with such a server, and another server `b` that takes the volume when it is free.
struct Lab {
    place: PathBuf,
    host: Arc<Serving>,
    post: Arc<Post>,
    address: String,
}

impl Lab {
    fn new(name: &str) -> Self {
        let place = std::env::temp_dir().join(format!("weft-ending-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&place).unwrap();
        let directory = place.join("volume");
        fs::Create::new("films", "rs:2+1", (0..3).map(|number| place.join(format!("disk{number}"))).collect())
            .run(&directory)
            .unwrap();
        let own = Peer { name: "a".into(), address: "127.0.0.1:1".into() };
        let (places, key) = (Arc::default(), None);
        let options =
            PostOptions { directory: directory.clone(), own, id: 7, places, key, commands: Commands::new(command) };
        let post = Post::new(options).unwrap();
        let (opened, lines) = Default::default();
        let host = Arc::new(Serving { directory, places: Arc::default(), opened, lines });
        let address = serve(Arc::new(post.service()));
        let lab = Self { place, host, post, address };
        let (post, host) = (lab.post.clone(), lab.host.clone());
        std::thread::spawn(move || post.run(&host));
        until("the volume is open", || lab.post.open().is_some());
        lab
    }

    /// The server `b` says that it stands by.
    fn has_successor(&self) {
        let volume = Label::read_pointer(&self.host.directory).unwrap().id().unwrap();
        let successor = Successor { door: Door::new(volume, None), host: self.host.clone() };
        let peer = Peer { name: "b".into(), address: serve(Arc::new(successor)) };
        let heartbeat = What::Heartbeat(StandbyProgress::default());
        let heard = Ways::new(peer, (volume, ""), None).ask(&self.address, heartbeat, WAIT_TIMEOUT).unwrap();
        assert_eq!(heard.refused, None);
    }

    fn end(self) {
        self.post.stop();
        until("the post ends", || Arc::strong_count(&self.host) <= 2);
        std::fs::remove_dir_all(&self.place).unwrap();
    }
}

/// A server that needs the locks of the directories, so that it waits until nothing of what the one
/// before it had open is there.
struct Successor {
    door: Door,
    host: Arc<Serving>,
}

impl Service for Successor {
    async fn call(&self, request: Request) -> Reply {
        let Ok((_, What::TakeOver)) = self.door.open(&request.body, now_ms()) else {
            return reply(&PeerAnswer::default());
        };
        let (begun, opened) = (Instant::now(), self.host.opened.lock().unwrap().clone());
        while opened.strong_count() > 0 && begun.elapsed() < LOCK_TIMEOUT {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let refused = (opened.strong_count() > 0).then(|| "the directories are locked".to_owned());
        reply(&PeerAnswer { holds: refused.is_none(), refused, ..PeerAnswer::default() })
    }
}

fn command(what: &[u8], _: bool, control: &Arc<Control>) -> Vec<u8> {
    let Some(post) = POST.lock().unwrap().clone() else { return Vec::new() };
    if what == b"handover" {
        return format!("{:?}", post.hand_over("b")).into_bytes();
    }
    // As a verification.
    let _volume = post.open().map(|meta| meta.volume().clone());
    BEGUN.store(true, Ordering::SeqCst);
    while control.go_on().is_ok() {
        std::thread::sleep(Duration::from_millis(1));
    }
    b"cancelled".to_vec()
}

/// A command that works on the volume ends, and the one that gives it away is answered. The next
/// server is invited when this one lets the directories go, and not after that server has them.
#[test]
fn a_handover_ends_other_commands_and_has_its_answer() {
    let lab = Lab::new("commands");
    lab.has_successor();
    *POST.lock().unwrap() = Some(lab.post.clone());
    let address = VolumeAddress { servers: vec![lab.address.clone()], volume: "films".into() };
    let (sender, answers) = channel();
    let ask = |what: &'static [u8]| {
        let (address, sender) = (address.clone(), sender.clone());
        std::thread::spawn(move || sender.send(crate::command(&address, what).unwrap()));
        || String::from_utf8(answers.recv_timeout(WAIT_TIMEOUT).unwrap()).unwrap()
    };
    let first = ask(b"verify");
    until("the command works", || BEGUN.load(Ordering::SeqCst));
    let second = ask(b"handover");
    assert_eq!(first(), "cancelled");
    let answer = second();
    assert!(answer.starts_with("Ok("), "{answer}");
    POST.lock().unwrap().take();
    lab.end();
}

/// Somebody still holds what was open, and the server stands by all the same.
#[test]
fn a_volume_that_could_not_be_closed_keeps_no_index_open() {
    let lab = Lab::new("failed");
    lab.has_successor();
    let held = lab.post.open().unwrap().volume().clone();
    for target in &*lab.host.places.0.lock().unwrap() {
        target.set(Faults { unsynced: true, ..Faults::default() });
    }
    let refused = lab.post.hand_over("b").unwrap_err();
    assert!(refused.starts_with("the volume could not be closed"), "{refused}");
    drop(fs::standby_index(&lab.host.directory).unwrap());
    let lines = lab.host.lines.lock().unwrap().join("\n");
    assert!(lines.contains("its index is closed all the same, and this server stands by"), "{lines}");
    drop(held);
    lab.end();
}

/// Tells when it is dropped, and whether that was on a thread of the runtime.
#[derive(Debug)]
struct LastPlace(Sender<bool>);

impl Drop for LastPlace {
    fn drop(&mut self) {
        let _ = self.0.send(Handle::try_current().is_ok());
    }
}

impl Places for LastPlace {
    fn format(&self, place: &Path) -> fs::Result<Arc<dyn Target>> {
        Directories.format(place)
    }

    fn open(&self, place: &Path) -> fs::Result<Arc<dyn Target>> {
        Directories.open(place)
    }

    fn full(&self, place: &Path) -> fs::Result<PathBuf> {
        Directories.full(place)
    }
}

/// A request that was under way has the server last, as when it was given up meanwhile.
#[test]
fn a_volume_is_not_dropped_by_a_thread_that_moves_messages() {
    let member = |number: u16| Member::new(TargetId(number), PathBuf::new());
    let label = Label::new([7; 16], "films", "rs:2+1", 6 << 20, 2, (0..3).map(member).collect());
    let disks: [Arc<Memory>; 3] = Default::default();
    let places = || {
        let place = |(number, disk): (usize, &Arc<Memory>)| (TargetId(number as u16), disk.clone() as Arc<dyn Target>);
        disks.iter().enumerate().map(place).collect::<Vec<_>>()
    };
    FileSystem::create_on(&label, places()).unwrap();
    let (dropped, drops) = channel();
    let options = OpenOptions { serve: true, places: Arc::new(LastPlace(dropped)), ..OpenOptions::default() };
    let volume = FileSystem::open_on(label, places(), Box::new(MemoryIndex::default()), options).unwrap();
    let meta = Arc::new(MetaServer::new(Sessions::new(volume, Duration::from_secs(600)), Commands::new(command)));
    meta.close().unwrap();
    let request = crate::runtime().spawn(async move { drop(meta) });
    crate::runtime().block_on(request).unwrap();
    assert_eq!(drops.recv_timeout(WAIT_TIMEOUT), Ok(false));
}
