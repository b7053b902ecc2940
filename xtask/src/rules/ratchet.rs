//! Counts that may only fall: a line each, the key and the count, below a comment that says what is
//! counted.

use std::collections::BTreeMap;
use std::fmt;

/// How many places of one kind there are now, and some of them.
#[derive(Debug, Default)]
pub struct Places {
    pub count: usize,
    pub places: Vec<String>,
}

impl Places {
    pub fn add(&mut self, place: String) {
        self.count += 1;
        self.places.push(place);
    }
}

/// Places of a broken rule that are shown.
const MAX_SHOWN_PLACES: usize = 20;

/// What is written down.
#[derive(Clone, Debug, PartialEq)]
pub struct Ratchet {
    comment: String,
    counts: BTreeMap<String, usize>,
}

impl Ratchet {
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut ratchet = Self { comment: String::new(), counts: BTreeMap::new() };
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            if line.starts_with('#') {
                ratchet.comment += &format!("{line}\n");
                continue;
            }
            let (key, count) = line.rsplit_once(' ').ok_or_else(|| format!("{line:?} has no count"))?;
            let count = count.parse().map_err(|_| format!("{line:?} does not end with a count"))?;
            ratchet.counts.insert(key.trim().to_owned(), count);
        }
        Ok(ratchet)
    }

    pub fn get(&self, key: &str) -> Option<usize> {
        self.counts.get(key).copied()
    }

    pub fn keys(&self) -> impl Iterator<Item = &String> {
        self.counts.keys()
    }

    /// The counts that are above the recorded ones, or above `allowed` if none is recorded.
    pub fn risen(&self, found: &BTreeMap<String, Places>, allowed: usize) -> Vec<String> {
        let mut risen = Vec::new();
        for (key, found) in found {
            let most = self.get(key).unwrap_or(allowed);
            if found.count > most {
                let places = found.places.iter().rev().take(MAX_SHOWN_PLACES).map(|place| format!("\n    {place}"));
                let places: String = places.collect();
                risen.push(format!("{key}: {}, at most {most} allowed{places}", found.count));
            }
        }
        risen
    }

    /// The same with every count that fell.
    pub fn lowered(&self, found: &BTreeMap<String, Places>) -> Self {
        let now = |key: &str| found.get(key).map_or(0, |found| found.count);
        let counts = self.counts.iter().map(|(key, &count)| (key.clone(), count.min(now(key))));
        Self { comment: self.comment.clone(), counts: counts.filter(|&(_, count)| count > 0).collect() }
    }
}

impl fmt::Display for Ratchet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.comment)?;
        self.counts.iter().try_for_each(|(key, count)| writeln!(f, "{key} {count}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_may_fall_and_not_rise() {
        let known = Ratchet::parse("# What it is.\na b 2\nc 1\nd 1\n").unwrap();
        let found = |counts: &[(&str, usize)]| -> BTreeMap<String, Places> {
            let found = |count| Places { count, places: vec!["file:7".into()] };
            counts.iter().map(|&(key, count)| (key.to_owned(), found(count))).collect()
        };
        assert_eq!(known.risen(&found(&[("a b", 2), ("c", 0), ("new", 3)]), 3), Vec::<String>::new());
        let risen = known.risen(&found(&[("a b", 3), ("new", 1)]), 0);
        assert_eq!(risen[0], "a b: 3, at most 2 allowed\n    file:7");
        assert!(risen[1].starts_with("new: 1, at most 0"), "{risen:?}");
        assert_eq!(known.lowered(&found(&[("a b", 1), ("c", 5)])).to_string(), "# What it is.\na b 1\nc 1\n");
        assert!(Ratchet::parse("a").is_err() && Ratchet::parse("a b").is_err());
    }
}
