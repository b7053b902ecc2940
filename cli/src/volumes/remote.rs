//! Commands for a volume that is mounted are carried out by the process of the mount. This is the
//! side that asks; `respond.rs` is the side of the mount.
//!
//! A request is one line of JSON; the answer is one JSON document with what was printed and the
//! exit status. The socket is in the volume directory, which only its owner may enter. A client
//! that hangs up cancels its command.

use super::address::server_of;
use super::mounts::is_to_be_seen;
use crate::failure::{Failure, Outcome};
use crate::{interrupt, show};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// The socket in the volume directory.
pub const SOCKET: &str = "mount.sock";
/// If a mount does not say within this time whether it is there, it is looked up in the kernel's
/// list.
const PRESENCE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a mount takes at most to say that it has a request for a message at its end.
const ACKNOWLEDGE_TIMEOUT: Duration = Duration::from_secs(10);
/// What the process of a mount or server is asked for.
#[derive(Serialize, Deserialize)]
pub enum Request {
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

/// How a command ended, and what it printed.
#[derive(Serialize, Deserialize)]
pub struct Answer {
    pub status: u8,
    pub output: String,
    pub errors: String,
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
        None if is_to_be_seen(directory) => Presence::Mounted,
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
pub fn forward(volume: &Path, as_json: bool) -> Option<ExitCode> {
    let directory = std::env::current_dir().ok()?.into_os_string();
    let request = Request::Command { directory, arguments: without_own_files(std::env::args_os()) };
    if let Ok(Some(address)) = server_of(volume) {
        return match cluster::command(&address, &serde_json::to_vec(&request).ok()?) {
            Ok(answer) => print(&answer).map(ExitCode::from),
            // It answers, and has another volume.
            Err(why @ fs::Error::Invalid(_)) => Some(show::failure(&why.into(), as_json).into()),
            Err(_) => None,
        };
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

/// Has a command carried out by the mount or server that has the volume open, and returns its
/// answer. None if none answers.
pub fn asked(volume: &Path, arguments: Vec<OsString>) -> Option<Answer> {
    let directory = std::env::current_dir().ok()?.into_os_string();
    let request = Request::Command { directory, arguments: without_own_files(arguments.into_iter()) };
    let answer = match server_of(volume).ok()? {
        Some(address) => match cluster::command(&address, &serde_json::to_vec(&request).ok()?) {
            Ok(answer) => answer,
            Err(why) => {
                let errors = format!("weft: {}\n", Failure::from(why));
                return Some(Answer { status: 1, output: String::new(), errors });
            }
        },
        None => {
            let mut answer = Vec::new();
            ask(volume, &request)?.read_to_end(&mut answer).ok()?;
            answer
        }
    };
    serde_json::from_slice(&answer).ok()
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
