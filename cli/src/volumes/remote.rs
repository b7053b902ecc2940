//! Commands for a volume that is mounted are carried out by the process of the mount.
//!
//! A request is one line of JSON; the answer is one JSON document with what was printed and the
//! exit status. The socket is in the volume directory, which only its owner may enter. A client
//! that hangs up cancels its command.

use super::{seat, served};
use crate::failure::{Failure, Outcome};
use crate::{commands, interrupt, parse, show, spelling};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use volume::{Control, Shown};

/// The socket in the volume directory.
pub const SOCKET: &str = "mount.sock";
/// If a mount does not say within this time whether it is there, it is looked up in the kernel's
/// list.
const PRESENCE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a mount takes at most to say that it has a request for a message at its end.
const ACKNOWLEDGE_TIMEOUT: Duration = Duration::from_secs(10);
/// No request is longer.
const MAX_REQUEST: u64 = 4 << 20;

#[derive(Serialize, Deserialize)]
enum Request {
    /// Carry out a command.
    Command {
        /// Where it was given: relative paths begin there.
        directory: OsString,
        /// All its arguments.
        arguments: Vec<OsString>,
    },
    /// Answer when the mount has ended, with how it ended.
    End,
    /// Answer whether it is still visible: with status 0, or 1 if it ends.
    Mounted,
}

#[derive(Serialize, Deserialize)]
struct Answer {
    status: u8,
    output: String,
    errors: String,
}

thread_local! {
    /// Where the command that this thread carries out was given.
    static DIRECTORY: RefCell<PathBuf> = RefCell::default();
}

/// A path of the command line, which does not depend on the directory of this process.
pub fn resolve(path: &Path) -> PathBuf {
    DIRECTORY.with_borrow(|directory| directory.join(path))
}

/// The clients that are being answered.
#[derive(Default)]
struct Clients {
    working: Vec<Arc<Control>>,
    waiting: Vec<UnixStream>,
    ending: bool,
}

struct Requests {
    /// Whether the mount is still to be seen.
    is_mounted: Box<dyn Fn() -> bool + Send + Sync>,
    clients: Mutex<Clients>,
    idle: Condvar,
}

impl Requests {
    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
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
            clients = self.requests.idle.wait(clients).unwrap_or_else(PoisonError::into_inner);
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
pub fn serve(volume: &Path, is_mounted: impl Fn() -> bool + Send + Sync + 'static) -> Option<Served> {
    let path = volume.join(SOCKET);
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
    let requests = Requests { is_mounted: Box::new(is_mounted), clients: Mutex::default(), idle: Condvar::new() };
    let requests = Arc::new(requests);
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
    let done = carry_out_for(directory, arguments, true, &control);
    let sent = send(&stream, &done);
    requests.clients().working.retain(|other| !Arc::ptr_eq(other, &control));
    requests.idle.notify_all();
    sent
}

/// Carries out a command that was given elsewhere, by an operator or not.
fn carry_out_for(directory: OsString, arguments: Vec<OsString>, operator: bool, control: &Arc<Control>) -> Answer {
    DIRECTORY.set(directory.into());
    // Even after a panic, the client gets an answer and the mount goes on.
    let work = || interrupt::under(control.clone(), || show::captured(|| carry_out(arguments, operator)));
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    let (status, output, errors) = done.unwrap_or_else(|_| {
        (1, String::new(), "weft: a defect in the process that has the volume, see its log\n".into())
    });
    Answer { status, output, errors }
}

/// Answers a request that came over the network. The directory in which it was given means nothing
/// on this machine.
pub fn respond(request: &[u8], operator: bool, control: &Arc<Control>) -> Vec<u8> {
    let answer = match serde_json::from_slice(request) {
        Ok(Request::Command { arguments, .. }) => carry_out_for(OsString::new(), arguments, operator, control),
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
            Failure::Other(what.into()).report(arguments.json)
        }
        Ok(arguments) if seat::standing_by().is_some() && !arguments.command.works_on_standby() => {
            Failure::Other(seat::elsewhere()).report(arguments.json)
        }
        // The client's files are not on this machine.
        Ok(arguments) if arguments.command.works_on_mounted() => crate::run(arguments),
        Ok(arguments) => {
            let place = served().map_or_else(|| "in use".into(), |served| served.place.clone());
            let what = format!("the volume is {place}");
            Failure::Other(what).report(arguments.json)
        }
        // Only a client of another version gives arguments that cannot be read here.
        Err(why) => {
            let why = why.to_string();
            Failure::Usage(format!("the mount does not understand: {}", why.lines().next().unwrap_or_default()))
                .report(false)
        }
    }
}

fn send(mut stream: &UnixStream, answer: &Answer) -> std::io::Result<()> {
    let sent = stream.write_all(&serde_json::to_vec(answer)?);
    let _ = stream.shutdown(Shutdown::Both);
    sent
}

/// What is known of the mount of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It is there, and carries commands out.
    Mounted,
    /// It is no longer visible, and its process commits what it has.
    Ending,
    /// Nobody answers.
    Gone,
}

/// Whether there is a mount of a volume, by what is in its directory.
pub fn presence(directory: &Path) -> Presence {
    let Some(mut stream) = ask(directory, &Request::Mounted) else { return Presence::Gone };
    let mut answer = Vec::new();
    // A mount that is stopped or very busy does not answer for now.
    let _ = stream.set_read_timeout(Some(PRESENCE_TIMEOUT));
    match stream.read_to_end(&mut answer).ok().and_then(|_| serde_json::from_slice(&answer).ok()) {
        Some(Answer { status: 0, .. }) => Presence::Mounted,
        Some(_) => Presence::Ending,
        None if super::mount::is_to_be_seen(directory) => Presence::Mounted,
        None => Presence::Ending,
    }
}

/// Sends a request to the mount of a volume; None if no mount answers.
fn ask(volume: &Path, request: &Request) -> Option<UnixStream> {
    let mut stream = UnixStream::connect(volume.join(SOCKET)).ok()?;
    let mut bytes = serde_json::to_vec(request).ok()?;
    bytes.push(b'\n');
    stream.write_all(&bytes).ok()?;
    Some(stream)
}

/// Prints what the mount answers, and returns the exit status.
fn receive(mut stream: UnixStream) -> Option<u8> {
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    print(&answer)
}

/// Prints an answer, and returns the exit status.
fn print(answer: &[u8]) -> Option<u8> {
    let answer: Answer = serde_json::from_slice(answer).ok()?;
    let _ = std::io::stderr().write_all(answer.errors.as_bytes());
    match std::io::stdout().write_all(answer.output.as_bytes()).and_then(|()| std::io::stdout().flush()) {
        Ok(()) => Some(answer.status),
        Err(_) => Some(1),
    }
}

/// A command without the options that name files of this process: the process that carries it out
/// has its own.
fn without_own_files(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    const OWN: [&str; 2] = ["--identity", "--config"];
    let (mut kept, mut skips, mut all) = (Vec::new(), false, false);
    for argument in arguments {
        let text = argument.to_str().unwrap_or_default();
        let is_own = !all && OWN.contains(&text);
        let has_value = !all && OWN.iter().any(|own| text.strip_prefix(own).is_some_and(|rest| rest.starts_with('=')));
        all |= text == "--";
        if !std::mem::replace(&mut skips, is_own) && !is_own && !has_value {
            kept.push(argument);
        }
    }
    kept
}

/// Has this process's command carried out by the mount or server that has the volume open. None if
/// none answers.
pub fn forward(volume: &Path) -> Option<ExitCode> {
    let directory = std::env::current_dir().ok()?.into_os_string();
    let request = Request::Command { directory, arguments: without_own_files(std::env::args_os()) };
    if let Ok(Some(address)) = super::server_of(volume) {
        let answer = cluster::command(&address, &serde_json::to_vec(&request).ok()?).ok()?;
        return print(&answer).map(ExitCode::from);
    }
    let stream = ask(volume, &request)?;
    // The mount notices that this process is gone, and cleans up.
    interrupt::control(true);
    let status = receive(stream).unwrap_or_else(|| {
        show::error("the mount of the volume ended before the command was done");
        1
    });
    Some(ExitCode::from(status))
}

/// The end of a mount, for which one can wait.
pub struct End(UnixStream);

/// Asks for a message at the end of the mount of a volume. The mount has the request when this
/// returns, unless it is of an earlier version, which does not say so. None if no mount answers.
pub fn end_of(volume: &Path) -> Option<End> {
    let mut stream = ask(volume, &Request::End)?;
    stream.set_read_timeout(Some(ACKNOWLEDGE_TIMEOUT)).ok()?;
    let _ = stream.read(&mut [0]);
    stream.set_read_timeout(None).ok()?;
    Some(End(stream))
}

impl End {
    /// Waits until the mount has committed everything and ended.
    pub fn wait(self) -> Outcome {
        match receive(self.0) {
            Some(0) => Ok(()),
            Some(_) => Err(Failure::Found),
            None => Err(Failure::Other("the mount ended without a word; what was not synced may be lost".into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_files_stay_here() {
        let left = |line: &str| {
            let kept = without_own_files(line.split(' ').map(OsString::from));
            kept.iter().map(|argument| argument.to_str().unwrap().to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(left("weft status v --identity a/b --json"), "weft status v --json");
        assert_eq!(left("weft --identity=a --config=b --config c status v"), "weft status v");
        assert_eq!(left("weft status -- --identity v"), "weft status -- --identity v");
        assert_eq!(left("weft status --identitys v"), "weft status --identitys v");
    }
}
