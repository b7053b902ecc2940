//! Lists of files that another program made: paths by line or by NUL, or the plan of a dry run.

use fs::Time;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, ErrorKind, Read};

/// The longest path in a list, in bytes.
const MAX_PATH_BYTES: u64 = 64 << 10;

/// What a plan expects of a file. A file that differs is not the one that was planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expected {
    /// Bytes of content.
    pub size: u64,
    /// Last change of content.
    pub modified: Time,
}

/// A file of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its path below the source.
    pub path: Vec<u8>,
    /// What the list expects of it.
    pub expected: Option<Expected>,
}

/// A list that is read as needed.
pub struct List {
    from: Box<dyn BufRead + Send>,
    separator: u8,
    plan: bool,
}

/// A line of a plan.
#[derive(Serialize, Deserialize)]
struct Line {
    path: Name,
    #[serde(flatten)]
    expected: Option<Expected>,
}

/// A path as text or, if it is not valid text, as numbers.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Name {
    Text(String),
    Bytes(Vec<u8>),
}

/// A line of a plan, without the line break.
pub fn plan_line(path: &[u8], expected: Option<Expected>) -> String {
    let path = String::from_utf8(path.to_vec()).map_or_else(|why| Name::Bytes(why.into_bytes()), Name::Text);
    serde_json::to_string(&Line { path, expected }).unwrap_or_default()
}

impl List {
    /// A list of paths, each followed by a separator.
    pub fn paths(from: Box<dyn BufRead + Send>, separator: u8) -> Self {
        Self { from, separator, plan: false }
    }

    /// A plan, after its first line.
    pub fn plan(from: Box<dyn BufRead + Send>) -> Self {
        Self { from, separator: b'\n', plan: true }
    }

    /// The next file; None at the end.
    ///
    /// # Errors
    /// If the list cannot be read, or if it is not a list.
    pub fn next_file(&mut self) -> std::io::Result<Option<Listed>> {
        loop {
            let mut bytes = Vec::new();
            if (&mut self.from).take(MAX_PATH_BYTES).read_until(self.separator, &mut bytes)? == 0 {
                return Ok(None);
            }
            match bytes.last() {
                Some(&last) if last == self.separator => _ = bytes.pop(),
                _ if bytes.len() as u64 >= MAX_PATH_BYTES => {
                    return Err(std::io::Error::new(ErrorKind::InvalidData, "a path in it is too long"));
                }
                _ => {}
            }
            if bytes.is_empty() {
                continue;
            }
            if !self.plan {
                return Ok(Some(Listed { path: bytes, expected: None }));
            }
            let line: Line = serde_json::from_slice(&bytes)?;
            let path = match line.path {
                Name::Text(text) => text.into_bytes(),
                Name::Bytes(bytes) => bytes,
            };
            return Ok(Some(Listed { path, expected: line.expected }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    #[test]
    fn paths_end_where_they_should() {
        let mut list = List::paths(Box::new(Cursor::new(b"a\0new\nline\0\0last".to_vec())), 0);
        let paths: Vec<Vec<u8>> = std::iter::from_fn(|| list.next_file().unwrap()).map(|listed| listed.path).collect();
        assert_eq!(paths, [&b"a"[..], b"new\nline", b"last"]);
        let mut endless = List::paths(Box::new(Cursor::new(vec![b'x'; 100_000])), 0);
        assert!(endless.next_file().is_err());
    }

    #[test]
    fn lines_of_a_plan_come_back() {
        let expected = Expected { size: 5, modified: Time { seconds: -1, nanoseconds: 7 } };
        let all = [(&b"a \n\"b\""[..], Some(expected)), (b"\xFF\xFE", Some(expected)), (b"directory", None)];
        let text: String = all.iter().map(|(path, expected)| plan_line(path, *expected) + "\n").collect();
        assert_eq!(text.lines().count(), 3);
        let mut list = List::plan(Box::new(Cursor::new(text.into_bytes())));
        for (path, expected) in all {
            assert_eq!(list.next_file().unwrap(), Some(Listed { path: path.to_vec(), expected }));
        }
        assert_eq!(list.next_file().unwrap(), None);
        let mut none = List::plan(Box::new(Cursor::new(b"not a plan\n".to_vec())));
        assert!(none.next_file().is_err());
    }
}
