//! The metadata servers of a volume in `weft status`: which one has it, which stand by, and how
//! far these are behind.

use crate::failure::{Failure, Outcome};
use crate::show;
use cluster::meta_server::{StandbyProgress, Standing, Standings};
use plan::TxId;
use serde_json::{Value, json};

/// How far a standby is behind, in words; empty if that is nothing or not known.
fn behind(progress: &StandbyProgress, last: TxId) -> String {
    match progress.applied.map(|applied| last.since(applied)) {
        None | Some(0) => String::new(),
        Some(behind) => format!(", {} behind", show::count(behind as usize, "transaction")),
    }
}

/// How a standby is, in words.
fn words(standing: &Standing, last: TxId) -> String {
    match (standing.is_up(), standing.heard) {
        (true, _) => format!("stands by{}", behind(&standing.progress, last)),
        (false, Some(ago)) => format!("SILENT for {}", show::time(ago)),
        (false, None) => "SILENT".into(),
    }
}

/// One line for the summary; None for a server that is alone.
pub fn line(standings: &Standings) -> Option<String> {
    if standings.others.is_empty() {
        return None;
    }
    let others = standings.others.iter().map(|one| format!("{} {}", one.peer.name, words(one, standings.last)));
    Some(format!("{} has the volume; {}", standings.own.name, others.collect::<Vec<_>>().join("; ")))
}

/// A line for each.
pub fn print(standings: &Standings) -> Outcome {
    show::text(format_args!("  server {}  {}  has the volume", standings.own.name, standings.own.address))?;
    standings.others.iter().try_for_each(|one| {
        show::text(format_args!("  server {}  {}  {}", one.peer.name, one.peer.address, words(one, standings.last)))
    })
}

/// The same for JSON.
pub fn document(standings: &Standings) -> Value {
    let holder = standings.holder.as_ref();
    let own = json!({
        "name": standings.own.name,
        "address": standings.own.address,
        "holder": holder == Some(&standings.own),
        "up": true,
    });
    let others = standings.others.iter().map(|one| {
        json!({
            "name": one.peer.name,
            "address": one.peer.address,
            "holder": holder == Some(&one.peer),
            "up": one.is_up(),
            "heard_seconds_ago": one.heard.map(|ago| ago.as_secs_f64()),
            "transactions_behind": one.progress.applied.map(|applied| standings.last.since(applied)),
        })
    });
    [own].into_iter().chain(others).collect()
}

/// What a standby tells of itself. Exit status 1 if no server has the volume.
pub fn of_standby(standings: &Standings, as_json: bool) -> Outcome {
    let holder = standings.holder.as_ref();
    if as_json {
        let holder = holder.map(|holder| json!({ "name": holder.name, "address": holder.address }));
        let behind = standings.progress.applied.map(|applied| standings.last.since(applied));
        show::json(&json!({
            "standby": true,
            "name": standings.own.name,
            "address": standings.own.address,
            "holder": holder,
            "transactions_behind": behind,
            "servers": document(standings),
        }))?;
    } else {
        let has = holder.map_or_else(
            || "NOBODY has the volume".into(),
            |holder| format!("{} has the volume, at {}", holder.name, holder.address),
        );
        let behind = behind(&standings.progress, standings.last);
        show::text(format_args!("{} stands by{behind}: {has}", standings.own.name))?;
    }
    if holder.is_some() { Ok(()) } else { Err(Failure::Found) }
}
