//! Tokens: what one machine shows another to join its cluster.

use fs::Error;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

const SCHEME: &str = "weft-join://";

/// What a token makes of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A machine with servers: it gets the cluster's key, too.
    Server,
    /// A client that may mount volumes.
    Client,
    /// A client that may also change targets, and repair and check volumes.
    Operator,
}

impl Kind {
    /// Its word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
            Self::Operator => "operator",
        }
    }
}

impl FromStr for Kind {
    type Err = Error;

    fn from_str(word: &str) -> Result<Self, Error> {
        [Self::Server, Self::Client, Self::Operator]
            .into_iter()
            .find(|kind| kind.word() == word)
            .ok_or_else(|| Error::Invalid(format!("{word:?} is neither server, client nor operator")))
    }
}

/// A token. Its text is `weft-join://HOST:PORT/FINGERPRINT/SECRET`; its secret is nowhere else.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// `HOST:PORT` of the desk.
    pub address: String,
    /// The SHA-256 of the authority's certificate, in hexadecimal.
    pub(super) fingerprint: String,
    pub(super) secret: String,
}

impl Token {
    /// A token with a new secret.
    ///
    /// # Errors
    /// When the system has no random bytes.
    pub(super) fn new(address: &str, fingerprint: String) -> fs::Result<Self> {
        let secret = wire::admission::secret(16).map_err(|why| Error::Invalid(why.to_string()))?;
        Ok(Self { address: address.into(), fingerprint, secret })
    }

    /// The host of the desk, without brackets.
    pub(super) fn host(&self) -> String {
        wire::Address::from(&self.address).host().into()
    }

    /// The whole text, for the user alone.
    pub fn reveal(&self) -> String {
        format!("{SCHEME}{}/{}/{}", self.address, self.fingerprint, self.secret)
    }

    /// What is kept of its secret.
    pub(super) fn hash(secret: &str) -> blake3::Hash {
        blake3::hash(secret.as_bytes())
    }
}

/// Without its secret.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", self.address)
    }
}

impl FromStr for Token {
    type Err = Error;

    /// The message of an error does not repeat the text, which is secret.
    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = || Error::Invalid("this is not a token; weft cluster token prints one, as one word".into());
        let parts: Vec<&str> = text.trim().strip_prefix(SCHEME).ok_or_else(bad)?.split('/').collect();
        let [address, fingerprint, secret] = parts[..] else { return Err(bad()) };
        let is_hexadecimal = |text: &str, length| {
            text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        if !is_hexadecimal(fingerprint, 64) || !is_hexadecimal(secret, 32) {
            return Err(bad());
        }
        let address = crate::address::server(address).ok_or_else(bad)?;
        Ok(Self { address, fingerprint: fingerprint.into(), secret: secret.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_as_it_is_written_and_never_shown_by_chance() {
        let token = Token::new("10.0.0.1:7599", "a".repeat(64)).unwrap();
        assert_eq!(token.reveal().parse::<Token>().unwrap(), token);
        assert_eq!(token.host(), "10.0.0.1");
        assert!(!format!("{token:?}").contains(&token.secret));
        for cut in 0..token.reveal().len() {
            let why = token.reveal()[..cut].parse::<Token>().unwrap_err().to_string();
            assert!(!why.contains(&token.secret[..8]), "{why}");
        }
        let six: Token = format!("{SCHEME}[::1]:7599/{}/{}", "b".repeat(64), "c".repeat(32)).parse().unwrap();
        assert_eq!(six.host(), "::1");
    }
}
