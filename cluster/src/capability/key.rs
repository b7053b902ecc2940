//! The cluster's key: 32 random bytes in a file that only its owner can read. Every server has it,
//! no client has it. The key never appears on a command line or in a log.

use super::{Capability, Credentials, Refusal, Rights, SIGNED_BYTES, TOKEN_BYTES, Token, now_ms};
use fs::Error;
use plan::{SessionId, SetId};
use std::fmt;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;
use volume::lock;
use volume::target::TargetFile;

/// The name of the key's file, which lies beside the certificates.
pub const KEY_FILE: &str = "cluster.key";
/// The file begins with this.
const PREFIX: &str = "weft-cluster-key-1 ";
/// The purpose of the key that signs capabilities. Another purpose needs another text, which gives
/// another key.
const PURPOSE: &str = "weft 2026-11 chunk capability v1";
/// How long the servers' own tokens last. Servers make new ones in time.
pub(super) const OWN: Duration = Duration::from_secs(600);

/// Signs capabilities and verifies signatures.
pub struct ClusterKey {
    signing: [u8; blake3::KEY_LEN],
    own: Mutex<Option<(u64, Token)>>,
}

impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKey")
    }
}

impl ClusterKey {
    pub(super) fn new(secret: &[u8; 32]) -> Self {
        Self { signing: blake3::derive_key(PURPOSE, secret), own: Mutex::default() }
    }

    /// Creates a file with a new key. The file must not exist.
    ///
    /// # Errors
    /// When the file exists or cannot be written, or the system returns no random bytes.
    pub fn create(path: &Path) -> fs::Result<()> {
        let mut secret = [0; 32];
        let mut filled = 0;
        while filled < secret.len() {
            let more = rustix::rand::getrandom(&mut secret[filled..], rustix::rand::GetRandomFlags::empty());
            filled += more.map_err(|why| Error::Invalid(format!("the system has no random bytes: {why}")))?;
        }
        let text = format!("{PREFIX}{}\n", blake3::Hash::from_bytes(secret).to_hex());
        crate::whole::create(path, &text, 0o600)
            .map_err(|why| Error::Invalid(format!("cannot write {}: {why}", path.display())))
    }

    /// Reads the key from a file. None when the file does not exist or this user may not read it.
    ///
    /// # Errors
    /// When other users can access the file, or it contains no key.
    pub fn read(path: &Path) -> fs::Result<Option<Self>> {
        let shown = path.display();
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(why) if matches!(why.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => return Ok(None),
            Err(why) => return Err(Error::Invalid(format!("cannot read {shown}: {why}"))),
        };
        let mode = std::fs::metadata(path).map_or(0, |found| found.permissions().mode() & 0o777);
        if mode & 0o077 != 0 {
            return Err(Error::Invalid(format!("{shown}: others can use this key (mode {mode:o}); chmod 600 it")));
        }
        let secret = text.trim_end().strip_prefix(PREFIX).and_then(|digits| blake3::Hash::from_hex(digits).ok());
        let secret = secret.ok_or_else(|| {
            Error::Invalid(format!("{shown} is not a cluster key; copy the one that weft cluster init made"))
        })?;
        Ok(Some(Self::new(secret.as_bytes())))
    }

    fn signature(&self, signed: &[u8]) -> blake3::Hash {
        blake3::keyed_hash(&self.signing, signed)
    }

    /// Signs a capability.
    pub fn sign(&self, capability: &Capability) -> Token {
        let signed = capability.encode();
        let mut token = [0; TOKEN_BYTES];
        token[..SIGNED_BYTES].copy_from_slice(&signed);
        token[SIGNED_BYTES..].copy_from_slice(self.signature(&signed).as_bytes());
        Token(token)
    }

    /// Verifies a token and returns its content. The time that this takes does not depend on the
    /// signature.
    ///
    /// # Errors
    /// `Foreign` when the token is not signed with this key.
    pub fn open(&self, token: &Token) -> Result<Capability, Refusal> {
        // The comparison of hashes takes the same time wherever they differ.
        if self.signature(&token.0[..SIGNED_BYTES]) != token.signature() {
            return Err(Refusal::Foreign);
        }
        token.says().ok_or(Refusal::Foreign)
    }

    /// A token with all rights, valid at `now_ms` and for at least half of `OWN` after.
    pub(crate) fn own(&self, now_ms: u64) -> Token {
        let length = OWN.as_millis() as u64;
        let mut own = lock(&self.own);
        if let Some((made, token)) = *own
            && (made..made + length / 2).contains(&now_ms)
        {
            return token;
        }
        let expires_ms = now_ms.saturating_add(length);
        let everything = Capability {
            volume: [0; 16],
            set: SetId(0),
            rights: Rights::Everything,
            session: SessionId::NONE,
            expires_ms,
        };
        let token = self.sign(&everything);
        *own = Some((now_ms, token));
        token
    }
}

/// A process that has the key has all rights.
impl Credentials for ClusterKey {
    fn token(&self, _file: TargetFile, _changes: bool) -> Option<Token> {
        Some(self.own(now_ms()))
    }

    fn renew(&self, file: TargetFile, changes: bool, refused: Option<Token>) -> Option<Token> {
        *lock(&self.own) = None;
        self.token(file, changes).filter(|token| Some(*token) != refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capability() -> Capability {
        Capability { volume: [7; 16], set: SetId(5), rights: Rights::Read, session: SessionId(3), expires_ms: 1000 }
    }

    #[test]
    fn every_change_of_a_token_is_noticed() {
        let key = ClusterKey::new(&[1; 32]);
        let token = key.sign(&capability());
        assert_eq!(key.open(&token), Ok(capability()));
        for bit in 0..TOKEN_BYTES * 8 {
            let mut changed = token;
            changed.0[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(key.open(&changed), Err(Refusal::Foreign), "bit {bit}");
        }
        assert_eq!(ClusterKey::new(&[2; 32]).open(&token), Err(Refusal::Foreign));
    }

    /// A key for another purpose gives other signatures of the same bytes.
    #[test]
    fn the_secret_itself_signs_nothing() {
        let token = ClusterKey::new(&[1; 32]).sign(&capability());
        assert_ne!(blake3::keyed_hash(&[1; 32], &token.0[..SIGNED_BYTES]), token.signature());
    }

    #[test]
    fn a_server_makes_itself_a_new_token_in_time() {
        let key = ClusterKey::new(&[1; 32]);
        let (first, later) = (key.own(1000), key.own(1000 + 299_000));
        assert_eq!(first, later);
        let next = key.own(1000 + 300_000);
        assert_ne!(first, next);
        assert_eq!(next.says().unwrap().expires_ms, 1000 + 900_000);
        // The clock was set back.
        assert_eq!(key.own(500).says().unwrap().expires_ms, 500 + 600_000);
    }

    #[test]
    fn a_key_is_a_file_for_its_owner() {
        let place = std::env::temp_dir().join(format!("weft-key-{}", std::process::id()));
        std::fs::create_dir_all(&place).unwrap();
        let path = place.join(KEY_FILE);
        assert!(ClusterKey::read(&path).unwrap().is_none());
        ClusterKey::create(&path).unwrap();
        assert!(ClusterKey::create(&path).is_err(), "what is there stays");
        let token = ClusterKey::read(&path).unwrap().unwrap().sign(&capability());
        assert!(ClusterKey::read(&path).unwrap().unwrap().open(&token).is_ok());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        assert!(ClusterKey::read(&path).unwrap_err().to_string().contains("chmod 600"));
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        for bad in ["", "weft-cluster-key-1 ", "weft-cluster-key-1 12", "weft-cluster-key-2 00", "-----BEGIN"] {
            std::fs::write(&path, bad).unwrap();
            let said = ClusterKey::read(&path).unwrap_err().to_string();
            assert!(said.contains("not a cluster key"), "{said}");
        }
        std::fs::remove_dir_all(&place).unwrap();
    }
}
