//! The key of operators: a file that only its owner can read, and the logins that it opened.

use crate::failure::Failure;
use std::collections::HashMap;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use volume::{Shown, lock};

/// The file begins with this.
const PREFIX: &str = "weft-console-key-1 ";
/// How long a login lasts.
const LOGIN: Duration = Duration::from_secs(8 * 3600);
/// Logins at a time.
const LOGINS: usize = 64;

pub struct Key {
    secret: String,
    logins: Mutex<HashMap<String, Instant>>,
}

/// Why there is no login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    Wrong,
    /// Others are logged in.
    TooMany,
}

fn secret() -> Result<String, Failure> {
    wire::admission::secret(32).map_err(|why| Failure::Other(why.to_string()))
}

impl Key {
    /// Reads it, or makes it if it is not there.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let failed = |why: std::io::Error| Failure::Other(format!("{}: {why}", Shown(path)));
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(why) if why.kind() == ErrorKind::NotFound => {
                let text = format!("{PREFIX}{}\n", secret()?);
                cluster::whole::create(path, &text, 0o600).map_err(failed)?;
                text
            }
            Err(why) => return Err(failed(why)),
        };
        let mode = std::fs::metadata(path).map_err(failed)?.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            let why = format!("{}: others can use this key (mode {mode:o}); chmod 600 it", Shown(path));
            return Err(Failure::Other(why));
        }
        let secret = text.trim().strip_prefix(PREFIX).filter(|secret| secret.len() >= 32);
        let secret = secret.ok_or_else(|| Failure::Other(format!("{} is not a key of a console", Shown(path))))?;
        Ok(Self { secret: secret.into(), logins: Mutex::default() })
    }

    /// A login for who has the text of the file. The time that the comparison takes does not depend
    /// on where texts differ. Its 256 random bits cannot be found by trying.
    pub fn login(&self, given: &str) -> Result<String, Refused> {
        let given = given.trim().strip_prefix(PREFIX).unwrap_or(given.trim());
        let differ = given.bytes().zip(self.secret.bytes()).fold(0, |differ, (a, b)| differ | (a ^ b));
        if given.len() != self.secret.len() || differ != 0 {
            return Err(Refused::Wrong);
        }
        let mut logins = lock(&self.logins);
        logins.retain(|_, begun| begun.elapsed() < LOGIN);
        if logins.len() >= LOGINS {
            return Err(Refused::TooMany);
        }
        let login = secret().map_err(|_| Refused::TooMany)?;
        logins.insert(login.clone(), Instant::now());
        Ok(login)
    }

    /// Whether a login lasts.
    pub fn knows(&self, login: &str) -> bool {
        lock(&self.logins).get(login).is_some_and(|begun| begun.elapsed() < LOGIN)
    }

    /// Ends a login.
    pub fn logout(&self, login: &str) {
        lock(&self.logins).remove(login);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_the_file_gets_in_and_no_other() {
        let path = std::env::temp_dir().join(format!("weft-console-key-{}", std::process::id()));
        let key = Key::open(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let text = std::fs::read_to_string(&path).unwrap();
        let login = key.login(&text).unwrap();
        assert!(key.knows(&login) && !key.knows("") && !key.knows(&text));
        key.logout(&login);
        assert!(!key.knows(&login));
        let again = Key::open(&path).unwrap();
        assert!(again.login(text.trim().strip_prefix(PREFIX).unwrap()).is_ok(), "the key stays the same");
        for wrong in ["", "x", &text[..text.len() - 2], &format!("{}0", text.trim())] {
            assert_eq!(again.login(wrong), Err(Refused::Wrong), "{wrong}");
        }
        // Wrong keys keep nobody out who has the right one.
        assert!(again.login(&text).is_ok());
        while lock(&again.logins).len() < LOGINS {
            assert!(again.login(&text).is_ok());
        }
        assert_eq!(again.login(&text), Err(Refused::TooMany));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(Key::open(&path).is_err_and(|why| why.to_string().contains("chmod 600")));
        std::fs::remove_file(path).unwrap();
    }
}
