//! Links of the project's Markdown pages: each relative one leads to a file, each anchor to a
//! heading, and each source file that is named in full (`fs/src/lib.rs`) is there. Links to other
//! sites are not followed.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

/// Checks every Markdown file that git knows, new ones included.
///
/// # Errors
/// All broken links, one a line.
pub fn check(root: &Path) -> Result<(), String> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "*.md"])
        .current_dir(root)
        .output()
        .map_err(|e| format!("git could not be started: {e}"))?;
    let mut pages = HashMap::new();
    for path in String::from_utf8_lossy(&listed.stdout).lines().map(PathBuf::from) {
        // What git knows may be removed already.
        if let Ok(text) = fs::read_to_string(root.join(&path)) {
            pages.insert(path, prose(&text));
        }
    }
    if pages.is_empty() {
        return Err("git knows no Markdown files here".into());
    }
    let broken = broken(&pages, |path| root.join(path).exists());
    eprintln!("== links of {} Markdown pages", pages.len());
    if broken.is_empty() { Ok(()) } else { Err(format!("broken links:\n{}", broken.join("\n"))) }
}

/// `page: link` of every link that leads nowhere.
fn broken(pages: &HashMap<PathBuf, String>, exists: impl Fn(&Path) -> bool) -> Vec<String> {
    let anchors: HashMap<&Path, HashSet<String>> =
        pages.iter().map(|(path, text)| (path.as_path(), anchors(text))).collect();
    let leads = |page: &Path, link: &str| {
        let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
        let target = if path.is_empty() { page.to_owned() } else { beside(page, path) };
        let there = pages.contains_key(&target) || exists(&target);
        there && (anchor.is_empty() || anchors.get(target.as_path()).is_none_or(|known| known.contains(anchor)))
    };
    let mut out = Vec::new();
    for (page, text) in pages {
        let inside = |link: &&str| !link.contains("://") && !link.starts_with("mailto:");
        let links = links(text).into_iter().filter(inside).filter(|link| !leads(page, link));
        // Files in old entries may have other names by now.
        let now = !page.ends_with("CHANGELOG.md");
        let sources = sources(text).filter(|path| now && !exists(Path::new(path)));
        out.extend(links.chain(sources).map(|link| format!("{}: {link}", page.display())));
    }
    out.sort();
    out
}

/// A path relative to the folder of a page, without `.` and `..`.
fn beside(page: &Path, path: &str) -> PathBuf {
    let mut out = PathBuf::new();
    for part in page.parent().unwrap_or(Path::new("")).join(path).components() {
        match part {
            Component::ParentDir => drop(out.pop()),
            Component::CurDir => {}
            part => out.push(part),
        }
    }
    out
}

/// A page without its blocks of code.
fn prose(text: &str) -> String {
    let mut code = false;
    let is_prose = |line: &&str| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    };
    text.lines().filter(is_prose).map(|line| format!("{line}\n")).collect()
}

/// Where `[text](link)`, `![image](link)` and HTML's `src="link"` lead.
fn links(text: &str) -> Vec<&str> {
    let between = |start: &'static str, end: char| {
        text.split(start).skip(1).filter_map(move |rest| rest.split_once(end).map(|(link, _)| link))
    };
    let inline = between("](", ')').filter_map(|link| link.split_whitespace().next());
    inline.chain(between("src=\"", '"')).chain(between("srcset=\"", '"')).collect()
}

/// Source files that are named by their path from the root.
fn sources(text: &str) -> impl Iterator<Item = &str> {
    let code = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    code.filter(|code| code.contains("/src/") && code.ends_with(".rs") && !code.contains([' ', '*']))
}

/// The anchors of a page's headings, by GitHub's rule.
fn anchors(text: &str) -> HashSet<String> {
    let mut out = HashSet::new();
    let headings = text
        .lines()
        .filter_map(|line| line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#')));
    for heading in headings {
        let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        let anchor: String = kept.collect::<String>().to_lowercase().replace(' ', "-");
        let again = (1..).map(|n| format!("{anchor}-{n}"));
        let free = std::iter::once(anchor.clone()).chain(again).find(|a| !out.contains(a));
        out.extend(free);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_links_are_named() {
        let readme = "# Weft\n[a](docs/a.md) [b](docs/a.md#the-codes-rs) [c](#weft) [d](https://example.org/none.md)\n\
                      ```sh\n[e](none.md)\n```\n[f](none.md) [g](docs/a.md#none) <img src=\"none.svg\"> [h](LICENSE) `fs/src/none.rs` `src/lib.rs` `fs/src/lib.rs`\n";
        let a = "## The codes: `rs`\n[up](../README.md) [down](b/none.md)\n## Again\n## Again\n[again](#again-1)\n";
        let pages = HashMap::from([("README.md", readme), ("docs/a.md", a)].map(|(p, t)| (p.into(), prose(t))));
        let found = broken(&pages, |path| ["LICENSE", "fs/src/lib.rs"].map(Path::new).contains(&path));
        assert_eq!(
            found,
            [
                "README.md: docs/a.md#none",
                "README.md: fs/src/none.rs",
                "README.md: none.md",
                "README.md: none.svg",
                "docs/a.md: b/none.md"
            ]
        );
    }
}
