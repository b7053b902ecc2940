//! The report for a terminal. Its lines have at most 100 columns, except for paths and errors,
//! which are not cut.

use super::words::{bytes, count, energy, moment, percent, plain, plural, rate, signed_percent, time};
use super::{Facts, Figures, SizeClass, Sizes, Task};
use plan::energy::Account;

/// The most errors that are printed; the page and the JSON have more.
const MAX_PRINTED_ERRORS: usize = 10;

/// The whole report.
pub fn text(facts: &Facts) -> String {
    let figures = Figures::of(facts);
    let mut out = vec![format!("{}: {} in {}", facts.job, facts.ending.word(), time(facts.wall_seconds))];
    let mut line = |name: &str, what: String| out.push(format!("  {name:<12} {what}"));
    let [from, to] = facts.task.ends();
    line(from, facts.sources.join(" "));
    line(to, format!("{}, {}", facts.volume, facts.code));
    let workers = facts.workers.len() as u64;
    let workers = format!("{workers} {}", plural(workers, "worker"));
    line(
        "by",
        format!("{workers}, {}, {}, since {}", facts.transport, facts.schedule, moment(facts.start_unix_seconds)),
    );
    line("files", files(facts, &figures));
    let speed = figures.bytes_per_second.zip(figures.files_per_second);
    speed.into_iter().for_each(|(b, f)| line("bandwidth", format!("{}, {} files/s", rate(b), plain(f))));
    if facts.task == Task::Archive {
        line("written", written(facts, &figures));
    }
    let cpu = figures.cpu_seconds_per_gib.map_or_else(String::new, |per| format!(", {} s a GiB", plain(per)));
    line("processor", format!("{}{cpu}", time(facts.cpu_seconds)));
    if let Some(finish) = figures.finish {
        let (first, last) = (time(finish.first_seconds), time(finish.last_seconds));
        let idle = match finish.without_work {
            0 => String::new(),
            idle => format!("; {idle} of {} had no work", facts.workers.len()),
        };
        line("finish", format!("first {first}, last {last}, gap {}{idle}", time(finish.gap_seconds)));
        let spread = finish.spread.map(signed_percent).join(" to ");
        let busy = figures.busy_share.map_or_else(String::new, |busy| format!(", at work {}", percent(busy)));
        line("utilization", format!("{}, {spread} around the mean{busy}", percent(finish.utilization)));
    }
    for phase in &facts.phases {
        line(&phase.name, format!("{}, processor {}", time(phase.wall_seconds), time(phase.cpu_seconds)));
    }
    for account in &facts.energy {
        line("energy", account_line(account, facts));
    }
    out.extend(histogram(&facts.sizes));
    if facts.errors.count() > 0 {
        out.push(format!("  {}:", problems(facts)));
        out.extend(
            facts.errors.lines.iter().take(MAX_PRINTED_ERRORS).map(|line| format!("    {}", line.escape_debug())),
        );
        let more = facts.errors.count() - facts.errors.lines.len().min(MAX_PRINTED_ERRORS) as u64;
        out.extend((more > 0).then(|| format!("    and {} more", count(more))));
    }
    out.join("\n") + "\n"
}

/// A line with the number of problems.
pub fn problems(facts: &Facts) -> String {
    let problems = facts.errors.count();
    format!("{} {}", count(problems), plural(problems, "problem"))
}

fn written(facts: &Facts, figures: &Figures) -> String {
    let written = &facts.written;
    let per = figures.written_per_byte.map_or_else(String::new, |per| format!(", {per:.3} a byte"));
    format!(
        "{}{per}; {} data and {} code {} in {} {}",
        bytes(written.bytes),
        count(written.data_chunks),
        count(written.code_chunks),
        plural(written.data_chunks + written.code_chunks, "chunk"),
        count(written.chunk_sets),
        plural(written.chunk_sets, "set")
    )
}

fn files(facts: &Facts, figures: &Figures) -> String {
    let mean = figures.mean_file_bytes.map_or_else(String::new, |mean| format!(", {} on average", bytes(mean as u64)));
    let mut out = format!("{} of {}{mean}", count(facts.files), bytes(facts.bytes));
    match facts.others {
        0 => {}
        1 => out += "; 1 directory, link or other",
        others => out += &format!("; {} directories, links and others", count(others)),
    }
    if facts.unchanged_files > 0 {
        let (files, length) = (count(facts.unchanged_files), bytes(facts.unchanged_bytes));
        out += &format!("; {files} of {length} were there already");
    }
    out
}

/// A line for one account: the energy, its origin, the energy for a GiB, and the scope.
fn account_line(account: &Account, facts: &Facts) -> String {
    let mut out =
        format!("{} {} ({}: {})", energy(account.joules), account.basis.word(), account.source, account.detail);
    if let Some((gross, above_idle)) = account.joules_per_gib(facts.bytes) {
        out += &format!(", {} J a GiB", plain(gross));
        out += &above_idle.map_or_else(String::new, |net| format!(" ({} above idling)", plain(net)));
    }
    if let Some(split) = account.split {
        let [idle, io, coding] = split.shares().map(percent);
        out += &format!("; idle {idle}, I/O {io}, coding {coding}");
    }
    out
}

/// A line for each class that has files.
fn histogram(sizes: &Sizes) -> Vec<String> {
    let most = sizes.classes.iter().map(|class| class.files).max().unwrap_or(0);
    let line = |(class, files): (usize, &SizeClass)| {
        let bar = "#".repeat((files.files as f64 / most as f64 * 36.0).ceil() as usize);
        format!(
            "  {:>18} {bar:<36} {:>12} {:<5} {:>10}",
            class_name(class),
            count(files.files),
            plural(files.files, "file"),
            bytes(files.bytes)
        )
    };
    let lines: Vec<String> = inhabited(sizes).map(line).collect();
    if lines.is_empty() { lines } else { std::iter::once("  sizes".to_owned()).chain(lines).collect() }
}

/// The classes that have files, with their numbers.
pub fn inhabited(sizes: &Sizes) -> impl Iterator<Item = (usize, &SizeClass)> {
    sizes.classes.iter().enumerate().filter(|(_, class)| class.files > 0)
}

/// The sizes of a class in words.
pub fn class_name(class: usize) -> String {
    match class {
        0 => "empty".into(),
        1 => bytes(1),
        class => {
            let below = |class| plan::words::size(Sizes::below(class).try_into().unwrap_or(u64::MAX));
            format!("{} to {}", below(class - 1), below(class))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    #[test]
    fn the_text_has_the_figures_of_the_job() {
        let text = text(&example::job(8, 72.0));
        for part in
            ["nightly: finished in 72.0 s", "rs:4+2", "8 workers", "utilization", "gap", "measured (RAPL", "modelled ("]
        {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(text.lines().filter(|line| line.contains('#')).all(|line| line.chars().count() <= 100), "{text}");
    }

    #[test]
    fn a_job_of_nothing_can_be_told() {
        let text = text(&Facts::default());
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }

    #[test]
    fn a_name_with_a_line_break_stays_on_its_line() {
        let mut facts = Facts::default();
        facts.errors.add("/data/a\nb\x1b[31m: permission denied");
        let text = text(&facts);
        assert!(text.contains("a\\nb\\u{1b}[31m"), "{text}");
    }
}
