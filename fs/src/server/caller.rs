//! Authentication of sessions. A session belongs to the client that began it: with its number the
//! client gets a secret, a signature by the server over the number and the name in the client's
//! certificate. The server stores no secrets: a restarted server has the same key, and so can check
//! which numbers were given out, and to which clients.

use std::io;

/// Proves that a session belongs to a client.
pub type Secret = [u8; 16];

/// The setting of the volume with the key that signs session numbers.
pub(crate) const KEY: &str = "session key";
/// The setting with the sets of each session: after a crash, a session gets back only its own sets.
pub(crate) const SETS: &str = "sets of sessions";

/// Creates a new key.
///
/// # Errors
/// When the system has no random bytes.
pub(crate) fn new_key() -> io::Result<[u8; 32]> {
    let mut key = [0; 32];
    match rustix::rand::getrandom(&mut key[..], rustix::rand::GetRandomFlags::empty()) {
        Ok(length) if length == key.len() => Ok(key),
        Ok(_) => Err(io::Error::other("the system has too few random bytes")),
        Err(why) => Err(why.into()),
    }
}

/// The secret of a session.
pub(super) fn secret(key: &[u8; 32], session: u64, peer: &str) -> Secret {
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher.update(&session.to_le_bytes()).update(peer.as_bytes());
    let mut secret = Secret::default();
    secret.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    secret
}

/// Compares two secrets in constant time.
fn same(a: &Secret, b: &Secret) -> bool {
    a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

/// A client that proved that the session is its own, or that has none yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub(super) session: Option<u64>,
    /// The name in its certificate; empty without certificates.
    pub(super) peer: String,
}

impl Caller {
    /// A client in this process, which needs no secret.
    pub fn trusted(session: Option<u64>) -> Self {
        Self { session, peer: String::new() }
    }

    /// A client on the network; None when the session is not its own.
    pub(super) fn verified(key: &[u8; 32], session: u64, shown: &Secret, peer: &str) -> Option<Self> {
        let own = session == 0 || same(&secret(key, session, peer), shown);
        own.then(|| Self { session: (session != 0).then_some(session), peer: peer.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_its_clients_alone() {
        let key = new_key().unwrap();
        let shown = secret(&key, 7, "laptop");
        let of = |session, shown: &Secret, peer| Caller::verified(&key, session, shown, peer).is_some();
        assert!(of(7, &shown, "laptop"));
        assert!(!of(8, &shown, "laptop"), "another number");
        assert!(!of(7, &shown, "store1") && !of(7, &shown, ""), "another member");
        assert!(!of(7, &Secret::default(), "laptop"), "no secret");
        assert!(of(0, &Secret::default(), "anybody"), "who has none yet needs none");
        assert_eq!(Caller::verified(&key, 0, &shown, "x").unwrap().session, None);
        assert!(Caller::verified(&new_key().unwrap(), 7, &shown, "laptop").is_none(), "another volume");
    }
}
