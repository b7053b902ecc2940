//! Tables of an experiment, as text and as parts of a page.

use archive::report::charts::{bar, escape};
use archive::report::page::{framed, section, table_head};

/// A table: title, how it came about, headings, and rows of cells with the parts of a bar.
pub struct Table {
    /// The title.
    pub title: String,
    /// How it came about.
    pub how: String,
    /// The headings of the cells.
    pub head: Vec<&'static str>,
    /// The rows.
    pub rows: Vec<Row>,
}

/// Cells, and the classes and lengths of the parts of a bar.
pub type Row = (Vec<String>, Vec<(&'static str, f64)>);

impl Table {
    /// A line for each cell: table, row, column, and what the cell says.
    pub fn csv(&self) -> String {
        let rows = self.rows.iter().map(|(cells, _)| {
            let line = |(name, cell): (&&str, &String)| {
                [self.title.as_str(), &cells[0], name, cell].map(quoted).join(",") + "\n"
            };
            self.head.iter().zip(cells).skip(1).map(line).collect::<String>()
        });
        rows.collect()
    }

    /// For a terminal.
    pub fn text(&self) -> String {
        let mut out = format!("\n{}\n{}\n", self.title, wrapped(&self.how));
        let head: Vec<String> = self.head.iter().map(|&name| name.to_owned()).collect();
        let lines: Vec<&Vec<String>> = std::iter::once(&head).chain(self.rows.iter().map(|row| &row.0)).collect();
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
        for line in &lines {
            let cells = line.iter().enumerate().map(|(at, cell)| {
                let width = width(at);
                if at == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
            });
            out += &format!("  {}\n", cells.collect::<Vec<_>>().join("  "));
        }
        out
    }

    /// The same for a page, with bars.
    pub fn section(&self) -> String {
        let rows = self.rows.iter().map(|(cells, parts)| {
            let rest: String = cells[1..].iter().map(|cell| format!("<td>{}</td>", escape(cell))).collect();
            let about = cells.last().map_or("", String::as_str);
            format!(
                "<tr><th scope=\"row\">{}</th><td class=\"bar\">{}</td>{rest}</tr>\n",
                escape(&cells[0]),
                bar(parts, about)
            )
        });
        let mut head = self.head.clone();
        head.insert(1, "");
        let content = format!(
            "<p class=\"how\">{}</p><div class=\"scroll\"><table>{}<tbody>\n{}</tbody></table></div>",
            escape(&self.how),
            table_head(&head),
            rows.collect::<String>()
        );
        section(&self.title, &content)
    }
}

/// The first line of a file of [`Table::csv`].
pub const CSV_HEAD: &str = "table,row,column,value\n";

fn quoted(text: &str) -> String {
    if text.contains(['"', ',', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

/// A page of some tables that needs no other file.
pub fn page(title: &str, about: &str, tables: &[Table]) -> String {
    let mut body = format!("<header><h1>{}</h1><p class=\"how\">{}</p></header>\n", escape(title), escape(about));
    body.extend(tables.iter().map(Table::section));
    framed(title, &body)
}

/// In lines of at most 110 columns.
fn wrapped(text: &str) -> String {
    let (mut out, mut column) = (String::new(), 0);
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > 110 {
            out.push('\n');
            column = 0;
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out += word;
        column += length;
    }
    out
}
