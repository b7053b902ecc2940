//! The status at a glance: 80 columns and 20 lines, however many disks there are. What needs
//! attention comes first, and a line says what was left out.

use super::{files, losses, shared, verified};
use crate::volumes::create::away;
use crate::{show, unprotected};
use cluster::StoreAddress;
use cluster::store::Seen;
use fs::label::Role;
use fs::{Status, TargetStatus};
use std::collections::BTreeMap;
use std::path::Path;
use volume::Shown;

/// The size of what is shown.
const MAX_COLUMNS: usize = 80;
const MAX_LINES: usize = 20;
/// Lines about single targets and domains; the rest is counted.
const MAX_PROBLEMS: usize = 3;
/// The column where the text begins, behind the subject.
const INDENT: usize = 12;

/// All lines.
pub fn lines(status: &Status, reports: &BTreeMap<String, Seen>, servers: Option<String>, volume: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let verdict = if status.is_healthy() { "healthy" } else { "needs attention" };
    lines.push(fit(&format!("{}: {verdict}, code {}", status.name, status.code)));
    let mut say = |about: &str, what: String| lines.extend(wrapped(about, &what));
    if unprotected::spec(&status.code).is_some() {
        say("code", unprotected::WORDS.into());
    }
    space(status, &mut say);
    redundancy(status, volume, &mut say);
    domains(status, &mut say);
    shared::lines(status, volume).into_iter().for_each(|line| say("WARNING", line));
    let (have, wanted) = status.mirrors;
    let trouble = status.metadata_error.as_ref().map_or_else(String::new, |why| format!("; TROUBLE: {why}"));
    let away = away(status.voters);
    say("metadata", format!("on {have} of {}{trouble}; {away}", show::count(wanted, "target")));
    if let Some(losses) = losses(status) {
        say("history", losses);
    }
    if let Some(servers) = servers {
        say("servers", servers);
    }
    if let Some(verified) = verified(status) {
        say("verified", verified);
    }
    problems(status, &mut say);
    lines.truncate(MAX_LINES - 3);
    table(status, reports, MAX_LINES - lines.len(), &mut lines);
    lines
}

fn space(status: &Status, say: &mut impl FnMut(&str, String)) {
    let uncommitted = match status.uncommitted {
        0 => String::new(),
        bytes => format!(", {} not committed yet", show::bytes(bytes)),
    };
    let full = if status.is_nearly_full() { "; NEARLY FULL: add a target or remove files" } else { "" };
    say(
        "space",
        format!(
            "{} of {} free for data; {} with {}{uncommitted}{full}",
            show::bytes(status.usage.free),
            show::bytes(status.usage.total),
            show::count(files(status) as usize, "file"),
            show::bytes(status.bytes)
        ),
    );
    let (new, wanted) = status.new_blocks;
    if new < wanted {
        let what = format!("has LESS REDUNDANCY: {} can take it, {wanted} are needed", show::count(new, "target"));
        say("new data", what);
    }
}

fn redundancy(status: &Status, volume: &Path, say: &mut impl FnMut(&str, String)) {
    let survive = status.survive.iter().enumerate().rev().filter(|(_, sets)| **sets > 0).map(|(more, &sets)| {
        let losses = match more {
            0 => "no more losses".into(),
            1 => "1 more loss".into(),
            more => format!("{more} more losses"),
        };
        let survive = if sets == 1 { "survives" } else { "survive" };
        format!("{} {survive} {losses}", show::count(sets, "chunk set"))
    });
    let lost =
        (status.lost > 0).then(|| format!("{} LOST: too few blocks are left", show::count(status.lost, "chunk set")));
    let astray = (status.astray > 0).then(|| {
        let sets = show::count(status.looked_at, "chunk set");
        format!("{} of {sets} missing; what is open can still be read", show::count(status.astray, "chunk"))
    });
    let all: Vec<String> = lost.into_iter().chain(survive).chain(astray).collect();
    if !all.is_empty() {
        say("data", all.join("; "));
    }
    if status.to_repair > 0 {
        let sets = show::count(status.to_repair, "chunk set");
        let bytes = show::bytes(status.to_repair_bytes);
        say("to repair", format!("{sets}, {bytes}: weft volume repair {}", Shown(volume)));
    }
    for repair in status.repairs.iter().take(1) {
        let left = repair.left.map_or_else(|| "end unknown".into(), |left| format!("about {} left", show::about(left)));
        let failed = if repair.sets_failed == 0 { String::new() } else { format!(", {} FAILED", repair.sets_failed) };
        say(
            "repairing",
            format!(
                "{} of {} done{failed}, {}/s, {left}",
                repair.sets_done,
                show::count(repair.sets, "chunk set"),
                show::bytes(repair.bytes_per_second())
            ),
        );
    }
}

fn domains(status: &Status, say: &mut impl FnMut(&str, String)) {
    let mut lines = super::domain_lines(status);
    let more = lines.len().saturating_sub(MAX_PROBLEMS);
    lines.truncate(MAX_PROBLEMS);
    lines.into_iter().for_each(|line| say("domains", line));
    if more > 0 {
        say("", format!("and {} more; -v shows all", show::count(more, "domain")));
    }
}

fn problems(status: &Status, say: &mut impl FnMut(&str, String)) {
    let mut bad = status.targets.iter().filter_map(|target| Some((target, target.problem.as_ref()?)));
    for (target, why) in bad.by_ref().take(MAX_PROBLEMS) {
        say("PROBLEM", format!("{}: {why}", Shown(&target.path)));
    }
    let more = bad.count();
    if more > 0 {
        say("", format!("and {} with problems more; -v shows all", show::count(more, "target")));
    }
}

/// The targets of a store, or all directories of this machine.
struct Row {
    name: String,
    targets: usize,
    problems: usize,
    draining: usize,
    free: u64,
    total: u64,
    chunks: usize,
    load: String,
}

impl Row {
    fn count(&mut self, target: &TargetStatus) {
        self.targets += 1;
        self.problems += usize::from(target.problem.is_some());
        self.draining += usize::from(target.role == Role::Draining);
        let (total, free) = target.space.unwrap_or_default();
        (self.total, self.free) = (self.total.saturating_add(total), self.free.saturating_add(free));
        self.chunks += target.chunks;
    }

    fn line(&self) -> String {
        let state = match (self.problems, self.draining) {
            (0, 0) => "ok".into(),
            (0, draining) => format!("{draining} draining"),
            (problems, _) => format!("{problems} BAD"),
        };
        let Self { name, targets, chunks, load, .. } = self;
        let space = format!("{} of {}", show::bytes(self.free), show::bytes(self.total));
        fit(&format!("  {:22} {targets:>7}  {state:10} {space:>21} {chunks:>7}  {load}", shortened(name, 22)))
    }
}

/// A line for each store, as many as there is space for.
fn table(status: &Status, reports: &BTreeMap<String, Seen>, space: usize, lines: &mut Vec<String>) {
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    for target in status.targets.iter().filter(|target| target.role != Role::Removed) {
        let name = match StoreAddress::of(&target.path) {
            Some(Ok(address)) => address.server,
            _ => "directories".into(),
        };
        let load = reports.get(&name).map_or_else(String::new, load);
        let new = Row { name: name.clone(), targets: 0, problems: 0, draining: 0, free: 0, total: 0, chunks: 0, load };
        rows.entry(name).or_insert(new).count(target);
    }
    let mut rows: Vec<Row> = rows.into_values().collect();
    // Stable, so that stores in the same state are in the order of their names.
    rows.sort_by_key(|row| (row.problems == 0, row.draining == 0));
    let heading = ["STORE", "TARGETS", "STATE", "FREE", "CHUNKS", "IDLE"];
    let [store, targets, state, free, chunks, idle] = heading;
    lines.push(format!("  {store:22} {targets:>7}  {state:10} {free:>21} {chunks:>7}  {idle}").trim_end().into());
    let shown = if rows.len() < space { rows.len() } else { space.saturating_sub(2) };
    lines.extend(rows[..shown].iter().map(Row::line));
    if shown < rows.len() {
        let rest = &rows[shown..];
        let bad = rest.iter().filter(|row| row.problems > 0).count();
        let bad = if bad == 0 { "all ok".into() } else { format!("{bad} with problems") };
        lines.push(format!("  and {} more, {bad}; -v shows all", show::count(rest.len(), "store")));
    }
}

/// How busy a store is.
fn load(seen: &Seen) -> String {
    match (&seen.silent, &seen.load) {
        (Some(_), _) => "SILENT".into(),
        (None, Some(load)) => format!("{:.0} %", 100.0 * load.processor_idle),
        (None, None) => String::new(),
    }
}

/// A line that is not too long.
fn fit(line: &str) -> String {
    shortened(line, MAX_COLUMNS).trim_end().to_owned()
}

/// Text whose middle is left out if it is too long: beginning and end say more.
fn shortened(text: &str, columns: usize) -> String {
    let count = text.chars().count();
    if count <= columns {
        return text.to_owned();
    }
    let (head, tail) = (columns / 2, columns - columns / 2 - 1);
    text.chars().take(head).chain(['…']).chain(text.chars().skip(count - tail)).collect()
}

/// The text about a subject, in lines behind it; at most two.
fn wrapped(about: &str, what: &str) -> Vec<String> {
    let width = MAX_COLUMNS - INDENT;
    let mut parts: Vec<String> = vec![String::new()];
    for word in what.split(' ') {
        let word = shortened(word, width);
        let line = parts.last_mut().expect("there is a line");
        if line.is_empty() {
            *line = word;
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(&word);
        } else {
            parts.push(word);
        }
    }
    if parts.len() > 2 {
        let rest = parts.split_off(1).join(" ");
        parts.push(shortened(&rest, width));
    }
    let begin = |number: usize| if number == 0 { format!("  {about:10}") } else { " ".repeat(INDENT) };
    parts.iter().enumerate().map(|(number, part)| format!("{}{part}", begin(number))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fs::{DomainStatus, Placement, Usage};

    fn target(number: u16, path: String, problem: Option<&str>) -> TargetStatus {
        TargetStatus {
            id: plan::TargetId(number),
            path: path.into(),
            role: Role::Active,
            domain: None,
            state: None,
            problem: problem.map(str::to_owned),
            space: Some((16 << 40, 9 << 40)),
            chunks: 123_456,
            bytes: 5 << 40,
            load: None,
            score: None,
            would_lose: 0,
            votes: true,
        }
    }

    fn status(targets: Vec<TargetStatus>) -> Status {
        Status {
            name: "films".into(),
            code: "rs:10+4".into(),
            usage: Usage { total: 400 << 40, free: 200 << 40, files: 12_345_679 },
            bytes: 190 << 40,
            targets,
            placement: Placement::default(),
            domains: Vec::new(),
            sets: 100_000,
            survive: vec![0, 0, 0, 0, 100_000],
            lost: 0,
            to_repair: 0,
            to_repair_bytes: 0,
            looked_at: 0,
            astray: 0,
            new_blocks: (14, 14),
            shared: 0,
            most_on_one: 1,
            uncommitted: 5 << 20,
            scrub: None,
            scrub_new: None,
            unrepairable: 0,
            voters: fs::Voters { all: 14, losses: 4, others: 0 },
            losses: Vec::new(),
            mirrors: (5, 5),
            metadata_error: None,
            repairs: Vec::new(),
            repair_limit: None,
            write_cost: Default::default(),
        }
    }

    fn shown(status: &Status) -> Vec<String> {
        let servers = Some("10.0.0.1:7600 has the volume; 10.0.0.2:7600 stands by".into());
        let lines = lines(status, &BTreeMap::new(), servers, Path::new("weft://meta.example.com:7600/films"));
        let text = lines.join("\n");
        assert!(lines.len() <= MAX_LINES, "{text}");
        assert!(lines.iter().all(|line| line.chars().count() <= MAX_COLUMNS), "{text}");
        lines
    }

    #[test]
    fn thirty_disks_fit_a_screen() {
        let each = |disks: u16, problem: Option<&'static str>| {
            let path = move |n| format!("store://storage-{}.rack7.example.com:7701/disk{n}", n / disks);
            (0..30).map(|n| target(n, path(n), problem.filter(|_| n % 4 == 1))).collect::<Vec<_>>()
        };
        let healthy = shown(&status(each(6, None)));
        assert_eq!(healthy[0], "films: healthy, code rs:10+4");
        assert_eq!(healthy.iter().filter(|line| line.contains(" ok ")).count(), 5);
        shown(&status(each(1, None)));
        let why =
            "input/output error: the disk has been away since the last restart of its store, and it is not known why";
        let mut bad = status(each(1, Some(why)));
        bad.survive = vec![3, 70, 900, 10_000, 89_027];
        (bad.lost, bad.to_repair, bad.to_repair_bytes, bad.astray, bad.looked_at) = (7, 10_973, 3 << 40, 55, 100_000);
        (bad.new_blocks, bad.mirrors, bad.usage.free) = ((12, 14), (3, 5), 1 << 40);
        bad.metadata_error = Some(why.into());
        let domain = |n: u32| DomainStatus { name: format!("rack{n}/host{n}"), targets: 3, would_lose: 12, voters: 3 };
        bad.domains = (0..10).map(domain).collect();
        let lines = shown(&bad);
        assert_eq!(lines[0], "films: needs attention, code rs:10+4");
        assert!(lines.last().unwrap().contains("stores more"), "{}", lines.join("\n"));
    }

    #[test]
    fn problems_that_were_repaired_are_told_as_such() {
        let mut status = status(Vec::new());
        let line = |status: &Status| shown(status).into_iter().find(|line| line.contains("verified")).unwrap();
        status.scrub = Some(fs::Scrub { when: super::super::now() - 7200, problems: 5 });
        assert!(line(&status).ends_with(": 5 problems, repaired since"), "{}", line(&status));
        status.to_repair = 1;
        assert!(line(&status).ends_with(": 5 problems"), "{}", line(&status));
        (status.to_repair, status.unrepairable) = (0, 2);
        assert!(line(&status).ends_with(": 5 problems"), "{}", line(&status));
        status.scrub_new = Some(fs::Scrub { when: super::super::now() - 60, problems: 0 });
        let lines = shown(&status).join(" ");
        assert!(lines.contains("5 problems, repaired since; what was new"), "{lines}");
    }

    #[test]
    fn directories_are_one_line() {
        let paths = |n| format!("/srv/disks/disk{n}");
        let lines = shown(&status((0..30).map(|n| target(n, paths(n), None)).collect()));
        assert!(lines.last().unwrap().starts_with("  directories"), "{}", lines.join("\n"));
    }

    #[test]
    fn long_words_and_lines_are_shortened() {
        assert_eq!(shortened("abcdefghij", 5), "ab…ij");
        assert_eq!(wrapped("x", "short"), ["  x         short"]);
        assert_eq!(wrapped("x", &"word ".repeat(60)).len(), 2);
    }
}
