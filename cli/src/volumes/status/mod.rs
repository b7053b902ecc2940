//! `weft status`: how a volume is.

mod cost;
mod mount;
mod repairs;
mod servers;
pub(super) mod shared;
mod stores;
mod summary;

use super::create::{away, away_document};
use super::{hosted, open_own, places, rebalance, served};
use crate::failure::{Failure, Outcome};
use crate::{show, unprotected};
use clap::Args;
use cluster::StoreAddress;
use fs::label::Role;
use fs::{AtRisk, DomainStatus, Scrub, Status, TargetState, Voters};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use volume::Shown;

/// Mirrors of the metadata that were away catch up when a volume is opened. Longer than this is
/// worth a warning.
const MIRRORS_CATCH_UP: Duration = Duration::from_secs(10);

/// Show the health of a volume; exit status 1 if it needs attention
#[derive(Args)]
#[command(after_help = "Examples:
  weft status /srv/films
  # A line for each target, too.
  weft status /srv/films -v
  weft status /srv/films --at-risk
  weft status /srv/films --json
  weft status weft://127.0.0.1:7600/films
  weft status /mnt

At a mount point it shows the volume. If a server has the volume, it shows what the mount knows: its connection, and \
where the time of its writes goes.")]
pub struct Arguments {
    /// The volume, or its mount point
    volume: PathBuf,
    /// List the files that survive the loss of fewer targets than they should
    #[arg(long)]
    at_risk: bool,
    /// Show a line for each target, and all that stores report
    #[arg(short, long)]
    verbose: bool,
    /// Show where the time of writes went
    #[arg(long)]
    write_cost: bool,
}

pub fn run(arguments: &Arguments, as_json: bool) -> Outcome {
    if let Some(post) = hosted::standing_by() {
        return servers::of_standby(&post.standings(), as_json);
    }
    // The mount itself must not look into its own files.
    if served().is_none()
        && let Some(directory) = super::mounts::directory_of_mountpoint(&arguments.volume)
    {
        return Err(Failure::Busy(directory, "the process of the mount does not answer".into()));
    }
    let volume = open_own(&arguments.volume, true)?;
    if volume.is_client() {
        let place = served().map_or_else(|| "open".into(), |served| served.place.clone());
        return mount::run(&volume, place.split(';').next().unwrap_or(&place), arguments.write_cost, as_json);
    }
    if arguments.at_risk {
        let mut files = Vec::new();
        volume.at_risk(|file| files.push(file))?;
        files.sort_by(|a, b| (a.survives, &a.path).cmp(&(b.survives, &b.path)));
        return list(&files, as_json);
    }
    if served().is_none() {
        volume.wait_for_mirrors(MIRRORS_CATCH_UP)?;
    }
    let status = volume.status()?;
    // This process may have other volumes, on other stores.
    let own: BTreeSet<String> = status
        .targets
        .iter()
        .filter_map(|target| StoreAddress::of(&target.path)?.ok().map(|store| store.server))
        .collect();
    let mut reports = places().stores().reports.all();
    reports.retain(|store, _| own.contains(store));
    if as_json {
        let mut document = document(&status);
        document["stores"] = stores::document(&status, &reports);
        document["rebalance"] = rebalance::document(&volume.rebalance_status()?);
        document["servers"] = hosted::post().map_or_else(|| json!([]), |post| servers::document(&post.standings()));
        show::json(&document)?
    } else {
        if arguments.verbose {
            print(&status, &arguments.volume)?;
            stores::print(&status, &reports)?;
            hosted::post().map_or(Ok(()), |post| servers::print(&post.standings()))?;
        } else {
            let servers = hosted::post().and_then(|post| servers::line(&post.standings()));
            let lines = summary::lines(&status, &reports, servers, &arguments.volume);
            lines.iter().map(|line| show::marked(line)).try_for_each(show::text)?;
        }
        let moving = rebalance::progress(&volume.rebalance_status()?);
        moving.map_or(Ok(()), |moving| show::text(format_args!("  rebalancing: {moving}")))?;
        if arguments.write_cost {
            cost::print(&status.write_cost)?;
        }
        if arguments.verbose {
            show::text(if status.is_healthy() { "healthy" } else { "needs attention" })?;
        }
    }
    if status.is_healthy() { Ok(()) } else { Err(Failure::Found) }
}

fn list(files: &[AtRisk], as_json: bool) -> Outcome {
    if as_json {
        let each = files.iter().map(|file| json!({ "path": show::name(&file.path), "survives": file.survives }));
        show::json(&each.collect())?;
    } else if files.is_empty() {
        show::text("no file is at risk")?;
    }
    for file in files.iter().filter(|_| !as_json) {
        let path = volume::shown(&file.path);
        match file.survives {
            None => show::text(format_args!("lost in part        {path}"))?,
            Some(1) => show::text(format_args!("survives 1 loss     {path}"))?,
            Some(more) => show::text(format_args!("survives {more} losses   {path}"))?,
        }
    }
    if files.is_empty() { Ok(()) } else { Err(Failure::Found) }
}

/// Files of any kind but the root, which no user made.
fn files(status: &Status) -> u64 {
    status.usage.files.saturating_sub(1)
}

fn print(status: &Status, volume: &Path) -> Outcome {
    show::text(format_args!(
        "{}: {} of {} free for data, {} with {}{}, code {}",
        status.name,
        show::bytes(status.usage.free),
        show::bytes(status.usage.total),
        show::count(files(status) as usize, "file"),
        show::bytes(status.bytes),
        match status.uncommitted {
            0 => String::new(),
            bytes => format!(" and {} not committed yet", show::bytes(bytes)),
        },
        status.code
    ))?;
    if unprotected::spec(&status.code).is_some() {
        show::text(format_args!("  {}", unprotected::WORDS))?;
    }
    if status.is_nearly_full() {
        show::text("  NEARLY FULL: less than 5 % is free; add a target with weft target add, or remove files")?;
    }
    let (new, wanted) = status.new_blocks;
    if new < wanted {
        show::text(format_args!(
            "  NEW DATA has less redundancy: {} can take it and {wanted} are needed; see weft target --help",
            show::count(new, "target")
        ))?;
    }
    for target in &status.targets {
        let role = match target.role {
            Role::Active => "active",
            Role::Draining => "draining",
            Role::Removed => "removed",
        };
        let space = target.space.map_or_else(String::new, |(total, free)| {
            format!(", {} of {} free", show::bytes(free), show::bytes(total))
        });
        let problem = target.problem.as_ref().map_or_else(|| "healthy".into(), |why| format!("PROBLEM: {why}"));
        let state = target
            .state
            .map_or_else(String::new, |(state, time)| format!("  {} for {}", state_name(state), show::age(time)));
        let domain = target.domain.as_ref().map_or_else(String::new, |domain| format!("  in {domain}"));
        show::text(format_args!(
            "  target {:3}  {role:8}  {:>13}{space}  {}{domain}{state}  {problem}",
            target.id.0,
            show::count(target.chunks, "chunk"),
            Shown(&target.path)
        ))?;
        stores::print_load(target)?;
    }
    for line in domain_lines(status) {
        show::text(format_args!("  {line}"))?;
    }
    for line in shared::lines(status, volume) {
        show::text(format_args!("  WARNING: {line}"))?;
    }
    let (have, wanted) = status.mirrors;
    show::text(format_args!("  metadata on {have} of {}; {}", show::count(wanted, "target"), away(status.voters)))?;
    if let Some(losses) = losses(status) {
        show::text(format_args!("  history {losses}"))?;
    }
    if let Some(error) = &status.metadata_error {
        show::text(format_args!("  metadata trouble: {error}"))?;
    }
    for (more, &sets) in status.survive.iter().enumerate().rev().filter(|(_, sets)| **sets > 0) {
        let survives = if more == 1 { "1 more loss".into() } else { format!("{more} more losses") };
        let survive = if sets == 1 { "survives" } else { "survive" };
        show::text(format_args!("  {} {survive} {survives}", show::count(sets, "chunk set")))?;
    }
    if status.lost > 0 {
        show::text(format_args!("  {} LOST: too few blocks are left", show::count(status.lost, "chunk set")))?;
    }
    if status.astray > 0 {
        show::text(format_args!(
            "  {} of the {} that were looked for are missing; what is open can be read while this process lasts",
            show::count(status.astray, "chunk"),
            show::count(status.looked_at, "chunk set"),
        ))?;
    }
    if status.to_repair > 0 {
        show::text(format_args!(
            "  {} to repair, {}: weft volume repair {}",
            show::count(status.to_repair, "chunk set"),
            show::bytes(status.to_repair_bytes),
            Shown(volume)
        ))?;
    }
    if let Some(verified) = verified(status) {
        show::text(format_args!("  verified {verified}"))?;
    }
    repairs::print(status)
}

/// The losses that were accepted.
fn losses(status: &Status) -> Option<String> {
    // A rebuild with all targets gives up none.
    let each = status.losses.iter().filter(|loss| !loss.targets.is_empty()).map(|loss| {
        let age = Duration::from_secs(now().cast_unsigned().saturating_sub(loss.when));
        let lost = loss.targets.len();
        format!("{lost} of {} were given up {} ago", show::count(loss.of, "target"), show::age(age))
    });
    let each: Vec<String> = each.collect();
    (!each.is_empty()).then(|| format!("LOSS ACCEPTED: {}", each.join("; ")))
}

/// When the volume was verified, and what was found.
fn verified(status: &Status) -> Option<String> {
    let found = |scrub: Scrub| {
        let age = Duration::from_secs(u64::try_from(now() - scrub.when).unwrap_or(0));
        let found = match scrub.problems {
            0 => "all was sound".into(),
            some if status.problems_left() == 0 => {
                format!("{}, repaired since", show::count(some as usize, "problem"))
            }
            some => show::count(some as usize, "problem"),
        };
        format!("{} ago: {found}", show::age(age))
    };
    let new = status.scrub_new.map(|scrub| format!("what was new {}", found(scrub)));
    let all: Vec<String> = status.scrub.map(found).into_iter().chain(new).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// Seconds since 1970.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_secs().cast_signed()
}

fn state_name(state: TargetState) -> &'static str {
    match state {
        TargetState::Joining => "joining",
        TargetState::Up => "up",
        TargetState::Down => "down",
        TargetState::Out => "out",
        TargetState::Draining => "draining",
    }
}

/// What the loss of a whole domain would do; None where nothing is lost.
fn fatal_loss(domain: &DomainStatus, voters: Voters) -> Option<String> {
    let sets = (domain.would_lose > 0).then(|| format!("lose {}", show::count(domain.would_lose, "chunk set")));
    let metadata = match domain.voters {
        gone if gone > voters.readable_without() => Some("make the metadata unreadable until it is back"),
        gone if gone > voters.writable_without() => {
            Some("make the volume read-only, and stop its metadata server, until it is back")
        }
        _ => None,
    };
    let would: Vec<String> = sets.into_iter().chain(metadata.map(str::to_owned)).collect();
    let targets = show::count(domain.targets, "target");
    (!would.is_empty()).then(|| format!("the loss of {} ({targets}) would {}", domain.name, would.join(" and ")))
}

/// What the loss of whole domains would do: a line for each that is fatal, or one that says that
/// none is.
fn domain_lines(status: &Status) -> Vec<String> {
    let fatal: Vec<String> = status.domains.iter().filter_map(|domain| fatal_loss(domain, status.voters)).collect();
    if fatal.is_empty() && !status.domains.is_empty() {
        return vec![format!(
            "the loss of any one of {} would lose nothing",
            show::count(status.domains.len(), "domain")
        )];
    }
    fatal
}

fn document(status: &Status) -> Value {
    let targets = status.targets.iter().map(|target| {
        json!({
            "id": target.id.0,
            "path": show::path(&target.path),
            "role": target.role,
            "problem": target.problem,
            "total": target.space.map(|space| space.0),
            "free": target.space.map(|space| space.1),
            "chunks": target.chunks,
            "chunk_sets_lost_with_it": target.would_lose,
            "votes": target.votes,
            "bytes": target.bytes,
            "load": target.load,
            "score": target.score,
            "domain": target.domain.as_ref().map(ToString::to_string),
            "state": target.state.map(|(state, _)| state_name(state)),
            "state_seconds": target.state.map(|(_, time)| time.as_secs()),
        })
    });
    let domains = status.domains.iter().map(|domain| {
        json!({
            "domain": domain.name,
            "targets": domain.targets,
            "chunk_sets_lost_with_it": domain.would_lose,
            "voters": domain.voters,
        })
    });
    json!({
        "name": status.name,
        "code": status.code,
        "healthy": status.is_healthy(),
        "total": status.usage.total,
        "free": status.usage.free,
        "files": files(status),
        "bytes": status.bytes,
        "uncommitted_bytes": status.uncommitted,
        "nearly_full": status.is_nearly_full(),
        "metadata": away_document(status.voters),
        "losses": status.losses,
        "targets": targets.collect::<Vec<_>>(),
        "placement": status.placement.policy.to_string(),
        "domain_level": status.placement.domain_level,
        "domains": domains.collect::<Vec<_>>(),
        "chunk_sets": status.sets,
        "chunk_sets_by_losses_survived": status.survive,
        "chunk_sets_sharing_targets": status.shared,
        "blocks_on_one_target": status.most_on_one,
        "chunk_sets_lost": status.lost,
        "chunk_sets_to_repair": status.to_repair,
        "bytes_to_repair": status.to_repair_bytes,
        "chunk_sets_looked_at": status.looked_at,
        "chunks_missing": status.astray,
        "new_data_targets": status.new_blocks.0,
        "new_data_targets_wanted": status.new_blocks.1,
        "verified_at": status.scrub.map(|scrub| scrub.when),
        "verified_problems": status.scrub.map(|scrub| scrub.problems),
        "verified_new_at": status.scrub_new.map(|scrub| scrub.when),
        "verified_new_problems": status.scrub_new.map(|scrub| scrub.problems),
        "verified_problems_left": status.problems_left(),
        "metadata_mirrors": status.mirrors.0,
        "metadata_mirrors_wanted": status.mirrors.1,
        "metadata_error": status.metadata_error,
        "repairs": repairs::document(&status.repairs),
        "repair_limit": status.repair_limit,
        "write_cost": cost::document(&status.write_cost),
    })
}
