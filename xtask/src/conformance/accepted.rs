//! The differences that `docs/posix.md` accepts.

use std::path::Path;

const HEADING: &str = "Accepted differences";

/// The first column of the table under the heading, without backticks.
pub fn read(root: &Path) -> Result<Vec<String>, String> {
    let path = root.join("docs/posix.md");
    let text = std::fs::read_to_string(&path).map_err(|why| format!("{}: {why}", path.display()))?;
    Ok(tests(&text))
}

fn tests(text: &str) -> Vec<String> {
    let lines = text.lines().skip_while(|line| line.trim_start_matches('#').trim() != HEADING).skip(1);
    let section = lines.take_while(|line| !line.starts_with('#'));
    let cells = section.filter_map(|line| line.trim().strip_prefix('|')?.split('|').next());
    // The first two lines are the heading and the rule below it.
    cells.skip(2).map(|cell| cell.trim().trim_matches('`').to_owned()).filter(|name| !name.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_the_table_under_the_heading_counts() {
        let text = "# A\n| x | y |\n\n## Accepted differences\n\nWords.\n\n| test | reason |\n|---|---|\n| `a::b` | c |\n\n# B\n| d |";
        assert_eq!(super::tests(text), ["a::b"]);
        assert!(super::tests("nothing").is_empty());
    }
}
