//! Widths that rustfmt does not keep: it breaks neither comments nor long strings.

use super::Source;
use super::ratchet::Places;
use std::collections::BTreeMap;

/// Columns of a comment line, and of any other.
const MAX_COMMENT_COLUMNS: usize = 100;
const MAX_CODE_COLUMNS: usize = 120;

/// The lines that are too wide, by kind and crate: `comments fs`, `code fs`.
pub fn wide_lines(sources: &[Source]) -> BTreeMap<String, Places> {
    let mut found = BTreeMap::<String, Places>::new();
    for source in sources {
        for (number, line) in source.text.lines().enumerate() {
            let (kind, most) = if line.trim_start().starts_with("//") {
                ("comments", MAX_COMMENT_COLUMNS)
            } else {
                ("code", MAX_CODE_COLUMNS)
            };
            let columns = line.chars().count();
            if columns > most {
                let place = format!("{}:{}: {columns} columns, at most {most}", source.path.display(), number + 1);
                found.entry(format!("{kind} {}", source.folder())).or_default().add(place);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::source;
    use super::*;

    #[test]
    fn comments_and_code_have_their_own_widths() {
        let wide = |start: &str, columns: usize| format!("{start}{}\n", "ä".repeat(columns - start.len()));
        let text = [wide("    /// ", 100), wide("//! ", 101), wide("let a = ", 120), wide("let b = ", 121)].concat();
        let found = wide_lines(&[source("fs/src/lib.rs", &text)]);
        let places = |key: &str| found[key].places.clone();
        assert_eq!(places("comments fs"), ["fs/src/lib.rs:2: 101 columns, at most 100"]);
        assert_eq!(places("code fs"), ["fs/src/lib.rs:4: 121 columns, at most 120"]);
    }
}
