//! Where constants are kept: a file for each machine.

use super::wrong;
use crate::failure::{Failure, Outcome};
use plan::cost::Calibration;
use std::path::{Path, PathBuf};

/// The file of this machine and this user. The home may be on several machines.
pub fn place() -> Result<PathBuf, Failure> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = variable("XDG_DATA_HOME").or_else(|| variable("HOME").map(|home| home.join(".local/share")));
    let data = data.ok_or_else(|| Failure::Usage("there is no home directory; name a file".into()))?;
    let host = volume::machine::host();
    Ok(data.join("weft/model").join(format!("{}.json", file_name(host.trim()))))
}

/// A name as a part of a path.
fn file_name(host: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '.' { c } else { '_' };
    let name: String = host.chars().map(plain).collect();
    if name.trim_matches('.').is_empty() { "machine".into() } else { name }
}

/// Writes a calibration; it replaces the last one of the machine.
pub fn save(calibration: &Calibration, place: &Path) -> Outcome {
    let failed = |why: std::io::Error| wrong(place)(why.to_string());
    if let Some(parent) = place.parent() {
        std::fs::create_dir_all(parent).map_err(failed)?;
    }
    let text = serde_json::to_string_pretty(calibration).map_err(|why| wrong(place)(why.to_string()))?;
    crate::output::write(place, &format!("{text}\n"), true)
}

/// Reads a calibration.
pub fn load(place: &Path) -> Result<Calibration, Failure> {
    let text = std::fs::read_to_string(place).map_err(|why| {
        wrong(place)(match why.kind() {
            std::io::ErrorKind::NotFound => "there is no model; make one with weft model calibrate".into(),
            _ => why.to_string(),
        })
    })?;
    let no = |why: serde_json::Error| wrong(place)(format!("it is no model: {why}"));
    let calibration: Calibration = serde_json::from_str(&text).map_err(no)?;
    calibration.check().map_err(wrong(place))?;
    Ok(calibration)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_machines_are_names_of_files() {
        assert_eq!(file_name("node-1.example"), "node-1.example");
        assert_eq!(file_name("../../etc"), ".._.._etc");
        assert_eq!((file_name(""), file_name("..")), ("machine".into(), "machine".into()));
    }
}
