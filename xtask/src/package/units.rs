//! How much a unit may do on its machine, as `systemd-analyze security` counts it.

use crate::NOT_HERE;
use crate::peers::output_of;
use std::fs;
use std::path::Path;
use std::process::Command;

/// A unit is exposed by less than this, of 10.
const LIMIT: f64 = 4.0;
/// The version that first looked at files of units.
const OFFLINE: u32 = 250;

/// Refuses units that may do too much.
pub fn check(root: &Path) -> Result<(), String> {
    let version = output_of(Command::new("systemd-analyze").arg("--version")).unwrap_or_default();
    let version: u32 = version.split_whitespace().nth(1).and_then(|number| number.parse().ok()).unwrap_or(0);
    if version < OFFLINE {
        return Err(format!("{NOT_HERE}: units are checked by systemd-analyze, of systemd {OFFLINE} or later"));
    }
    let folder = root.join("packages/systemd");
    let listed = fs::read_dir(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    for unit in listed.flatten().map(|entry| entry.path()) {
        let mut analyze = Command::new("systemd-analyze");
        let told = output_of(analyze.args(["--offline=true", "--no-pager", "security"]).arg(&unit))?;
        let name = unit.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let level = exposure(&told).ok_or(format!("{name}: systemd-analyze names no level"))?;
        eprintln!("== {name}: exposure {level} of 10");
        if level >= LIMIT {
            return Err(format!("{name} is exposed by {level}: less than {LIMIT} is wanted"));
        }
    }
    Ok(())
}

/// The level in the last line of the answer.
fn exposure(told: &str) -> Option<f64> {
    let line = told.lines().rev().find(|line| line.contains("Overall exposure level"))?;
    line.split(": ").nth(1)?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_level_is_found() {
        let told = "✗ PrivateDevices=\n\n→ Overall exposure level for weft-s3.service: 1.5 OK 🙂\n";
        assert_eq!(super::exposure(told), Some(1.5));
        assert_eq!(super::exposure("nothing"), None);
    }
}
