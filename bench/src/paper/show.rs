//! The experiments' tables as text and as a page, with the studies' own figures beside.

use super::Report;
use super::table::Table;
use super::wide::Wide;
use archive::energy::Model;
use archive::report::charts::escape;
use archive::report::page::framed;
use archive::report::words::{bytes, energy, percent, plain, rate, signed_percent, time};

/// The paper's reductions of time for 1, 2, 4 and 40 parts; it gives no others.
const PUBLISHED_REDUCTIONS: [(u64, f64); 3] = [(2, 0.741), (4, 0.929), (40, 0.969)];

fn tables(report: &Report) -> Vec<Table> {
    let mut tables = vec![parts(report), schedules(report, false), schedules(report, true), trees(report)];
    let shapes: Vec<&str> = report.wide.iter().map(|row| row.shape.as_str()).collect();
    let mut shapes = shapes.to_vec();
    shapes.dedup();
    tables.extend(shapes.into_iter().map(|shape| wide(report, shape)));
    tables
}

fn parts(report: &Report) -> Table {
    let most = report.parts.iter().map(|row| row.seconds).fold(f64::MIN_POSITIVE, f64::max);
    let row = |row: &super::Parts| {
        let published = PUBLISHED_REDUCTIONS.iter().find(|known| known.0 == row.parts);
        let cells = vec![
            row.parts.to_string(),
            bytes(row.bytes),
            time(row.seconds),
            percent(row.reduction),
            published.map_or_else(|| "-".into(), |known| percent(known.1)),
            time(row.cpu_seconds),
            energy(row.modelled_joules),
        ];
        (cells, vec![("own", row.seconds / most)])
    };
    Table {
        title: "One large file in parts".into(),
        how: format!(
            "rs:4+2 into a volume on six directories, a worker for each part, {} cores here; the study had 64 and 40 \
             GB. Reductions are for the same bytes, against one part. Energy is modelled: {}.",
            report.cores,
            Model::default().describe()
        ),
        head: vec!["parts", "file", "time", "reduction", "in the study", "processor", "energy, modelled"],
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
        ("600 objects of mixed sizes on 32 workers, modelled".to_owned(), how)
    } else {
        let title = format!("600 objects of mixed sizes on 32 workers, measured with {} cores", report.cores);
        (title, "The workers share the cores and the disk, and small objects go in batches.")
    };
    Table {
        title,
        how: how.into(),
        head: vec!["schedule", "first", "last", "gap", "spread", "utilization", "in the study"],
        rows: report.schedules.iter().filter(|row| row.modelled == modelled).map(row).collect(),
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
