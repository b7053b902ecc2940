//! The report as a single page that needs no other file, no script and no network.

use super::charts::{bar, escape, single, throughput, timeline};
use super::text::{class_name, inhabited, problems};
use super::words::{bytes, count, energy, moment, percent, plain, plural, rate, signed_percent, time};
use super::{Facts, Figures, Sizes, Task};
use plan::energy::Account;

const STYLE: &str = include_str!("page.css");

/// The most workers whose figures the page lists.
const MAX_LISTED_WORKERS: usize = 1000;

/// The page of a job.
pub fn page(facts: &Facts) -> String {
    let figures = Figures::of(facts);
    let sections = [
        errors(facts),
        workers(facts, &figures),
        over_time(facts, &figures),
        sizes(&facts.sizes),
        phases(facts),
        causes(facts),
    ];
    let title = format!("{}: {} in {}", facts.job, facts.ending.word(), time(facts.wall_seconds));
    let version = escape(&facts.version);
    let body = format!(
        "<header><h1>{}</h1>\n{}</header>\n{}{}<footer>weft {version}</footer>",
        escape(&title),
        about(facts),
        cards(&key_figures(facts, &figures)),
        sections.concat(),
    );
    framed(&title, &body)
}

/// A page with this title and body, in the style of the reports.
pub fn framed(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>{}</title>\n\
         <style>\n{STYLE}</style></head>\n<body><main>{body}</main></body></html>\n",
        escape(title)
    )
}

fn about(facts: &Facts) -> String {
    let sources: Vec<String> = facts.sources.iter().map(|source| escape(source)).collect();
    let workers = facts.workers.len() as u64;
    let workers = format!("{workers} {}", plural(workers, "worker"));
    let [from, to] = match facts.task {
        Task::Verify => ["With", "Of"],
        _ => ["From", "To"],
    };
    let rows = [
        (from, sources.join("<br>")),
        (to, format!("{}, {}", escape(&facts.volume), escape(&facts.code))),
        ("By", format!("{workers}, {}, {} scheduling", escape(&facts.transport), escape(&facts.schedule))),
        ("Began", moment(facts.start_unix_seconds)),
    ];
    let rows: String = rows.iter().map(|(name, what)| format!("<dt>{name}</dt><dd>{what}</dd>")).collect();
    format!("<dl>{rows}</dl>\n")
}

/// A prominent figure: its name, its value and a note.
pub struct Card {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// A note: its parts or its origin.
    pub note: String,
}

impl Card {
    fn new(name: &str, value: String, note: String) -> Self {
        Self { name: name.into(), value, note }
    }
}

/// Cards side by side.
pub fn cards(cards: &[Card]) -> String {
    let card = |card: &Card| {
        let [name, value, note] =
            [&card.name, &card.value, &card.note].map(|text| escape(text).replace(" %", "&nbsp;%"));
        format!("<li><span>{name}</span><b>{value}</b><small>{note}</small></li>")
    };
    format!("<ul class=\"cards\">{}</ul>\n", cards.iter().map(card).collect::<String>())
}

fn key_figures(facts: &Facts, figures: &Figures) -> Vec<Card> {
    let unchanged = match facts.unchanged_files {
        0 => String::new(),
        files => format!("{} more were there already", count(files)),
    };
    let mean = figures.mean_file_bytes.map_or_else(String::new, |mean| format!("{} on average", bytes(mean as u64)));
    let per = figures.written_per_byte.map_or_else(String::new, |per| format!(" ({per:.3} a byte)"));
    let mut cards =
        vec![Card::new("Files", count(facts.files), unchanged), Card::new("User data", bytes(facts.bytes), mean)];
    if facts.task == Task::Archive {
        let (data, code) = (count(facts.written.data_chunks), count(facts.written.code_chunks));
        let note = format!("{data} data and {code} code chunks{per}");
        cards.push(Card::new("Written", bytes(facts.written.bytes), note));
    }
    if let Some((speed, files)) = figures.bytes_per_second.zip(figures.files_per_second) {
        cards.push(Card::new("Bandwidth", rate(speed), format!("{} files/s", plain(files))));
    }
    if let Some(finish) = figures.finish {
        let busy = figures.busy_share.map_or_else(String::new, |busy| format!("at work {} of the time", percent(busy)));
        cards.push(Card::new("Utilization", percent(finish.utilization), format!("mean by last finish; {busy}")));
        let idle = match finish.without_work {
            0 => String::new(),
            idle => format!("; {idle} of {} workers had no work", facts.workers.len()),
        };
        let spread = format!("finishes {} around the mean{idle}", finish.spread.map(signed_percent).join(" to "));
        cards.push(Card::new("Gap", time(finish.gap_seconds), spread));
    }
    let per = figures.cpu_seconds_per_gib.map_or_else(String::new, |per| format!("{} s a GiB", plain(per)));
    cards.push(Card::new("Processor time", time(facts.cpu_seconds), per));
    for account in &facts.energy {
        let name = format!("Energy, {}", account.basis.word());
        cards.push(Card::new(&name, energy(account.joules), account_note(account, facts)));
    }
    cards
}

/// The origin of an account's figures, and the energy for a GiB.
fn account_note(account: &Account, facts: &Facts) -> String {
    let error = account.error.map_or_else(|| "error unknown".into(), |error| format!("± {:.0} %", error * 100.0));
    let mut note = format!("{}: {}; {}, {error}", account.source, account.detail, account.scope.word());
    if let Some((gross, net)) = account.joules_per_gib(facts.bytes) {
        note += &format!("; {} J a GiB", plain(gross));
        note += &net.map_or_else(String::new, |net| format!(", {} above idling", plain(net)));
    }
    note
}

fn workers(facts: &Facts, figures: &Figures) -> String {
    let Some((chart, finish)) = timeline(facts, figures).zip(figures.finish) else {
        return section("Workers", "<p class=\"how\">No worker had a task.</p>");
    };
    let legend = format!(
        "<p class=\"legend\"><i class=\"own\"></i>at work (paler: with pauses)<i class=\"second\"></i>mean finish, {}\
         <i class=\"last\"></i>last finish, {}</p>\n",
        time(finish.mean_seconds),
        time(finish.last_seconds)
    );
    section("Workers", &format!("{chart}{legend}{}", worker_table(facts)))
}

fn worker_table(facts: &Facts) -> String {
    let at = |seconds: Option<f64>| seconds.map_or_else(|| "&ndash;".into(), time);
    let row = |worker: &super::Worker| {
        let line = &worker.timeline;
        format!(
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
            escape(&worker.name),
            count(worker.tasks),
            bytes(worker.bytes),
            time(line.busy_seconds),
            at(line.first_start),
            at(line.first_finish),
            at(line.last_finish)
        )
    };
    let rows: String = facts.workers.iter().take(MAX_LISTED_WORKERS).map(row).collect();
    let unlisted = facts.workers.len().saturating_sub(MAX_LISTED_WORKERS);
    let more = if unlisted > 0 { format!("<p class=\"how\">And {unlisted} more.</p>") } else { String::new() };
    let head = table_head(&["worker", "tasks", "user data", "at work", "first start", "first finish", "last finish"]);
    format!(
        "<details><summary>Numbers</summary><div \
         class=\"scroll\"><table>{head}<tbody>\n{rows}</tbody></table></div>{more}</details>\n"
    )
}

/// The heading of a table.
pub fn table_head(columns: &[&str]) -> String {
    let cell = |name: &&str| {
        let wide = if name.contains(' ') { " class=\"wide\"" } else { "" };
        format!("<th scope=\"col\"{wide}>{}</th>", escape(name))
    };
    format!("<thead><tr>{}</tr></thead>", columns.iter().map(cell).collect::<String>())
}

fn over_time(facts: &Facts, figures: &Figures) -> String {
    let mean = figures.bytes_per_second.map_or_else(String::new, |mean| format!(" {} over the whole job.", rate(mean)));
    let interval = facts.throughput.interval_seconds;
    match throughput(facts) {
        Some(chart) => {
            let how =
                format!("User data, when it had been {}, in intervals of {}.{mean}", facts.task.done(), time(interval));
            section("Throughput", &format!("<p class=\"how\">{how}</p>\n{chart}"))
        }
        None => section("Throughput", "<p class=\"how\">There was no data.</p>"),
    }
}

fn sizes(sizes: &Sizes) -> String {
    let most_files = sizes.classes.iter().map(|class| class.files).max().unwrap_or(0).max(1) as f64;
    let most_bytes = sizes.classes.iter().map(|class| class.bytes).max().unwrap_or(0).max(1) as f64;
    let row = |(at, class): (usize, &super::SizeClass)| {
        format!(
            "<tr><th scope=\"row\">{}</th><td>{}</td><td class=\"bar\">{}</td><td>{}</td><td \
             class=\"bar\">{}</td></tr>\n",
            escape(&class_name(at)),
            count(class.files),
            single(class.files as f64 / most_files),
            bytes(class.bytes),
            bar(&[("second", class.bytes as f64 / most_bytes)], &bytes(class.bytes)),
        )
    };
    let rows: String = inhabited(sizes).map(row).collect();
    if rows.is_empty() {
        return rows;
    }
    let head = table_head(&["size", "files", "", "user data", ""]);
    let how = "<p class=\"how\">Sizes that no file has are left out.</p>";
    section("File sizes", &format!("{how}<div class=\"scroll\"><table>{head}<tbody>\n{rows}</tbody></table></div>"))
}

/// Time by phase, and energy with a column for each account: a measured figure never shares a
/// column with a modelled one.
fn phases(facts: &Facts) -> String {
    if facts.phases.is_empty() {
        return String::new();
    }
    let most =
        facts.phases.iter().map(|phase| phase.wall_seconds.max(phase.cpu_seconds)).fold(f64::MIN_POSITIVE, f64::max);
    let mut columns = vec!["phase".to_owned(), "time".into(), String::new(), "processor".into(), String::new()];
    columns.extend(facts.energy.iter().map(|account| format!("energy, {} ({})", account.basis.word(), account.source)));
    let row = |phase: &super::Phase| {
        let of = |account: &Account| {
            let found = account.phases.iter().find(|energy| energy.phase == phase.name);
            format!("<td>{}</td>", found.map_or_else(|| "&ndash;".into(), |found| energy(found.joules)))
        };
        format!(
            "<tr><th scope=\"row\">{}</th><td>{}</td><td class=\"bar\">{}</td><td>{}</td><td \
             class=\"bar\">{}</td>{}</tr>\n",
            escape(&phase.name),
            time(phase.wall_seconds),
            single(phase.wall_seconds / most),
            time(phase.cpu_seconds),
            bar(&[("second", phase.cpu_seconds / most)], &time(phase.cpu_seconds)),
            facts.energy.iter().map(of).collect::<String>()
        )
    };
    let rows: String = facts.phases.iter().map(row).collect();
    let head = table_head(&columns.iter().map(String::as_str).collect::<Vec<_>>());
    let how = "<p class=\"how\">Phases overlap: their times need not add up to the job&rsquo;s. Energy is shared out \
        by processor time.</p>";
    section("Phases", &format!("{how}<div class=\"scroll\"><table>{head}<tbody>\n{rows}</tbody></table></div>"))
}

/// Energy by cause: a bar for each account that has causes.
fn causes(facts: &Facts) -> String {
    let row = |account: &Account| {
        let split = account.split?;
        let shares = split.shares();
        let parts = [("third", shares[0]), ("second", shares[1]), ("own", shares[2])];
        let [idle, io, coding] = shares.map(percent);
        Some(format!(
            "<tr><th scope=\"row\">{} ({})</th><td \
             class=\"bar\">{}</td><td>{idle}</td><td>{io}</td><td>{coding}</td></tr>\n",
            account.basis.word(),
            escape(&account.source),
            bar(&parts, &format!("idle {idle}, reading and writing {io}, coding {coding}")),
        ))
    };
    let rows: String = facts.energy.iter().filter_map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    let legend = "<p class=\"legend\"><i class=\"third\"></i>idling<i class=\"second\"></i>reading and writing\
                  <i class=\"own\"></i>coding and all else</p>";
    let head = table_head(&["source", "", "idling", "I/O", "coding"]);
    section(
        "Energy by cause",
        &format!("<div class=\"scroll\"><table>{head}<tbody>\n{rows}</tbody></table></div>{legend}"),
    )
}

fn errors(facts: &Facts) -> String {
    if facts.errors.count() == 0 {
        return String::new();
    }
    let lines: String = facts.errors.lines.iter().map(|line| format!("<li>{}</li>\n", escape(line))).collect();
    let more = match facts.errors.unlisted {
        0 => String::new(),
        unlisted => format!("<p class=\"how\">And {} more.</p>", count(unlisted)),
    };
    section(&problems(facts), &format!("<ul class=\"errors warning\">{lines}</ul>{more}"))
}

/// A section of a page.
pub fn section(title: &str, content: &str) -> String {
    format!("<section><h2>{}</h2>\n{content}</section>\n", escape(title))
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    /// Pages of all kinds of jobs; on request, the test writes them to a folder.
    #[test]
    fn pages_are_whole_and_escaped() {
        let mut empty = Facts { job: "nothing <at all>".into(), ..Facts::default() };
        empty.sources.push("/tmp/<script>alert(1)</script>".into());
        let jobs = [
            ("empty", empty),
            ("one", example::job(1, 1.0)),
            ("eight", example::job(8, 72.0)),
            ("many", example::job(300, 36_000.0)),
        ];
        for (name, facts) in jobs {
            let page = page(&facts);
            if let Some(folder) = std::env::var_os("WEFT_PAGES") {
                std::fs::write(std::path::Path::new(&folder).join(format!("{name}.html")), &page).unwrap();
            }
            assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"), "{name}");
            for element in ["section", "table", "svg", "div", "details", "ul"] {
                let (open, closed) =
                    (page.matches(&format!("<{element}")).count(), page.matches(&format!("</{element}>")).count());
                assert_eq!(open, closed, "{name}: {element}");
            }
            assert!(!page.contains("<script") && !page.contains("<b>locked") && !page.contains("<ops>"), "{name}");
            assert!(
                !page.contains("http:") && !page.contains("https:") && !page.contains("url("),
                "{name}: it needs nothing"
            );
            assert!(!page.contains("NaN") && !page.contains("inf"), "{name}");
            assert!(page.len() < 2 << 20, "{name}: {} bytes", page.len());
        }
    }

    /// S3: a measured figure never shares a column with a modelled one.
    #[test]
    fn each_account_has_its_own_column_and_its_basis_with_it() {
        let page = page(&example::job(4, 10.0));
        assert!(page.contains("energy, measured (RAPL)</th>"));
        assert!(page.contains("energy, modelled (model)</th>"));
        assert!(page.contains("Energy, measured") && page.contains("Energy, modelled"));
    }
}
