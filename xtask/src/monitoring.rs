//! The alert rules of `docs/monitoring`, by Prometheus's own tool.

use crate::NOT_HERE;
use crate::peers::run;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The Debian package that has promtool.
const PACKAGE: &str = "prometheus";

/// Checks the rules and runs their tests.
pub fn check(root: &Path) -> Result<(), String> {
    let promtool = promtool(&root.join("target/monitoring"))
        .map_err(|why| format!("{NOT_HERE}: promtool, of Debian's package {PACKAGE}: {why}"))?;
    for (what, file) in [("check", "weft.rules.yml"), ("test", "weft.rules.test.yml")] {
        let rules = Path::new("docs/monitoring").join(file);
        eprintln!("== promtool {what} rules {}", rules.display());
        let status = Command::new(&promtool).args([what, "rules"]).arg(root.join(&rules)).status();
        if !status.map_err(|why| format!("promtool: {why}"))?.success() {
            return Err(format!("promtool {what} rules {} failed", rules.display()));
        }
    }
    Ok(())
}

/// The program: that of the system, or one that lies in the folder, or after an attempt to get it.
fn promtool(folder: &Path) -> Result<PathBuf, String> {
    let works = |program: &Path| run(Command::new(program).arg("--version"));
    let own = folder.join("usr/bin/promtool");
    for program in [Path::new("promtool"), &own] {
        if works(program).is_ok() {
            return Ok(program.to_owned());
        }
    }
    unpack(folder)?;
    works(&own).map(|()| own)
}

/// Unpacks the package into the folder. To install it would start a server, and takes root.
fn unpack(folder: &Path) -> Result<(), String> {
    let failed = |why: std::io::Error| format!("{}: {why}", folder.display());
    fs::create_dir_all(folder).map_err(failed)?;
    let download = || run(Command::new("apt-get").args(["-qq", "download", PACKAGE]).current_dir(folder));
    download().or_else(|why| {
        // The lists of packages may be old, or not there.
        run(Command::new("apt-get").args(["-qq", "update"])).map_err(|also| format!("{why}; {also}"))?;
        download()
    })?;
    let mut entries = fs::read_dir(folder).map_err(failed)?.flatten().map(|entry| entry.path());
    let package = entries.find(|path| path.extension().is_some_and(|kind| kind == "deb"));
    let package = package.ok_or_else(|| format!("no package in {}", folder.display()))?;
    run(Command::new("dpkg-deb").arg("-x").arg(&package).arg(folder))?;
    fs::remove_file(&package).map_err(failed)
}
