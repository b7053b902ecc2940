//! Reads the end of a text file that another program keeps writing, with a limit on each read.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The most bytes that are read of a file at once.
const MAX_READ_BYTES: u64 = 16 << 20;

/// The message for a file that cannot be read: the reason, and what to do.
pub fn unreadable(path: &Path, error: &std::io::Error) -> String {
    let path = path.display();
    match error.kind() {
        std::io::ErrorKind::NotFound => format!("{path}: there is no such file"),
        std::io::ErrorKind::PermissionDenied => {
            format!("{path}: permission denied; run as root, or let this user read it")
        }
        _ => format!("{path}: {error}"),
    }
}

/// The last `most` bytes of a file as text, and when it was written.
pub fn last(path: &Path, most: u64) -> Result<(String, SystemTime), String> {
    let read = || {
        let mut file = File::open(path)?;
        let metadata = file.metadata()?;
        file.seek(SeekFrom::Start(metadata.len().saturating_sub(most)))?;
        let mut bytes = vec![];
        file.take(most).read_to_end(&mut bytes)?;
        Ok((String::from_utf8_lossy(&bytes).into_owned(), metadata.modified()?))
    };
    read().map_err(|error| unreadable(path, &error))
}

/// Reads whole lines as they are added.
pub struct Tail {
    path: PathBuf,
    offset: u64,
    /// Whether the beginning of the next line is cut off.
    cut: bool,
    /// The beginning of a line whose end has not been written.
    rest: Vec<u8>,
}

impl Tail {
    /// Starts with the last `before` bytes of the file; only whole lines count.
    pub fn open(path: &Path, before: u64) -> Result<Self, String> {
        let length = std::fs::metadata(path).map_err(|error| unreadable(path, &error))?.len();
        // Read one byte more, so that a line that begins exactly there counts as whole.
        let offset = length.saturating_sub(before + 1);
        Ok(Self { path: path.to_owned(), offset, cut: offset > 0, rest: vec![] })
    }

    /// The lines that were added. A file that became shorter is new and is read from its beginning.
    pub fn lines(&mut self) -> Result<Vec<String>, String> {
        self.fill().map_err(|error| unreadable(&self.path, &error))?;
        let whole = self.rest.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let text = String::from_utf8_lossy(&self.rest[..whole]);
        let skipped = usize::from(self.cut && whole > 0);
        let lines = text.lines().skip(skipped).map(str::to_owned).collect();
        self.cut &= whole == 0;
        self.rest.drain(..whole);
        if self.rest.len() as u64 >= MAX_READ_BYTES {
            return Err(format!("{}: a line of more than {MAX_READ_BYTES} bytes", self.path.display()));
        }
        Ok(lines)
    }

    fn fill(&mut self) -> std::io::Result<()> {
        let mut file = File::open(&self.path)?;
        if file.metadata()?.len() < self.offset {
            (self.offset, self.cut) = (0, false);
            self.rest.clear();
        }
        file.seek(SeekFrom::Start(self.offset))?;
        self.offset += file.take(MAX_READ_BYTES).read_to_end(&mut self.rest)? as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::source::testing::Scratch;
    use super::*;

    #[test]
    fn lines_are_whole_and_come_once() {
        let scratch = Scratch::new("tail");
        let path = scratch.file("log", "first\nsecond\nthird\nfou");
        let mut all = Tail::open(&path, 1000).unwrap();
        assert_eq!(all.lines().unwrap(), ["first", "second", "third"]);
        let mut end = Tail::open(&path, 10).unwrap();
        assert_eq!(end.lines().unwrap(), ["third"], "second is cut");
        let mut exact = Tail::open(&path, 9).unwrap();
        assert_eq!(exact.lines().unwrap(), ["third"], "third begins there");
        scratch.append("log", "rth\n");
        assert_eq!(all.lines().unwrap(), ["fourth"]);
        assert_eq!(all.lines().unwrap(), Vec::<String>::new());
        scratch.file("log", "new\n");
        assert_eq!(all.lines().unwrap(), ["new"]);
        std::fs::remove_file(&path).unwrap();
        assert!(all.lines().unwrap_err().contains("no such file"));
    }
}
