//! What a measurement gives: figures in rows, rows in tables. The text, the JSON and the page all
//! show these.

use serde::Serialize;

/// The median of some samples, with the range they lie in.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// The median.
    pub median: f64,
    /// The least sample.
    pub min: f64,
    /// The greatest sample.
    pub max: f64,
    /// One sample for each turn, in order.
    pub samples: Vec<f64>,
}

impl Figure {
    /// From the samples of all turns, of which there is one at least.
    pub fn of(samples: Vec<f64>) -> Self {
        let mut sorted = samples.clone();
        sorted.sort_by(f64::total_cmp);
        Self { median: median(&sorted), min: sorted[0], max: sorted[sorted.len() - 1], samples }
    }

    /// The median of the ratios within a turn, since its samples met the machine in the same state.
    pub fn ratio(&self, to: &Self) -> f64 {
        let mut ratios: Vec<f64> = self.samples.iter().zip(&to.samples).map(|(a, b)| a / b).collect();
        ratios.sort_by(f64::total_cmp);
        median(&ratios)
    }
}

fn median(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[half] } else { (sorted[half - 1] + sorted[half]) / 2.0 }
}

/// Whose figure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// This engine's.
    Own,
    /// Another library's.
    Peer,
    /// The same reads and writes without arithmetic.
    Limit,
}

/// A figure, or why there is none.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Outcome {
    /// Measured.
    Figure(Figure),
    /// Not measured, and why.
    Refused {
        /// The reason.
        refused: String,
    },
}

impl Outcome {
    /// The figure, if there is one.
    pub fn figure(&self) -> Option<&Figure> {
        match self {
            Self::Figure(figure) => Some(figure),
            Self::Refused { .. } => None,
        }
    }
}

impl From<Result<Figure, String>> for Outcome {
    fn from(result: Result<Figure, String>) -> Self {
        result.map_or_else(|refused| Self::Refused { refused }, Self::Figure)
    }
}

/// One subject's result in one row: MiB of user data per second.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// The column it stands in.
    pub column: String,
    /// Whose it is.
    pub role: Role,
    /// The code, as the subject calls it.
    pub code: String,
    /// Bytes of a block.
    pub block_bytes: usize,
    /// Stripes in memory.
    pub stripes: usize,
    /// Passes over them in a sample.
    pub iterations: usize,
    /// Cores at work.
    pub threads: usize,
    /// Whether the page draws it; what would dwarf the rest of a chart is in the table only.
    #[serde(skip)]
    pub charted: bool,
    /// The result.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// A number that stands beside the figures of a row.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// MiB/s.
    Rate(f64),
    /// How many times.
    Ratio(f64),
    /// Part of a whole, 1 being all of it.
    Share(f64),
    /// Words.
    Text(String),
}

/// A named value that follows from the figures or from elsewhere.
#[derive(Clone, Debug, Serialize)]
pub struct Beside {
    /// The heading, of at most two words for the text table.
    pub name: String,
    /// The value.
    pub value: Value,
}

/// One shape in one setting.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What the row is about.
    pub label: String,
    /// Data blocks.
    pub k: usize,
    /// Parity blocks.
    pub m: usize,
    /// Positions that were decoded; none when it encodes.
    pub lost: Vec<usize>,
    /// Results, in column order.
    pub cells: Vec<Cell>,
    /// Ratios and references.
    pub beside: Vec<Beside>,
}

impl Row {
    /// The figure in that column.
    pub fn figure(&self, column: &str) -> Option<&Figure> {
        self.cells.iter().find(|cell| cell.column == column)?.outcome.figure()
    }

    /// The fastest peer.
    pub fn best_peer(&self) -> Option<(&Cell, &Figure)> {
        let peers = self.cells.iter().filter(|cell| cell.role == Role::Peer);
        let measured = peers.filter_map(|cell| Some((cell, cell.outcome.figure()?)));
        measured.max_by(|a, b| a.1.median.total_cmp(&b.1.median))
    }

    /// Adds the ratio of two columns, when both were measured.
    pub fn add_ratio(&mut self, name: &str, own: &str, other: &str) {
        if let Some(ratio) = self.figure(own).zip(self.figure(other)).map(|(own, other)| own.ratio(other)) {
            self.beside.push(Beside { name: name.to_owned(), value: Value::Ratio(ratio) });
        }
    }

    /// Adds what part of another column's figure a column reaches, when both were measured.
    pub fn add_share(&mut self, name: &str, own: &str, other: &str) {
        if let Some(share) = self.figure(own).zip(self.figure(other)).map(|(own, other)| own.ratio(other)) {
            self.beside.push(Beside { name: name.to_owned(), value: Value::Share(share) });
        }
    }

    /// Adds which peer is the fastest and how the column compares with it.
    pub fn add_best_peer(&mut self, own: &str, ratio_name: &str) {
        let Some((cell, best)) = self.best_peer() else { return };
        let ratio = self.figure(own).map(|figure| figure.ratio(best));
        let name = cell.column.clone();
        self.beside.push(Beside { name: "best peer".into(), value: Value::Text(name) });
        self.beside.extend(ratio.map(|ratio| Beside { name: ratio_name.to_owned(), value: Value::Ratio(ratio) }));
    }
}

/// How the page draws a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Chart {
    /// A small chart of bars for each row.
    Bars,
    /// A line for each row over the columns that are sizes.
    Curves,
    /// Numbers say enough.
    None,
}

/// Rows of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// A short name that never changes.
    pub id: String,
    /// The title.
    pub title: String,
    /// How it was measured.
    pub how: String,
    /// What the rows' labels are.
    pub first: String,
    /// How the page draws it.
    pub chart: Chart,
    /// The rows.
    pub rows: Vec<Row>,
}

impl Table {
    /// All columns that some row has, in the order of their first appearance.
    pub fn columns(&self) -> Vec<&str> {
        let mut columns: Vec<&str> = vec![];
        for cell in self.rows.iter().flat_map(|row| &row.cells) {
            if !columns.contains(&&*cell.column) {
                columns.push(&cell.column);
            }
        }
        columns
    }

    /// The names of what stands beside, likewise.
    pub fn beside(&self) -> Vec<&str> {
        let mut names: Vec<&str> = vec![];
        for beside in self.rows.iter().flat_map(|row| &row.beside) {
            if !names.contains(&&*beside.name) {
                names.push(&beside.name);
            }
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_the_median_of_the_ratios_within_a_turn() {
        let own = Figure::of(vec![10.0, 40.0, 12.0]);
        let other = Figure::of(vec![5.0, 20.0, 4.0]);
        assert_eq!((own.median, own.min, own.max), (12.0, 10.0, 40.0));
        assert_eq!(own.ratio(&other), 2.0);
        assert_eq!(Figure::of(vec![4.0, 1.0, 2.0, 3.0]).median, 2.5);
    }
}
