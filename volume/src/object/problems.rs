//! What is wrong with the fragments of an object: collected while the work goes on around it.

use crate::lock;
use crate::{Shown, unpoisoned};
use plan::Position;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Mutex;

/// As many fragments are named; the rest is counted.
const MAX_LISTED: usize = 1000;

/// The kinds of problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProblemKind {
    /// No fragment of a position was found.
    Missing,
    /// The system does not read the file or directory.
    Unreadable,
    /// The file's header is damaged or not of this format.
    Header,
    /// The fragment belongs to another object.
    Foreign,
    /// There is another fragment of the same position.
    Duplicate,
    /// The file's name gives another position than its header.
    Misnamed,
    /// The work that wrote the fragment was interrupted before it had its name.
    Uncommitted,
    /// The file is longer than it should be.
    Length,
    /// The file ends within a record.
    Truncated,
    /// A record's header is damaged, or is that of another record.
    Record,
    /// A block does not match its checksums.
    Block,
    /// The blocks of a stripe match their checksums but not each other.
    Parity,
}

impl ProblemKind {
    /// A stable word, for programs.
    pub fn word(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Unreadable => "unreadable",
            Self::Header => "header",
            Self::Foreign => "foreign",
            Self::Duplicate => "duplicate",
            Self::Misnamed => "misnamed",
            Self::Uncommitted => "uncommitted",
            Self::Length => "length",
            Self::Truncated => "truncated",
            Self::Record => "record",
            Self::Block => "block",
            Self::Parity => "parity",
        }
    }
}

/// One problem of one fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What kind it is.
    pub kind: ProblemKind,
    /// The file, if there is one.
    pub path: Option<PathBuf>,
    /// The position in the stripe, if it is known.
    pub position: Option<Position>,
    /// The first stripe that has it, and the offset of the damage in the file.
    pub place: Option<(u64, u64)>,
    /// How many stripes have a problem in this fragment.
    pub stripes: u64,
    /// The rest in words.
    pub what: String,
}

impl Problem {
    pub(super) fn new(
        kind: ProblemKind,
        path: impl Into<Option<PathBuf>>,
        position: impl Into<Option<Position>>,
        what: impl Into<String>,
    ) -> Self {
        Self { kind, path: path.into(), position: position.into(), place: None, stripes: 0, what: what.into() }
    }

    pub(super) fn at(self, stripe: u64, offset: u64) -> Self {
        Self { place: Some((stripe, offset)), stripes: 1, ..self }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.path, self.position) {
            (Some(path), _) => write!(f, "{}: ", Shown(path))?,
            (None, Some(position)) => write!(f, "position {position}: ")?,
            (None, None) => {}
        }
        if let Some((stripe, offset)) = self.place {
            write!(f, "stripe {stripe} at byte {offset}: ")?;
        }
        f.write_str(&self.what)?;
        if self.stripes > 1 {
            write!(f, " (and {} more of its stripes)", self.stripes - 1)?;
        }
        Ok(())
    }
}

/// Where threads put the problems they meet.
#[derive(Debug, Default)]
pub(super) struct Collector(Mutex<Collected>);

/// What is listed once: of a fragment as a whole each kind of problem, of its stripes the first
/// with any.
type Key = (Option<Position>, Option<PathBuf>, Option<ProblemKind>);

#[derive(Debug, Default)]
struct Collected {
    listed: BTreeMap<Key, Problem>,
    unlisted: u64,
}

impl Collector {
    /// Adds a problem. Of the stripes of one fragment the first is kept and the others are counted.
    pub fn add(&self, problem: Problem) {
        let Collected { listed, unlisted } = &mut *lock(&self.0);
        let whole = problem.place.is_none().then_some(problem.kind);
        let key = (problem.position, problem.path.clone(), whole);
        if let Some(known) = listed.get_mut(&key) {
            let stripes = known.stripes + problem.stripes;
            if problem.place < known.place {
                *known = problem;
            }
            known.stripes = stripes;
        } else if listed.len() < MAX_LISTED {
            listed.insert(key, problem);
        } else {
            *unlisted += 1;
        }
    }

    /// All problems, by position, and how many more there were.
    pub fn into_list(self) -> Problems {
        let Collected { listed, unlisted } = unpoisoned(self.0.into_inner());
        Problems { listed: listed.into_values().collect(), unlisted }
    }
}

/// The problems that some work met.
#[derive(Clone, Debug, Default)]
pub struct Problems {
    /// Of each fragment as a whole one of each kind, and one of its stripes.
    pub listed: Vec<Problem>,
    /// How many more there were.
    pub unlisted: u64,
}

impl Problems {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripes_of_a_fragment_are_counted_and_the_first_is_kept() {
        let collector = Collector::default();
        let path = PathBuf::from("d/a.001.weft");
        for stripe in [5, 3, 9] {
            collector.add(Problem::new(ProblemKind::Block, path.clone(), Position(1), "bad").at(stripe, stripe * 100));
        }
        collector.add(Problem::new(ProblemKind::Missing, None, Position(0), "it is missing"));
        let shown: Vec<String> = collector.into_list().listed.iter().map(Problem::to_string).collect();
        assert_eq!(
            shown,
            ["position 0: it is missing", "d/a.001.weft: stripe 3 at byte 300: bad (and 2 more of its stripes)"]
        );
    }
}
