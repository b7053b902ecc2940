//! A process that is not the leader: it does what the leader says, and prints nothing.

use crate::command::Arguments;
use crate::layout::LEADER;
use crate::metadata::Line;
use crate::process_message::{ProcessMessage, Setup};
use crate::router::{Mail, Router};
use crate::run::{Relay, RoleContext, close, context, introduce, open_here, run};
use archive::clock::process_seconds;
use archive::roles::Reporter;
use archive::transport::{Broken, REPORTER};
use cli::archiving::Failure;
use fs::FileSystem;
use std::sync::Arc;

/// Follows the leader until it says that there is nothing more.
pub fn follow(router: &Arc<Router>, mail: &Mail, arguments: &Arguments, host: &str) {
    router.send(LEADER, &ProcessMessage::Hello(env!("CARGO_PKG_VERSION").into(), host.into()));
    // Only the leader sends anything here, and only these two.
    for (_, process_message) in mail {
        match process_message {
            ProcessMessage::Setup(setup) => take_part(router, &setup, arguments, host),
            _ => return,
        }
    }
}

fn take_part(router: &Arc<Router>, setup: &Setup, arguments: &Arguments, host: &str) {
    let cpu = process_seconds();
    router.begin(setup.layout.clone(), None);
    let me = router.me();
    let opened = setup.layout.touches_files(me).then(|| open(router, setup, arguments));
    let (volume, context) = match opened {
        Some(Ok((volume, context))) => (Some(volume), Ok(context)),
        Some(Err(why)) => (None, Err(format!("rank {me} on {host}: {why}"))),
        None => (None, Err("it touches no files".into())),
    };
    let reports = setup.layout.process_of(REPORTER) == Some(me);
    let reporter = reports.then(|| Reporter::new(setup.layout.crew(), setup.facts.clone(), Relay(router)));
    let reporter = run(router, setup, &context, None, reporter);
    if let Some(reporter) = reporter {
        let (facts, broken) = reporter.into_facts(router.control());
        router.send(LEADER, &ProcessMessage::Facts(Box::new(facts), broken));
    }
    let synced = match &context {
        Ok(RoleContext::Restore { restoring, .. }) => restoring.sync().err().map(|Broken(why)| why),
        _ => None,
    };
    drop(context);
    let mut farewell = close(volume, cpu);
    farewell.trouble = farewell.trouble.or(synced).map(|why| format!("rank {me} on {host}: {why}"));
    router.send(LEADER, &ProcessMessage::Farewell(farewell));
}

fn open(router: &Arc<Router>, setup: &Setup, arguments: &Arguments) -> Result<(Arc<FileSystem>, RoleContext), Failure> {
    introduce(arguments)?;
    let volume = open_here(&Line::to_leader(router), setup)?;
    router.opened(&volume);
    let context = context(&volume, router, setup, arguments, None)?;
    Ok((volume, context))
}
