//! Commands for a volume that is mounted are carried out by the process of the mount.
//!
//! A request is one line of JSON, the list of the command's arguments; the answer is one JSON document with what it printed and its exit status. The socket
//! is in the volume directory, which only its owner may enter.

use crate::{Arguments, show};
use clap::Parser;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The socket in the volume directory.
const SOCKET: &str = "mount.sock";
/// No request is longer.
const MAX_REQUEST: u64 = 1 << 20;

#[derive(Serialize, Deserialize)]
struct Answer {
    status: u8,
    output: String,
    errors: String,
}

/// Serves until it is dropped.
pub struct Served(PathBuf);

impl Drop for Served {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Answers requests in the background. Without a socket the mount works all the same.
pub fn serve(volume: &Path) -> Option<Served> {
    let path = volume.join(SOCKET);
    // One that is there was left by a process that is gone: the volume is locked by this one.
    let _ = std::fs::remove_file(&path);
    let listener = match UnixListener::bind(&path) {
        Ok(listener) => listener,
        Err(why) => {
            show::warning(format_args!("commands cannot reach this mount: {}: {why}", volume::Shown(&path)));
            return None;
        }
    };
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || _ = answer(stream));
        }
    });
    Some(Served(path))
}

fn answer(mut stream: UnixStream) -> std::io::Result<()> {
    let mut line = String::new();
    BufReader::new(stream.try_clone()?.take(MAX_REQUEST)).read_line(&mut line)?;
    let arguments: Vec<String> = serde_json::from_str(&line)?;
    let (status, output, errors) = show::captured(|| match Arguments::try_parse_from(arguments) {
        Ok(arguments) if arguments.command.works_on_mounted() => crate::run(arguments),
        Ok(_) => {
            show::error("the volume is mounted; use the mount point, or unmount it first");
            1
        }
        Err(why) => {
            show::error(why);
            2
        }
    });
    stream.write_all(&serde_json::to_vec(&Answer { status, output, errors })?)
}

/// Has this process's command carried out by the mount of a volume. None when there is none that answers.
pub fn forward(volume: &Path) -> Option<ExitCode> {
    let mut stream = UnixStream::connect(volume.join(SOCKET)).ok()?;
    let arguments: Vec<String> = std::env::args_os().map(|a| a.into_string().ok()).collect::<Option<_>>()?;
    let mut request = serde_json::to_vec(&absolute(arguments)).ok()?;
    request.push(b'\n');
    stream.write_all(&request).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let answer: Answer = serde_json::from_slice(&answer).ok()?;
    let _ = std::io::stdout().write_all(answer.output.as_bytes());
    let _ = std::io::stderr().write_all(answer.errors.as_bytes());
    Some(ExitCode::from(answer.status))
}

/// The arguments with paths that do not depend on this process's directory.
fn absolute(arguments: Vec<String>) -> Vec<String> {
    let mut arguments = arguments.into_iter();
    let program = arguments.next();
    let rest = arguments.map(|argument| {
        if argument.starts_with('-') || !Path::new(&argument).exists() {
            return argument;
        }
        let path = std::path::absolute(&argument).ok();
        path.and_then(|path| path.into_os_string().into_string().ok()).unwrap_or(argument)
    });
    program.into_iter().chain(rest).collect()
}
