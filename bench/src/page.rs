//! The report as one page that needs no other file.

use crate::chart::{bars, curve};
use crate::report::{Lane, Report};
use crate::results::{Cell, Chart, Role, Row, Table};
use crate::text::{rate, refusals, value};
use archive::report::charts::escape;

const STYLE: &str = include_str!("page.css");

/// The page.
pub fn html(report: &Report) -> String {
    let quick = if report.quick {
        "<p class=\"warning\">Tiny sizes: the figures show that everything works, and nothing else.</p>"
    } else {
        ""
    };
    let lanes: Vec<String> = report.lanes.iter().map(|one| lane(one, report.lanes.len() > 1)).collect();
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>Weft: \
         codes</title>\n<style>\n{STYLE}</style></head>\n\
         <body><main><h1>Weft: codes, side by side</h1>\n{quick}<dl>\
         <dt>Measured</dt><dd>{}, weft {}, <code>{}</code></dd>\
         <dt>Machine</dt><dd>{}</dd><dt>Memory</dt><dd>{}</dd>\
         <dt>Figures</dt><dd>{}, medians of {} interleaved rounds, of {} turns each where work is done in cache; the \
         fine line in a bar is the range of the samples. A ratio is the median of the ratios within a turn. Each \
         chart has its own scale.</dd></dl>\n{}</main></body></html>\n",
        escape(&report.date),
        escape(report.weft),
        escape(&report.command),
        escape(&report.machine.describe()),
        bandwidth(report),
        escape(report.unit),
        report.rounds,
        report.turns,
        lanes.concat()
    )
}

fn bandwidth(report: &Report) -> String {
    let all = &report.machine.bandwidth;
    let mut counts: Vec<usize> = all.iter().map(|b| b.cores).collect();
    counts.dedup();
    let ways: Vec<_> = all.iter().filter(|b| b.cores == 1).map(|b| b.what).collect();
    let heading: String = ways.iter().map(|way| format!("<th>{way}</th>")).collect();
    let rows = counts.iter().map(|&cores| {
        let cells: String =
            all.iter().filter(|b| b.cores == cores).map(|b| format!("<td>{}</td>", rate(b.figure.median))).collect();
        format!("<tr><th>{}</th>{cells}</tr>", plan::words::count(cores, "core"))
    });
    format!("<table class=\"small\"><tr><th>MiB/s read</th>{heading}</tr>{}</table>", rows.collect::<String>())
}

fn lane(lane: &Lane, several: bool) -> String {
    let name = match lane.name {
        "auto" => "Each with its best instructions",
        "plain" => "Nobody with SIMD",
        _ => "Everybody held to AVX2",
    };
    let about = |s: &crate::report::Participant| {
        format!("{} {} <i>{}</i>", escape(&s.name), escape(&s.version), escape(&s.kernel))
    };
    let subjects: Vec<String> = lane.subjects.iter().map(about).collect();
    let absent: String =
        lane.absent.iter().map(|absent| format!("<p class=\"warning\">{}</p>", escape(absent))).collect();
    let heading = if several { format!("<h2>{name}</h2>") } else { String::new() };
    let tables: String = lane.tables.iter().map(table).collect();
    format!("<section>{heading}<p class=\"how\">{name}: {}.</p>{absent}\n{tables}</section>\n", subjects.join(", "))
}

fn table(table: &Table) -> String {
    let draw: Option<fn(&Row) -> String> = match table.chart {
        Chart::Bars => Some(bars),
        Chart::Curves => Some(curve),
        Chart::None => None,
    };
    let charts: String = draw.map_or_else(String::new, |draw| table.rows.iter().map(|row| draw(row) + "\n").collect());
    let (columns, beside) = (table.columns(), table.beside());
    let names = columns.iter().chain(&beside).map(|name| format!("<th>{}</th>", escape(name)));
    let rows: String = table.rows.iter().map(|row| self::row(row, &columns, &beside)).collect();
    let refusals: String =
        refusals(table).iter().map(|line| format!("<p class=\"how\">{}</p>", escape(line))).collect();
    format!(
        "<h3>{}</h3><p class=\"how\">{}</p>\n<div class=\"charts\">\n{charts}</div>\n\
         <details><summary>Numbers</summary><div \
         class=\"scroll\"><table><tr><th>{}</th>{}</tr>\n{rows}</table></div>{refusals}</details>\n",
        escape(&table.title),
        escape(&table.how),
        escape(&table.first),
        names.collect::<String>(),
    )
}

fn row(row: &Row, columns: &[&str], beside: &[&str]) -> String {
    let best = row.best_peer().map(|(cell, _)| cell.column.clone());
    let cell = |name: &&str| {
        let cell: Option<&Cell> = row.cells.iter().find(|cell| cell.column == *name);
        let class = match cell.map(|cell| cell.role) {
            Some(Role::Own) => " class=\"own\"",
            Some(Role::Peer) if best.as_deref() == Some(name) => " class=\"best\"",
            _ => "",
        };
        let text = row.figure(name).map_or_else(|| "&ndash;".to_owned(), |figure| rate(figure.median));
        format!("<td{class}>{text}</td>")
    };
    let value_beside = |name: &&str| {
        let found = row.beside.iter().find(|beside| beside.name == *name);
        format!("<td>{}</td>", found.map_or_else(String::new, |found| escape(&value(&found.value))))
    };
    let cells: String = columns.iter().map(cell).chain(beside.iter().map(value_beside)).collect();
    format!("<tr><th>{}</th>{cells}</tr>\n", escape(&row.label))
}
