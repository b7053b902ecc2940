//! Starts all processes of these tests, from a thread that has no files of mounts and no pipes.
//!
//! A process that starts another one hands it all open files until the new one executes its
//! program, which closes them. To close a file of a mount means to wait until the mount has
//! committed it. A test that started a metadata server while its files were open would make the
//! server wait for itself. And a reader of a pipe does not see its end while another process has a
//! copy.

use crate::scratch::Ended;
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex, mpsc};

/// A command, the files for what it says on its two outputs, and where to send the process.
type Order = (Command, PathBuf, PathBuf, mpsc::Sender<io::Result<Child>>);

static STARTER: LazyLock<Mutex<mpsc::Sender<Order>>> = LazyLock::new(|| {
    let (sender, orders) = mpsc::channel::<Order>();
    std::thread::spawn(move || {
        // SAFETY: the thread opens and closes its files in `launch`, and neither gets any from
        // other threads nor gives them any: a child has no pipes.
        unsafe { unshare_unsafe(UnshareFlags::FILES) }.expect("a thread can have a table of files of its own");
        close_copies();
        for (command, output, errors, started) in orders {
            let _ = started.send(launch(command, &output, &errors));
        }
    });
    Mutex::new(sender)
});

/// Closes the copies of files that others had open just then: as long as there is one of a pipe,
/// its reader does not see its end.
fn close_copies() {
    let listed = std::fs::read_dir("/proc/thread-self/fd").expect("the open files of a thread are listed");
    let numbers = listed.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let mut copies: Vec<i32> = numbers.filter(|&number: &i32| number > 2).collect();
    // The one that listed them is closed by now.
    copies.retain(|number| std::fs::symlink_metadata(format!("/proc/thread-self/fd/{number}")).is_ok());
    for number in copies {
        // SAFETY: the table is this thread's own and unused so far, so no code has the number of
        // anything in it.
        unsafe { rustix::io::close(number) };
    }
}

fn launch(mut command: Command, output: &Path, errors: &Path) -> io::Result<Child> {
    let errors = File::options().create(true).append(true).open(errors)?;
    command.stdin(Stdio::null()).stdout(File::create(output)?).stderr(errors).spawn()
}

/// Starts a process. Its standard output is in a new file, what it says on the other one behind
/// what is there. To be called before there is a mount once.
pub fn start(command: Command, output: &Path, errors: &Path) -> io::Result<Child> {
    let (sender, started) = mpsc::channel();
    STARTER.lock().unwrap().send((command, output.into(), errors.into(), sender)).expect("the starter lives");
    started.recv().expect("the starter answers")
}

/// Runs a command to its end.
pub fn run(command: &mut Command) -> Ended {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let said = |what| std::env::temp_dir().join(format!("weft-test-{}-{number}.{what}", std::process::id()));
    let (output, errors) = (said("output"), said("errors"));
    // Commands cannot be copied, and this one is no longer needed.
    let command = std::mem::replace(command, Command::new("true"));
    let status = start(command, &output, &errors).and_then(|mut child| child.wait()).expect("it runs");
    let [output, errors] = [output, errors].map(|path| {
        let said = fs::read(&path).unwrap();
        fs::remove_file(path).unwrap();
        said
    });
    Ended::new(status, output, &errors)
}
