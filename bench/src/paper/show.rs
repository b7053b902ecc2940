//! The experiments' tables as text and as a page, with the studies' own figures beside.

use super::table::{CSV_HEAD, Table};
use super::wide::Wide;
use super::{Report, SizeMix};
use archive::energy::Model;
use archive::report::charts::escape;
use archive::report::page::framed;
use archive::report::words::{bytes, energy, percent, plain, rate, signed_percent, time};

/// The paper's reductions of time and of energy for 2, 4 and 40 parts; it gives no others, but that
/// those of energy for 4 to 40 parts are all more than 92.3 %, and at most 96.9.
const PUBLISHED_REDUCTIONS: [(u64, f64, &str); 3] =
    [(2, 0.741, "73.6 %"), (4, 0.929, "over 92.3 %"), (40, 0.969, "at most 96.9 %")];

fn tables(report: &Report) -> Vec<Table> {
    let mut tables = vec![parts(report), schedules(report, false), schedules(report, true)];
    tables.extend(report.schedules.iter().map(|schedule| workers(report, schedule)));
    tables.push(trees(report));
    let shapes: Vec<&str> = report.wide.iter().map(|row| row.shape.as_str()).collect();
    let mut shapes = shapes.to_vec();
    shapes.dedup();
    tables.extend(shapes.into_iter().map(|shape| wide(report, shape)));
    tables
}

fn parts(report: &Report) -> Table {
    let most = report.parts.iter().map(|row| row.seconds).fold(f64::MIN_POSITIVE, f64::max);
    let joules = |row: &super::Parts| row.measured.as_ref().map_or(row.modelled_joules, |it| it.1);
    let one = report.parts.first().map_or(1.0, |row| joules(row) / row.bytes as f64);
    let row = |row: &super::Parts| {
        let published = PUBLISHED_REDUCTIONS.iter().find(|known| known.0 == row.parts);
        let cells = vec![
            row.parts.to_string(),
            bytes(row.bytes),
            time(row.seconds),
            percent(row.reduction),
            published.map_or_else(|| "-".into(), |known| percent(known.1)),
            time(row.cpu_seconds),
            energy(joules(row)),
            percent(1.0 - joules(row) / row.bytes as f64 / one),
            published.map_or_else(|| "-".into(), |known| known.2.into()),
        ];
        (cells, vec![("own", row.seconds / most)])
    };
    let instrument = report.parts.iter().find_map(|row| row.measured.as_ref()).map(|it| it.0.clone());
    Table {
        title: format!("One large file in parts, {}", report.transport),
        how: format!(
            "rs:4+2 into a volume on six directories, a worker for each part, {} cores here; the study had 64 and 40 \
             GB. Reductions are for the same bytes, against one part. Energy is {}.",
            report.cores,
            instrument
                .as_ref()
                .map_or_else(|| format!("modelled: {}", Model::default().describe()), |it| format!("measured by {it}"))
        ),
        head: vec![
            "parts",
            "file",
            "time",
            "reduction",
            "in the study",
            "processor",
            if instrument.is_some() { "energy" } else { "energy, modelled" },
            "reduction",
            "in the study",
        ],
        rows: report.parts.iter().map(row).collect(),
    }
}

fn schedules(report: &Report, modelled: bool) -> Table {
    let row = |row: &super::Schedule| {
        let finish = &row.finish;
        let cells = vec![
            row.policy.to_owned(),
            time(finish.first_seconds),
            time(finish.last_seconds),
            time(finish.gap_seconds),
            finish.spread.map(signed_percent).join(" to "),
            percent(finish.utilization),
            format!("{}, gap {} s", percent(row.published.0), row.published.1),
        ];
        (cells, vec![("own", finish.utilization)])
    };
    let (title, how) = if modelled {
        let how = "The archive's scheduler, object by object, with a core for each worker, and times for an object \
            and for a byte that were measured on one worker here.";
        ("600 objects on 32 workers, modelled".to_owned(), how)
    } else {
        let title = format!("600 objects on 32 workers, measured with {} cores, {}", report.cores, report.transport);
        (title, "The workers share the cores and the disk, and small objects go in batches.")
    };
    let mix = match report.size_mix {
        SizeMix::Mixed => "Sizes are spread over three powers of ten; the study does not say which it had.",
        SizeMix::Periodic => {
            "Every eighth object is seven times as large as the others, so that dealing out in turn gives all large \
             ones to four workers; the study does not say which sizes it had."
        }
    };
    Table {
        title,
        how: format!("{how} {mix}"),
        head: vec!["schedule", "first", "last", "gap", "spread", "utilization", "in the study"],
        rows: report.schedules.iter().filter(|row| row.modelled == modelled).map(row).collect(),
    }
}

/// The finish of every worker (figures 4 to 7), as measured or as modelled, under one policy.
fn workers(report: &Report, schedule: &super::Schedule) -> Table {
    let finish = &schedule.finish;
    let rows = schedule.workers_seconds.iter().enumerate().map(|(at, done)| {
        let beside = |done: &f64| signed_percent(done / finish.mean_seconds - 1.0);
        let text = |done: Option<&f64>, of: &dyn Fn(&f64) -> String| done.map_or_else(|| "-".into(), of);
        let length = done.map_or(0.0, |done| done / finish.last_seconds);
        let cells = vec![
            (at + 1).to_string(),
            "#".repeat((40.0 * length).round() as usize),
            text(done.as_ref(), &|done| time(*done)),
            text(done.as_ref(), &|done| {
                format!(
                    "{}{}",
                    if *done < finish.mean_seconds { "-" } else { "+" },
                    time((done - finish.mean_seconds).abs())
                )
            }),
            text(done.as_ref(), &beside),
        ];
        (cells, vec![("own", length)])
    });
    let published = match schedule.policy {
        "demand" => "63 to 72 s, -5.56 to +3.44 s around the mean",
        _ => "16 to 279 s, -57.06 to +205.94 s around the mean",
    };
    let how = match schedule.finish.without_work {
        0 => String::new(),
        idle => format!(" {idle} had no work, and no finish."),
    };
    Table {
        title: format!(
            "Finish of every worker, {}, {}",
            schedule.policy,
            if schedule.modelled {
                "modelled with a core each".into()
            } else {
                format!("measured with {} cores", report.cores)
            }
        ),
        how: format!("When its last object was done, and that beside the mean. In the study: {published}.{how}"),
        head: vec!["worker", "", "finish", "less the mean", "of the mean"],
        rows: rows.collect(),
    }
}

fn trees(report: &Report) -> Table {
    let row = |row: &super::tree::Tree| {
        let total = row.files as f64 * row.file_bytes as f64;
        let cells = vec![
            format!("{} of {}", row.files, bytes(row.file_bytes)),
            time(row.seconds),
            rate(total / row.seconds),
            plain(row.rate()),
            time(row.cpu_seconds),
            time(row.bound_seconds),
            percent(row.share),
        ];
        let most = row.seconds.max(row.bound_seconds);
        (cells, vec![("own", row.seconds / most)])
    };
    Table {
        title: "Trees from the page cache, beside cp -r".into(),
        how: "weft archive, the whole process, rs:4+2 into a volume on six directories of one disk. Beside it cp -r \
            of the tree to the same disk, and then writing as many bytes as its parity has. Both are on disk at the \
            end (sync -f)."
            .into(),
        head: vec!["files", "archive", "data", "files/s", "processor", "cp and parity", "of its speed"],
        rows: report.trees.iter().map(row).collect(),
    }
}

fn wide(report: &Report, shape: &str) -> Table {
    let mut chosen: Vec<&Wide> = report.wide.iter().filter(|row| row.shape == shape).collect();
    chosen.sort_by(|a, b| a.seconds().total_cmp(&b.seconds()));
    let most = chosen.iter().map(|row| row.seconds()).fold(f64::MIN_POSITIVE, f64::max);
    let own = chosen.iter().find(|row| row.own).map_or(0.0, |row| row.coding_rate);
    let row = |row: &&Wide| {
        let cells = vec![
            row.who.clone(),
            format!("{} MiB/s", plain(row.coding_rate)),
            format!("{:.1}x", own / row.coding_rate),
            time(row.coding_seconds),
            time(row.io_seconds),
            time(row.seconds()),
            energy(row.modelled_joules),
        ];
        let class = if row.own { "own" } else { "third" };
        (cells, vec![("second", row.io_seconds / most), (class, row.coding_seconds / most)])
    };
    Table {
        title: format!("{shape} from one directory to others"),
        how: format!(
            "{} of user data. T_ec: coding on one core from memory, each library in the same run. T_io: reading the \
             data and writing all chunks, synced, the same for all. The job is their sum, as in the study's \
             equation. Energy is modelled: {}.",
            bytes(chosen.first().map_or(0, |row| row.bytes)),
            Model::default().describe()
        ),
        head: vec!["library", "coding", "weft is", "T_ec", "T_io", "together", "energy, modelled"],
        rows: chosen.iter().map(row).collect(),
    }
}

fn warning(report: &Report) -> &'static str {
    if report.quick { "Tiny sizes: the figures show that everything works, and nothing else.\n" } else { "" }
}

/// Tables for a terminal.
pub fn text(report: &Report) -> String {
    let mut out = format!(
        "weft {}, {}, {}, {} cores\n{}",
        report.weft,
        report.date,
        report.processor,
        report.cores,
        warning(report)
    );
    tables(report).iter().for_each(|table| out += &table.text());
    report.absent.iter().for_each(|absent| out += &format!("\n{absent}\n"));
    out
}

/// The same, a line for each cell.
pub fn csv(report: &Report) -> String {
    tables(report).iter().fold(CSV_HEAD.to_owned(), |all, table| all + &table.csv())
}

/// The same as a page.
pub fn page(report: &Report) -> String {
    let title = "Weft: the archive studies' experiments";
    let mut body = format!(
        "<header><h1>{title}</h1><p class=\"how\">weft {}, {}, {}, {} cores, {} rounds. {}</p></header>\n",
        escape(report.weft),
        escape(&report.date),
        escape(&report.processor),
        report.cores,
        report.rounds,
        warning(report)
    );
    tables(report).iter().for_each(|table| body += &table.section());
    body += "<p class=\"legend\"><i class=\"second\"></i>reading and writing<i class=\"own\"></i>weft<i \
        class=\"third\"></i>coding by another library</p>";
    body.extend(report.absent.iter().map(|absent| format!("<p class=\"how warning\">{}</p>", escape(absent))));
    framed(title, &body)
}
