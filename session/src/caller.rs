//! Authentication of sessions. A session belongs to the client that began it: with its number the
//! client gets a secret, a signature by the server over the number and the name in the client's
//! certificate. The server stores no secrets: a restarted server has the same key, and so can check
//! which numbers were given out, and to which clients.

use crate::port::Opening;
use plan::SessionId;
use std::io;

/// Proves that a session belongs to a client.
pub type Secret = [u8; 16];

/// Creates a new key.
///
/// # Errors
/// When the system has no random bytes.
pub(crate) fn new_key() -> io::Result<[u8; 32]> {
    random()
}

/// Creates the id of an opening.
///
/// # Errors
/// When the system has no random bytes.
pub(crate) fn new_id() -> io::Result<[u8; 16]> {
    random()
}

fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    match rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty()) {
        Ok(length) if length == N => Ok(bytes),
        Ok(_) => Err(io::Error::other("the system has too few random bytes")),
        Err(why) => Err(why.into()),
    }
}

/// The secret of a session.
pub(crate) fn secret(key: &[u8; 32], session: SessionId, peer: &str) -> Secret {
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher.update(&session.0.to_le_bytes()).update(peer.as_bytes());
    let mut secret = Secret::default();
    secret.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    secret
}

/// The secret that a client shows with a request for the server of one opening. The server of
/// another opening does not accept it: the client reclaims its session there first, and so knows
/// which opening each answer is from.
pub fn bound_secret(secret: &Secret, opening: &Opening) -> Secret {
    let mut hasher = blake3::Hasher::new();
    hasher.update(secret).update(&opening.number.to_le_bytes()).update(&opening.id);
    let mut bound = Secret::default();
    bound.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    bound
}

/// Compares two secrets in constant time.
fn same(a: &Secret, b: &Secret) -> bool {
    a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

/// A client that proved that the session is its own, or that has none yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub(crate) session: Option<SessionId>,
    /// The name in its certificate; empty without certificates.
    pub(crate) peer: String,
}

impl Caller {
    /// A client in this process, which needs no secret.
    pub fn trusted(session: Option<SessionId>) -> Self {
        Self { session, peer: String::new() }
    }

    /// A client on the network; None when the session is not its own.
    pub(crate) fn verified(
        key: &[u8; 32],
        session: SessionId,
        shown: &Secret,
        peer: &str,
        opening: &Opening,
    ) -> Option<Self> {
        let secret = secret(key, session, peer);
        let own = session == SessionId::NONE || same(&secret, shown) || same(&bound_secret(&secret, opening), shown);
        own.then(|| Self { session: session.given(), peer: peer.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_its_clients_alone() {
        let key = new_key().unwrap();
        let shown = secret(&key, SessionId(7), "laptop");
        let opening = Opening { number: 3, id: [4; 16] };
        let of =
            |session, shown: &Secret, peer| Caller::verified(&key, SessionId(session), shown, peer, &opening).is_some();
        assert!(of(7, &shown, "laptop"));
        assert!(!of(8, &shown, "laptop"), "another number");
        assert!(!of(7, &shown, "store1") && !of(7, &shown, ""), "another member");
        assert!(!of(7, &Secret::default(), "laptop"), "no secret");
        assert!(of(0, &Secret::default(), "anybody"), "who has none yet needs none");
        assert_eq!(Caller::verified(&key, SessionId::NONE, &shown, "x", &opening).unwrap().session, None);
        assert!(
            Caller::verified(&new_key().unwrap(), SessionId(7), &shown, "laptop", &opening).is_none(),
            "another volume"
        );
        assert!(of(7, &bound_secret(&shown, &opening), "laptop"));
        let others = [Opening { number: 4, ..opening }, Opening { id: [5; 16], ..opening }];
        assert!(!others.iter().any(|other| of(7, &bound_secret(&shown, other), "laptop")), "another opening");
    }
}
