//! Access keys: one file for each in the volume, so that all gateways know them. The secret is
//! sealed with a key that is not in the volume (ChaCha20-Poly1305, RFC 8439), so who reads disks or
//! backups cannot sign requests. What a key may do is sealed with it.

pub use crate::rights::Rights;
use fs::{FileKind, FileSystem, RenameMode};
use objects::home::{Home, is_missing, new};
use objects::multipart::entries;
use objects::text::{hex, unhex};
use objects::{KEY, Objects, now};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// What access keys begin with.
const PREFIX: &str = "WEFT";
/// The letters of a key's name: they are not taken for each other.
const LETTERS: &[u8; 32] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";
/// How long a stored key may be, in bytes.
const MAX_STORED: usize = 64 << 10;

/// A key without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Key {
    /// Its name, which requests show.
    pub id: String,
    /// When it was made or rotated, in seconds since 1970.
    pub since: i64,
    /// What it may do.
    pub rights: Rights,
}

/// A key as it is stored.
#[derive(Serialize, Deserialize)]
struct Stored {
    since: i64,
    rights: Rights,
    nonce: String,
    sealed: String,
}

/// The key that seals secrets.
pub struct KeyFile(LessSafeKey);

fn random<const N: usize>() -> fs::Result<[u8; N]> {
    let mut bytes = [0; N];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| fs::Error::Unavailable("the system has no random bytes".into()))?;
    Ok(bytes)
}

fn unusable(path: &Path, why: &dyn std::fmt::Display) -> fs::Error {
    fs::Error::Invalid(format!("{}: {why}", path.display()))
}

impl KeyFile {
    /// Reads it: 64 hexadecimal digits.
    ///
    /// # Errors
    /// When it cannot be read, or is something else.
    pub fn read(path: &Path) -> fs::Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|why| unusable(path, &why))?;
        let bytes = unhex(text.trim()).filter(|bytes| bytes.len() == 32);
        let bytes = bytes.ok_or_else(|| unusable(path, &"is not a key file: 64 hexadecimal digits"))?;
        let key = UnboundKey::new(&CHACHA20_POLY1305, &bytes).map_err(|_| unusable(path, &"is not a key"))?;
        Ok(Self(LessSafeKey::new(key)))
    }

    /// Makes a new one, for this user alone.
    ///
    /// # Errors
    /// When there is one already, or it cannot be written.
    pub fn make(path: &Path) -> fs::Result<Self> {
        let digits = hex(&random::<32>()?);
        let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let written = made.and_then(|mut file| {
            writeln!(file, "{digits}")?;
            file.sync_all()
        });
        written.map_err(|why| unusable(path, &why))?;
        Self::read(path)
    }
}

/// The keys of a volume.
pub struct Keys<'a> {
    fs: &'a FileSystem,
    home: Home,
    key: &'a KeyFile,
}

/// What a secret is sealed together with: it opens only for this key and these rights.
fn sealed_with(id: &str, since: i64, rights: &Rights) -> Aad<Vec<u8>> {
    Aad::from(format!("{id}\n{since}\n{}", rights.sealed_text()).into_bytes())
}

impl<'a> Keys<'a> {
    /// The keys of the objects' volume.
    pub fn of(objects: &'a Objects, key: &'a KeyFile) -> Self {
        Self { fs: &objects.fs, home: objects.home, key }
    }

    /// Makes a key, and returns its name and its secret, which nothing shows again.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub fn add(&self, rights: Rights) -> fs::Result<(String, String)> {
        let letters = random::<16>()?;
        let id: String = letters.iter().map(|&byte| char::from(LETTERS[usize::from(byte) % LETTERS.len()])).collect();
        let id = format!("{PREFIX}{id}");
        let secret = self.store(&id, rights, RenameMode::NoReplace)?;
        Ok((id, secret))
    }

    /// Gives a key a new secret, and returns it. The old one is void.
    ///
    /// # Errors
    /// When there is no such key, or it cannot be stored.
    pub fn rotate(&self, id: &str) -> fs::Result<String> {
        let (_, rights) = self.secret(id)?.ok_or_else(|| no_key(id))?;
        self.store(id, rights, RenameMode::Replace)
    }

    fn store(&self, id: &str, rights: Rights, mode: RenameMode) -> fs::Result<String> {
        let secret = base64_simd::URL_SAFE_NO_PAD.encode_to_string(random::<30>()?);
        let (since, nonce) = (now().seconds, random::<NONCE_LEN>()?);
        let mut sealed = secret.clone().into_bytes();
        let with = sealed_with(id, since, &rights);
        let done = self.key.0.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), with, &mut sealed);
        done.map_err(|_| fs::Error::Invalid("the secret cannot be sealed".into()))?;
        let stored = Stored { since, rights, nonce: hex(&nonce), sealed: hex(&sealed) };
        let bytes = serde_json::to_vec(&stored).map_err(|why| fs::Error::Invalid(why.to_string()))?;
        let temporary = [KEY, hex(&random::<8>()?).as_bytes()].concat();
        let from = (self.home.temporary, &temporary[..]);
        let made = self.fs.make(from.0, from.1, &new(FileKind::File, 0o600))?;
        let written = || {
            self.fs.write(made.ino, 0, &bytes)?;
            self.fs.sync(made.ino)?;
            self.fs.rename(from, (self.home.keys, id.as_bytes()), mode)?;
            self.fs.sync(self.home.keys)
        };
        written().inspect_err(|_| _ = self.fs.unlink(from.0, from.1))?;
        Ok(secret)
    }

    /// Removes a key.
    ///
    /// # Errors
    /// When there is no such key.
    pub fn remove(&self, id: &str) -> fs::Result<()> {
        check(id)?;
        self.fs.unlink(self.home.keys, id.as_bytes()).map_err(|why| if is_missing(&why) { no_key(id) } else { why })?;
        self.fs.sync(self.home.keys)
    }

    /// The secret of a key and what it may do; None when there is no such key.
    ///
    /// # Errors
    /// When it cannot be read, or another key file sealed it.
    pub fn secret(&self, id: &str) -> fs::Result<Option<(String, Rights)>> {
        if check(id).is_err() {
            return Ok(None);
        }
        let found = match self.fs.lookup(self.home.keys, id.as_bytes()) {
            Ok(found) => found,
            Err(error) if is_missing(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let Stored { since, rights, nonce, sealed } = stored(self.fs, &found)?;
        let wrong = || fs::Error::Invalid(format!("the key file does not open the key {id}"));
        let nonce = unhex(&nonce).and_then(|nonce| <[u8; NONCE_LEN]>::try_from(nonce).ok()).ok_or_else(wrong)?;
        let mut sealed = unhex(&sealed).ok_or_else(wrong)?;
        let with = sealed_with(id, since, &rights);
        let opened = self.key.0.open_in_place(Nonce::assume_unique_for_key(nonce), with, &mut sealed);
        let secret = opened.map_err(|_| wrong())?.to_vec();
        Ok(Some((String::from_utf8(secret).map_err(|_| wrong())?, rights)))
    }
}

fn stored(fs: &FileSystem, found: &fs::Attributes) -> fs::Result<Stored> {
    let mut bytes = vec![0; (found.size as usize).min(MAX_STORED)];
    let length = fs.read(found.ino, 0, &mut bytes)?;
    serde_json::from_slice(&bytes[..length]).map_err(|why| fs::Error::Invalid(format!("a stored access key: {why}")))
}

/// The keys of a volume, without their secrets, in order.
///
/// # Errors
/// When they cannot be read.
pub fn list(objects: &Objects) -> fs::Result<Vec<Key>> {
    let mut keys = Vec::new();
    for (name, file) in entries(objects, objects.home.keys)? {
        let Stored { since, rights, .. } = stored(&objects.fs, &file)?;
        keys.push(Key { id: String::from_utf8_lossy(&name).into_owned(), since, rights });
    }
    keys.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(keys)
}

fn no_key(id: &str) -> fs::Error {
    fs::Error::NotFound(format!("there is no access key {id}"))
}

/// Checks that an access key may be the name of a file.
///
/// # Errors
/// When it is not 1 to 128 letters and digits.
pub fn check(id: &str) -> fs::Result<()> {
    let is_name = (1..=128).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if is_name { Ok(()) } else { Err(no_key(id)) }
}
