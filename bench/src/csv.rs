//! The figures of codes as lines of a table.

use crate::report::Report;

const HEAD: &str = "instructions,table,row,k,m,column,code,mib_per_second,least,most";

/// A line for each figure; what was refused has none.
pub fn lines(report: &Report) -> String {
    let mut out = format!("{HEAD}\n");
    for lane in &report.lanes {
        for table in &lane.tables {
            for row in &table.rows {
                for cell in &row.cells {
                    let Some(figure) = cell.outcome.figure() else { continue };
                    let words = [lane.name, &table.id, &row.label].map(|text| text.replace(',', ";")).join(",");
                    let (k, m, column, code) = (row.k, row.m, &cell.column, &cell.code);
                    let (median, least, most) = (figure.median, figure.min, figure.max);
                    out += &format!("{words},{k},{m},{column},{code},{median:.1},{least:.1},{most:.1}\n");
                }
            }
        }
    }
    out
}
