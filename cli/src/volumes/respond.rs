//! Answers the requests of other processes (`remote.rs`) in the process that has the volume open.

use super::hosted::{Hosted, elsewhere, served, standing_by, under};
use super::paths::begin_at;
use super::remote::{Answer, Request, SOCKET};
use crate::failure::{Failure, Outcome};
use crate::{commands, interrupt, parse, show, spelling};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use volume::{Control, Shown, lock, unpoisoned};

/// No request is longer.
const MAX_REQUEST: u64 = 4 << 20;

/// The clients that are being answered.
#[derive(Default)]
struct Clients {
    working: Vec<Arc<Control>>,
    waiting: Vec<UnixStream>,
    ending: bool,
}

struct Requests {
    volume: Arc<Hosted>,
    /// Whether the mount is still to be seen.
    is_mounted: Box<dyn Fn() -> bool + Send + Sync>,
    clients: Mutex<Clients>,
    idle: Condvar,
}

impl Requests {
    fn clients(&self) -> MutexGuard<'_, Clients> {
        lock(&self.clients)
    }
}

/// Serves until it is dropped.
pub struct Served {
    path: PathBuf,
    requests: Arc<Requests>,
}

impl Served {
    /// Accepts no more commands, stops those in progress, and waits until they have ended.
    pub fn stop(&self) {
        let _ = std::fs::remove_file(&self.path);
        let mut clients = self.requests.clients();
        clients.ending = true;
        clients.working.iter().for_each(|control| control.cancel());
        while !clients.working.is_empty() {
            clients = unpoisoned(self.requests.idle.wait(clients));
        }
    }

    /// Stops the commands in progress.
    pub fn interrupt(&self) {
        self.requests.clients().working.iter().for_each(|control| control.cancel());
    }

    /// Tells the clients that wait for the end how it went.
    pub fn ended(&self, outcome: &Outcome) {
        let (status, errors) = match outcome {
            Ok(()) => (0, String::new()),
            Err(why) => (1, format!("weft: {why}\n")),
        };
        for stream in std::mem::take(&mut self.requests.clients().waiting) {
            // A client that no longer listens need not know.
            let _ = send(&stream, &Answer { status, output: String::new(), errors: errors.clone() });
        }
    }
}

/// Answers requests in the background. Without a socket the mount works all the same. `is_mounted`
/// says whether the mount is still visible; if not, its process ends.
pub fn serve(
    directory: &Path,
    volume: Arc<Hosted>,
    is_mounted: impl Fn() -> bool + Send + Sync + 'static,
) -> Option<Served> {
    let path = directory.join(SOCKET);
    // A socket that exists was left by a process that is gone: this one has the lock of the volume.
    let _ = std::fs::remove_file(&path);
    let listener = match UnixListener::bind(&path) {
        Ok(listener) => listener,
        Err(why) => {
            show::warning(format_args!("commands cannot reach this mount: {}: {why}", Shown(&path)));
            return None;
        }
    };
    // Only its owner may ask.
    let _ = std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600));
    let requests = Arc::new(Requests {
        volume,
        is_mounted: Box::new(is_mounted),
        clients: Mutex::default(),
        idle: Condvar::new(),
    });
    let served = Served { path, requests: requests.clone() };
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let requests = requests.clone();
            std::thread::spawn(move || _ = answer(stream, &requests));
        }
    });
    Some(served)
}

fn answer(stream: UnixStream, requests: &Requests) -> std::io::Result<()> {
    let mut line = String::new();
    BufReader::new((&stream).take(MAX_REQUEST)).read_line(&mut line)?;
    let (directory, arguments) = match serde_json::from_str(&line)? {
        Request::Command { directory, arguments } => (directory, arguments),
        Request::End => {
            let mut clients = requests.clients();
            // The request is here, so the mount may end. Spaces before an answer mean nothing.
            (&stream).write_all(b" ")?;
            clients.waiting.push(stream);
            return Ok(());
        }
        Request::Mounted => {
            let ends = requests.clients().ending || !(requests.is_mounted)();
            return send(&stream, &Answer { status: ends.into(), output: String::new(), errors: String::new() });
        }
    };
    let control = Arc::<Control>::default();
    {
        let mut clients = requests.clients();
        if clients.ending {
            let errors = "weft: the volume is being unmounted\n".into();
            return send(&stream, &Answer { status: 1, output: String::new(), errors });
        }
        clients.working.push(control.clone());
    }
    let watched = stream.try_clone()?;
    let cancelled = control.clone();
    std::thread::spawn(move || {
        // Nothing more comes from a client; this returns when it is gone.
        let _ = (&watched).read(&mut [0]);
        cancelled.cancel();
    });
    // A client that reaches this socket owns the volume directory.
    let done = carry_out_for(&requests.volume, directory, arguments, true, &control);
    let sent = send(&stream, &done);
    requests.clients().working.retain(|other| !Arc::ptr_eq(other, &control));
    requests.idle.notify_all();
    sent
}

/// Carries out a command that was given elsewhere, by an operator or not.
pub fn carry_out_for(
    volume: &Arc<Hosted>,
    directory: OsString,
    arguments: Vec<OsString>,
    operator: bool,
    control: &Arc<Control>,
) -> Answer {
    begin_at(directory.into());
    // Even after a panic, the client gets an answer and the mount goes on.
    let work = || interrupt::under(control.clone(), || show::captured(|| carry_out(arguments, operator)));
    let (done, stands_by) = under(volume, || {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        (done, standing_by().is_some())
    });
    let (status, output, mut errors) = done.unwrap_or_else(|_| {
        (1, String::new(), "weft: a defect in the process that has the volume, see its log\n".into())
    });
    if status == interrupt::INTERRUPTED && stands_by {
        errors.push_str("weft: this metadata server gave the volume away, or ends: give the command again\n");
    }
    Answer { status, output, errors }
}

/// Answers a request that came over the network. The directory in which it was given means nothing
/// on this machine.
pub fn respond(volume: &Arc<Hosted>, request: &[u8], operator: bool, control: &Arc<Control>) -> Vec<u8> {
    let answer = match serde_json::from_slice(request) {
        Ok(Request::Command { arguments, .. }) => carry_out_for(volume, OsString::new(), arguments, operator, control),
        _ => Answer {
            status: 1,
            output: String::new(),
            errors: "weft: a request that the server does not understand\n".into(),
        },
    };
    serde_json::to_vec(&answer).unwrap_or_default()
}

fn carry_out(arguments: Vec<OsString>, operator: bool) -> u8 {
    let commands = commands();
    let arguments = spelling::today(&commands, arguments);
    match parse(commands, arguments).map(|(arguments, _)| arguments) {
        Ok(arguments) if !operator && arguments.command.is_for_operators() => {
            let what = "only an operator may do that: give --identity of one (weft cluster init DIR --operator NAME)";
            show::failure(&Failure::Other(what.into()), arguments.json)
        }
        Ok(arguments) if standing_by().is_some() && !arguments.command.works_on_standby() => {
            show::failure(&Failure::Other(elsewhere()), arguments.json)
        }
        // The client's files are not on this machine.
        Ok(arguments) if arguments.command.works_on_mounted() => crate::run(arguments),
        Ok(arguments) => {
            let place = served().map_or_else(|| "in use".into(), |served| served.place.clone());
            let what = format!("the volume is {place}");
            show::failure(&Failure::Other(what), arguments.json)
        }
        // Only a client of another version gives arguments that cannot be read here.
        Err(why) => {
            let why = why.to_string();
            let what = format!("the mount does not understand: {}", why.lines().next().unwrap_or_default());
            show::failure(&Failure::Usage(what), false)
        }
    }
}

fn send(mut stream: &UnixStream, answer: &Answer) -> std::io::Result<()> {
    let sent = stream.write_all(&serde_json::to_vec(answer)?);
    let _ = stream.shutdown(Shutdown::Both);
    sent
}
