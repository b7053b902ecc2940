//! `weft-mpi`: moves messages between the processes of a job by MPI. Only the first thread of each
//! process calls MPI: an MPI library without support for threads promises no more, and so only one
//! place waits. It never waits inside MPI, because that takes a whole core and would falsify time
//! and energy. It polls, and sleeps longer each time there is nothing, up to a millisecond.
#![forbid(unsafe_code)]

use archive::transport::Broken;
use clap::error::ErrorKind;
use cli::archiving::{control, failure};
use mpi::Threading;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, Destination, Equivalence, Source};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};
use weft_mpi::command::Arguments;
use weft_mpi::layout::{LEADER, Process};
use weft_mpi::process_message::ProcessMessage;
use weft_mpi::router::{Outgoing, Router};
use weft_mpi::{follow, lead};

/// The tag of all messages.
const TAG: i32 = 7;
/// Messages that are on their way at once.
const MAX_SENDING_MESSAGES: usize = 64;
/// No message is longer.
const MAX_MESSAGE_BYTES: usize = 1 << 30;
/// Between two looks, when there was something a moment ago, and when there was nothing for long.
const MIN_POLL_INTERVAL: Duration = Duration::from_micros(5);
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(1);

fn main() -> ExitCode {
    let read = Arguments::read(std::env::args_os());
    let Some((universe, level)) = mpi::initialize_with_threading(Threading::Funneled) else {
        eprintln!("weft-mpi: MPI was begun already");
        return ExitCode::FAILURE;
    };
    let world = universe.world();
    let me = world.rank() as Process;
    let arguments = match read {
        Ok(arguments) => arguments,
        Err(why) => return ExitCode::from(if me == LEADER { print_usage(&why) } else { 0 }),
    };
    if level < Threading::Funneled {
        give_up(&world, &Broken("this MPI library was built without any support for threads".into()));
    }
    let host = mpi::environment::processor_name().unwrap_or_else(|_| "an unnamed node".into());
    ExitCode::from(take_part(&world, me, arguments, &host))
}

/// Prints the help, or what is wrong with the arguments. Returns the exit status.
fn print_usage(why: &clap::Error) -> u8 {
    let _ = why.print();
    if matches!(why.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) { 0 } else { 2 }
}

/// The life of this process. Returns its exit status, which is that of the job at the leader.
fn take_part(world: &SimpleCommunicator, me: Process, arguments: Arguments, host: &str) -> u8 {
    let (router, outgoing, mail) = Router::new(me, world.size() as u32, control(false));
    let body = std::thread::spawn({
        let (router, host) = (router.clone(), host.to_owned());
        move || {
            if me != LEADER {
                follow(&router, &mail, &arguments, &host);
                return 0;
            }
            let status =
                lead(&router, &mail, &arguments, &host).map_or_else(|why| failure(&why, arguments.json), |()| 0);
            router.send_all(&ProcessMessage::End);
            status
        }
    });
    move_messages(world, &router, &outgoing, || body.is_finished());
    body.join().unwrap_or_else(|_| give_up(world, &Broken(format!("rank {me} on {host} panicked, which is a defect"))))
}

/// Ends all processes at once: nothing else can be done.
fn give_up(world: &SimpleCommunicator, why: &Broken) -> ! {
    eprintln!("weft-mpi: {why}");
    world.abort(1)
}

/// Moves messages until the life of this process has ended and all that it sent is on its way.
fn move_messages(world: &SimpleCommunicator, router: &Arc<Router>, outgoing: &Outgoing, ended: impl Fn() -> bool) {
    let mut pause = MIN_POLL_INTERVAL;
    loop {
        // Asked first, so that what was sent before the end is in the queue.
        let ended = ended();
        let mut batch: Vec<_> = outgoing.try_iter().take(MAX_SENDING_MESSAGES).collect();
        if batch.is_empty() {
            if ended {
                return;
            }
            if look(world, router) {
                pause = MIN_POLL_INTERVAL;
                continue;
            }
            match outgoing.recv_timeout(pause) {
                Ok(process_message) => batch.push(process_message),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    pause = (2 * pause).min(MAX_POLL_INTERVAL);
                    continue;
                }
            }
        }
        send(world, router, &batch);
        pause = MIN_POLL_INTERVAL;
    }
}

/// Sends, and receives meanwhile, until all of it is on its way.
fn send(world: &SimpleCommunicator, router: &Arc<Router>, batch: &[(Process, Vec<u8>)]) {
    mpi::request::scope(|scope| {
        let to = |process: Process| world.process_at_rank(process as i32);
        let begun = batch.iter().map(|(process, bytes)| to(*process).immediate_send_with_tag(scope, &bytes[..], TAG));
        let mut open: Vec<_> = begun.collect();
        let mut pause = MIN_POLL_INTERVAL;
        loop {
            open = open.into_iter().filter_map(|request| request.test().err()).collect();
            if open.is_empty() {
                return;
            }
            if look(world, router) {
                pause = MIN_POLL_INTERVAL;
            } else {
                std::thread::sleep(pause);
                pause = (2 * pause).min(MAX_POLL_INTERVAL);
            }
        }
    });
}

/// Takes what has arrived. Returns whether there was anything.
fn look(world: &SimpleCommunicator, router: &Arc<Router>) -> bool {
    let mut any = false;
    router.tick(Instant::now()).unwrap_or_else(|why| give_up(world, &why));
    while let Some((message, status)) = world.any_process().immediate_matched_probe_with_tag(TAG) {
        let length = usize::try_from(status.count(u8::equivalent_datatype())).unwrap_or(usize::MAX);
        if length > MAX_MESSAGE_BYTES {
            give_up(world, &Broken(format!("rank {} sent {length} bytes at once", status.source_rank())));
        }
        let mut bytes = vec![0u8; length];
        message.matched_receive_into(&mut bytes[..]);
        router.deliver(status.source_rank() as Process, &bytes).unwrap_or_else(|why| give_up(world, &why));
        any = true;
    }
    any
}
