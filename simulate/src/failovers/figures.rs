//! What happened in a run, or in many.

use std::collections::BTreeMap;
use std::fmt;

/// Counts, by what they count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures(BTreeMap<String, u64>);

/// What the names of those counts begin with that are failovers: another server has the volume
/// after something happened to the holder.
const FAILOVER: &str = "another server after the holder was ";

impl Figures {
    pub fn add(&mut self, what: &str, count: u64) {
        *self.0.entry(what.into()).or_default() += count;
    }

    /// One more failover.
    pub fn failover(&mut self, why: &str) {
        self.add(&format!("{FAILOVER}{why}"), 1);
    }

    /// The number of failovers.
    pub fn failovers(&self) -> u64 {
        self.0.iter().filter(|(what, _)| what.starts_with(FAILOVER)).map(|(_, count)| count).sum()
    }

    pub fn take(&mut self, other: &Self) {
        other.0.iter().for_each(|(what, count)| self.add(what, *count));
    }

    /// Reads what `Display` wrote; other lines are left out.
    pub fn read(text: &str) -> Self {
        let mut found = Self::default();
        for line in text.lines() {
            if let Some((count, what)) = line.trim_start().split_once("  ")
                && let Ok(count) = count.parse()
            {
                found.add(what, count);
            }
        }
        found
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(what, count)| writeln!(f, "{count:10}  {what}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_as_they_are_written() {
        let mut figures = Figures::default();
        figures.failover("killed");
        figures.failover("killed");
        figures.failover("stopped");
        figures.add("requests answered", 12_345_678_901);
        assert_eq!(figures.failovers(), 3);
        let read = Figures::read(&format!("seed 7\n{figures}"));
        assert_eq!(read, figures);
        figures.take(&read);
        assert_eq!(figures.failovers(), 6);
    }
}
