//! Files that a command writes beside its work: reports, charts, profiles. None replaces another
//! file unasked.

use crate::failure::{Failure, Outcome};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use volume::Shown;

fn exists(path: &Path) -> Failure {
    Failure::Other(format!("{} exists; give --force to replace it", Shown(path)))
}

/// Whether there is something to lose: a file. A pipe or a terminal has nothing.
fn is_file(path: &Path) -> bool {
    path.metadata().is_ok_and(|there| there.is_file())
}

/// Refuses a file that exists, unless it may be replaced. Called before the work, so that no user
/// waits in vain.
///
/// # Errors
/// When the file exists.
pub fn check(path: &Path, force: bool) -> Outcome {
    if is_file(path) && !force { Err(exists(path)) } else { Ok(()) }
}

/// Writes a file, whole or not at all.
///
/// # Errors
/// When it exists and may not be replaced, or cannot be written.
pub fn write(path: &Path, content: &str, force: bool) -> Outcome {
    let failed = |why: std::io::Error| match why.kind() {
        std::io::ErrorKind::AlreadyExists => exists(path),
        _ => Failure::Other(format!("{}: {why}", Shown(path))),
    };
    if force && is_file(path) {
        // What a link leads to is replaced, and the link stays.
        let place = path.canonicalize().map_err(failed)?;
        let mut beside = place.clone().into_os_string();
        beside.push(".new");
        let written = std::fs::write(&beside, content).and_then(|()| std::fs::rename(&beside, &place));
        return written.inspect_err(|_| _ = std::fs::remove_file(&beside)).map_err(failed);
    }
    if path.exists() && !is_file(path) {
        return std::fs::write(path, content).map_err(failed);
    }
    let mut file = OpenOptions::new().write(true).create_new(true).open(path).map_err(failed)?;
    file.write_all(content.as_bytes()).inspect_err(|_| _ = std::fs::remove_file(path)).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_only_with_force() {
        let scratch = std::env::temp_dir().join(format!("weft-output-{}", std::process::id()));
        std::fs::create_dir(&scratch).unwrap();
        let (file, link) = (scratch.join("file"), scratch.join("link"));
        check(&file, false).unwrap();
        write(&file, "first", false).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        for path in [&file, &link] {
            for refused in [check(path, false), write(path, "second", false)] {
                assert!(refused.unwrap_err().to_string().ends_with("exists; give --force to replace it"));
            }
        }
        assert_eq!(std::fs::read(&file).unwrap(), b"first");
        write(&link, "second", true).unwrap();
        assert_eq!((std::fs::read(&file).unwrap(), link.is_symlink()), (b"second".to_vec(), true));
        check(Path::new("/dev/null"), false).unwrap();
        write(Path::new("/dev/null"), "gone", true).unwrap();
        write(&scratch.join("new"), "third", true).unwrap();
        assert_eq!(scratch.read_dir().unwrap().count(), 3);
        std::fs::remove_dir_all(scratch).unwrap();
    }
}
