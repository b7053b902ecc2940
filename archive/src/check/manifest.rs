//! The manifest of an archive: the hashes of all its files in the format of `b3sum`. It lies beside
//! the archive in the volume.
//!
//! The manifest is built from the hashes that are stored with the files, one directory at a time,
//! so that its length costs no memory.

use crate::encode::HASH;
use crate::encode::hash::Sealed;
use crate::transport::Broken;
use fs::{FileKind, FileSystem, New, ROOT, RenameMode, SetAttributes};
use plan::Ino;

/// How many entries one listing returns, and how many lines one write has.
const BATCH_ENTRIES: usize = 1000;
const WRITE_PIECE_BYTES: usize = 1 << 20;

/// The name of an archive's manifest. It lies beside the archive; the manifest of a whole volume
/// lies in its root.
pub fn manifest_name(path: &[u8]) -> Vec<u8> {
    [path, b".b3sums"].concat()
}

/// Appends a `b3sum` line for a file. A name with a line break or a backslash is escaped, and its
/// line is marked as escaped.
fn line(hash: &[u8; 32], path: &[u8], into: &mut Vec<u8>) {
    let escaped = path.iter().any(|byte| matches!(byte, b'\n' | b'\\'));
    if escaped {
        into.push(b'\\');
    }
    into.extend_from_slice(blake3::Hash::from(*hash).to_hex().as_bytes());
    into.extend_from_slice(b"  ");
    for &byte in path {
        match byte {
            b'\n' => into.extend_from_slice(b"\\n"),
            b'\\' => into.extend_from_slice(b"\\\\"),
            other => into.push(other),
        }
    }
    into.push(b'\n');
}

/// A manifest while it is being written.
struct Writing<'a> {
    volume: &'a FileSystem,
    ino: Ino,
    piece: Vec<u8>,
    files: u64,
    written: u64,
    hasher: blake3::Hasher,
}

impl Writing<'_> {
    fn flush(&mut self) -> Result<(), Broken> {
        self.volume.write(self.ino, self.written, &self.piece)?;
        self.hasher.update(&self.piece);
        self.written += self.piece.len() as u64;
        self.piece.clear();
        Ok(())
    }

    /// Adds all files below a directory, depth first. A listing resumes where it was left.
    fn tree(&mut self, top: Ino) -> Result<(), Broken> {
        let mut open: Vec<(Ino, u64, Vec<u8>)> = vec![(top, 0, Vec::new())];
        while let Some((ino, cookie, path)) = open.pop() {
            let listed = self.volume.list(ino, cookie, BATCH_ENTRIES)?;
            let Some(last) = listed.last() else { continue };
            open.push((ino, last.cookie, path.clone()));
            for entry in listed {
                let below = crate::message::join(&path, &entry.name);
                let attributes = entry.attributes;
                match attributes.kind {
                    FileKind::Directory => open.push((attributes.ino, 0, below)),
                    FileKind::File if attributes.ino != self.ino => {
                        let sealed = self.volume.attribute(attributes.ino, HASH).ok();
                        let sealed = sealed.and_then(|bytes| Sealed::decode(&bytes));
                        if let Some(sealed) = sealed.filter(|sealed| sealed.modified == attributes.modified) {
                            line(&sealed.hash, &below, &mut self.piece);
                            self.files += 1;
                        }
                    }
                    _ => {}
                }
                if self.piece.len() >= WRITE_PIECE_BYTES {
                    self.flush()?;
                }
            }
        }
        self.flush()
    }
}

/// Writes the manifest of an archive and replaces an older one. Returns the number of files in it.
///
/// # Errors
/// If the volume cannot be read or written.
pub fn write_manifest(volume: &FileSystem, path: &[u8]) -> Result<u64, Broken> {
    let full = manifest_name(path);
    let cut = full.iter().rposition(|&byte| byte == b'/');
    let (above, name) = cut.map_or((&b""[..], &full[..]), |cut| (&full[..cut], &full[cut + 1..]));
    let mut parent = ROOT;
    for name in above.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
        parent = volume.lookup(parent, name)?.ino;
    }
    let mut top = ROOT;
    for name in path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
        top = volume.lookup(top, name)?.ino;
    }
    let part = [b".", name, b".new"].concat();
    match volume.unlink(parent, &part) {
        Ok(()) | Err(fs::Error::Meta(meta::Error::NotFound)) => {}
        Err(error) => return Err(error.into()),
    }
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let new = New { kind: FileKind::File, mode: 0o644, uid, gid, device: 0, link: Vec::new() };
    let ino = volume.make(parent, &part, &new)?.ino;
    let mut writing = Writing { volume, ino, piece: Vec::new(), files: 0, written: 0, hasher: blake3::Hasher::new() };
    writing.tree(top)?;
    let (files, hash) = (writing.files, *writing.hasher.finalize().as_bytes());
    volume.set_attributes(ino, SetAttributes { mode: Some(0o444), ..SetAttributes::default() })?;
    volume.sync(ino)?;
    // The manifest gets a hash too, so that it is checked like the files of the archive.
    let sealed = Sealed { hash, modified: volume.attributes(ino)?.modified };
    volume.set_attribute(ino, HASH, &sealed.encode(), None)?;
    volume.rename((parent, &part), (parent, name), RenameMode::Replace)?;
    volume.sync(ROOT)?;
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_b3sum() {
        let mut lines = Vec::new();
        let hash = *blake3::hash(b"abc").as_bytes();
        line(&hash, b"a b", &mut lines);
        line(&hash, b"new\nline\\", &mut lines);
        let hex = "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85";
        assert_eq!(String::from_utf8(lines).unwrap(), format!("{hex}  a b\n\\{hex}  new\\nline\\\\\n"));
        assert_eq!(manifest_name(b"runs/7"), b"runs/7.b3sums");
        assert_eq!(manifest_name(b""), b".b3sums");
    }
}
