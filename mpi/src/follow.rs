//! A process that is not the leader: it does what the leader says, and prints nothing.

use crate::command::Arguments;
use crate::layout::LEADER;
use crate::metadata::Line;
use crate::office::{Mail, Office};
use crate::parcel::{Parcel, Setup};
use crate::play::{Hands, Relay, close, introduce, open_here, play};
use archive::clock::process_seconds;
use archive::roles::Reporter;
use archive::transport::REPORTER;
use cli::archiving::Failure;
use fs::FileSystem;
use std::sync::Arc;

/// Follows the leader until it says that there is nothing more.
pub fn follow(office: &Arc<Office>, mail: &Mail, arguments: &Arguments, host: &str) {
    office.send(LEADER, &Parcel::Hello(env!("CARGO_PKG_VERSION").into(), host.into()));
    // Only the leader sends anything here, and only these two.
    for (_, parcel) in mail {
        match parcel {
            Parcel::Setup(setup) => take_part(office, &setup, arguments, host),
            _ => return,
        }
    }
}

fn take_part(office: &Arc<Office>, setup: &Setup, arguments: &Arguments, host: &str) {
    let cpu = process_seconds();
    office.begin(setup.layout.clone(), None);
    let me = office.me();
    let opened = setup.layout.touches_files(me).then(|| open(office, setup, arguments));
    let (volume, hands) = match opened {
        Some(Ok((volume, hands))) => (Some(volume), Ok(hands)),
        Some(Err(why)) => (None, Err(format!("rank {me} on {host}: {why}"))),
        None => (None, Err("it touches no files".into())),
    };
    let reports = setup.layout.process_of(REPORTER) == Some(me);
    let reporter = reports.then(|| Reporter::new(setup.layout.crew(), setup.facts.clone(), Relay(office)));
    let reporter = play(office, setup, &hands, None, reporter);
    if let Some(reporter) = reporter {
        let (facts, broken) = reporter.into_facts(office.control());
        office.send(LEADER, &Parcel::Facts(Box::new(facts), broken));
    }
    drop(hands);
    let mut farewell = close(volume, cpu);
    farewell.trouble = farewell.trouble.map(|why| format!("rank {me} on {host}: {why}"));
    office.send(LEADER, &Parcel::Farewell(farewell));
}

fn open(office: &Arc<Office>, setup: &Setup, arguments: &Arguments) -> Result<(Arc<FileSystem>, Hands), Failure> {
    introduce(arguments)?;
    let options = arguments.archive().options(setup.layout.crew(), setup.update)?;
    let volume = open_here(&Line::to_leader(office), setup)?;
    office.opened(&volume);
    let hands = Hands::new(&volume, office, setup, options);
    Ok((volume, hands))
}
