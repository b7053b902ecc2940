//! The id by which the targets know a volume directory. With it, a holder that restarts need not
//! wait for its own lease.

use crate::{Error, Result};
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The file with the id, in the volume directory.
const FILE: &str = "holder";

/// The id of a volume directory, created if it does not exist. Call it only with the lock of the
/// directory, and with its full path.
///
/// # Errors
/// When it cannot be read or written.
pub fn holder_id(directory: &Path) -> Result<u128> {
    let path = directory.join(FILE);
    let failed = |why: &dyn std::fmt::Display| Error::Invalid(format!("{}: {why}", volume::Shown(&path)));
    match std::fs::read_to_string(&path) {
        Ok(text) => {
            let id = u128::from_str_radix(text.trim(), 16).ok().filter(|id| *id != 0);
            let id = id.ok_or_else(|| failed(&"it is not the id of a holder; remove it while no server runs"))?;
            return Ok(here(id, directory));
        }
        Err(why) if why.kind() == ErrorKind::NotFound => {}
        Err(why) => return Err(failed(&why)),
    }
    let mut id = [0; 16];
    match rustix::rand::getrandom(&mut id[..], rustix::rand::GetRandomFlags::empty()) {
        Ok(length) if length == id.len() => {}
        _ => return Err(failed(&"the system has no random bytes")),
    }
    let id = u128::from_be_bytes(id).max(1);
    let new = directory.join(format!("{FILE}.new"));
    let written =
        File::options().write(true).create(true).truncate(true).mode(0o600).open(&new).and_then(|mut file| {
            writeln!(file, "{id:032x}")?;
            file.sync_all()?;
            std::fs::rename(&new, &path)
        });
    written.map_err(|why| failed(&why))?;
    Ok(here(id, directory))
}

/// A copy of the directory, or the directory in another place, is another holder. So is a copy of
/// the whole machine: it has the same names, and was started at another time.
pub(crate) fn here(id: u128, directory: &Path) -> u128 {
    at(id, &::volume::machine::host(), &::volume::target::boot_id().unwrap_or_default(), directory)
}

fn at(id: u128, machine: &str, boot: &[u8], directory: &Path) -> u128 {
    let mut hash = blake3::Hasher::new();
    hash.update(&id.to_le_bytes()).update(machine.as_bytes()).update(b"\0").update(boot).update(b"\0");
    hash.update(directory.as_os_str().as_encoded_bytes());
    u128::from_le_bytes(*hash.finalize().as_bytes().first_chunk().expect("a hash has 32 bytes")).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_a_machine_is_another_holder() {
        let directory = Path::new("/srv/films");
        let first = at(7, "meta1", b"started then", directory);
        assert_eq!(at(7, "meta1", b"started then", directory), first);
        assert_ne!(at(7, "meta1", b"started later", directory), first);
        assert_ne!(at(7, "meta2", b"started then", directory), first);
    }

    #[test]
    fn a_directory_keeps_its_id() {
        let place = std::env::temp_dir().join(format!("weft-holder-{}", std::process::id()));
        let [a, b] = ["a", "b"].map(|name| place.join(name));
        [&a, &b].iter().for_each(|path| std::fs::create_dir_all(path).unwrap());
        let id = holder_id(&a).unwrap();
        assert_eq!(holder_id(&a).unwrap(), id);
        assert_ne!(holder_id(&b).unwrap(), id);
        std::fs::copy(a.join(FILE), b.join(FILE)).unwrap();
        assert_ne!(holder_id(&b).unwrap(), id, "a copy is another one");
        for bad in ["", "0", "x", "1 2"] {
            std::fs::write(a.join(FILE), bad).unwrap();
            assert!(holder_id(&a).is_err(), "{bad:?}");
        }
        std::fs::remove_dir_all(place).unwrap();
    }
}
