//! Which crate depends on which: exactly what the table in ARCHITECTURE.md says, and nothing that
//! stands below in it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// A row of the table.
#[derive(Debug, PartialEq)]
struct Row {
    folder: String,
    depends_on: BTreeSet<String>,
}

/// Compares the table with every crate's Cargo.toml. Returns the differences, one a line.
///
/// # Errors
/// When there is no table, or a Cargo.toml cannot be read.
pub fn check(root: &Path, architecture: &str) -> Result<Vec<String>, String> {
    let manifest = |folder: &str| {
        let path = root.join(folder).join("Cargo.toml");
        fs::read_to_string(&path).map_err(|why| format!("{}: {why}", path.display()))
    };
    let mut folders = members(&manifest("")?);
    folders.push("fuzz".into());
    let rows = table(architecture, &folders);
    if rows.is_empty() {
        return Err("ARCHITECTURE.md has no table of crates below \"## Layers\"".into());
    }
    let mut manifests = Vec::new();
    for folder in &folders {
        let mut found = dependencies(&manifest(folder)?, &folders);
        // A crate from outside has the name of our folder: `mpi`.
        found.remove(folder);
        manifests.push((folder.clone(), found));
    }
    Ok(compare(&rows, &manifests))
}

/// The crates' folders in the workspace.
fn members(manifest: &str) -> Vec<String> {
    let line = manifest.lines().find(|line| line.starts_with("members = ")).unwrap_or_default();
    line.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The table: a row for each folder, in its order.
fn table(architecture: &str, folders: &[String]) -> Vec<Row> {
    let section = architecture.split_once("## Layers").map_or("", |(_, rest)| rest);
    let block = section.split("```").nth(1).unwrap_or_default();
    let row = |line: &str| {
        let folder = line.split_whitespace().take(2).find(|word| folders.iter().any(|folder| folder == word))?;
        let arrows = line.split_once("->").map_or("", |(_, arrows)| arrows);
        let names = arrows.split(',').map(str::trim).filter(|name| !name.is_empty() && *name != "nothing");
        Some(Row { folder: folder.to_owned(), depends_on: names.map(str::to_owned).collect() })
    };
    block.lines().filter_map(row).collect()
}

/// Crates of the workspace in `[dependencies]`; those of tests may be any.
fn dependencies(manifest: &str, folders: &[String]) -> BTreeSet<String> {
    let mut section = "";
    let mut found = BTreeSet::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        } else if section.ends_with("dependencies]") && !section.contains("dev-") {
            let name = line.split(['.', '=', ' ']).next().unwrap_or_default();
            found.extend(folders.iter().find(|folder| *folder == name).cloned());
        }
    }
    found
}

fn compare(rows: &[Row], manifests: &[(String, BTreeSet<String>)]) -> Vec<String> {
    let mut broken = Vec::new();
    for (folder, found) in manifests {
        let Some(at) = rows.iter().position(|row| row.folder == *folder) else {
            broken.push(format!("{folder}: it is not in the table of ARCHITECTURE.md"));
            continue;
        };
        for name in found.difference(&rows[at].depends_on) {
            broken.push(format!("{folder} depends on {name}, and ARCHITECTURE.md does not say so"));
        }
        for name in rows[at].depends_on.difference(found) {
            broken.push(format!("{folder} does not depend on {name}, and ARCHITECTURE.md says so"));
        }
        for name in rows[at + 1..].iter().map(|row| &row.folder).filter(|name| found.contains(*name)) {
            // What stands beside has no place in the order.
            if !["bench", "sim", "xtask", "fuzz"].contains(&name.as_str()) {
                broken.push(format!("{folder} depends on {name}, which stands above it"));
            }
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str =
        "# A\n## Layers\n\n```\n low    gf    kernels\n        ec    codes   -> gf\n above  fs    files -> ec\n```\n";

    #[test]
    fn a_dependency_that_the_table_lacks_or_that_points_up_is_found() {
        let folders = members("[workspace]\nmembers = [\"gf\", \"ec\", \"fs\"]\n");
        let rows = table(TABLE, &folders);
        let of = |text: &str| dependencies(text, &folders);
        let ec = of("[package]\nname = \"ec\"\n[dependencies]\ngf = { path = \"../gf\" }\nother = \"1\"\n");
        let fs = of("[dependencies]\nec.workspace = true\n[dev-dependencies]\ngf.workspace = true\n");
        let gf = BTreeSet::new();
        let manifests = |gf: &BTreeSet<String>| {
            [("gf", gf), ("ec", &ec), ("fs", &fs)].map(|(name, found)| (name.to_owned(), found.clone()))
        };
        assert_eq!(compare(&rows, &manifests(&gf)), Vec::<String>::new());
        let up = of("[target.'cfg(unix)'.dependencies]\nfs.workspace = true\n");
        let broken = compare(&rows, &manifests(&up));
        assert_eq!(broken.len(), 2, "{broken:?}");
        assert!(broken[0].contains("does not say so") && broken[1].contains("stands above"), "{broken:?}");
        assert_eq!(
            compare(&rows, &[("mpi".into(), BTreeSet::new())]),
            ["mpi: it is not in the table of ARCHITECTURE.md"]
        );
    }
}
