//! A stack that keeps only its top in memory: for trees with more directories than memory should
//! hold.

use crate::transport::Broken;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The most entries in memory.
const IN_MEMORY: usize = 32_768;

/// A stack: last in, first out.
pub struct Stack<T> {
    top: Vec<T>,
    /// The blocks of lower entries in the file: their offsets and lengths.
    blocks: Vec<(u64, usize)>,
    file: Option<File>,
    most: usize,
}

impl<T> Default for Stack<T> {
    fn default() -> Self {
        Self { top: Vec::new(), blocks: Vec::new(), file: None, most: IN_MEMORY }
    }
}

impl<T: Serialize + DeserializeOwned> Stack<T> {
    /// Pushes an entry.
    pub fn push(&mut self, one: T) {
        self.top.push(one);
        if self.top.len() > self.most {
            // Without space on disk, the entries stay in memory.
            let _ = self.spill();
        }
    }

    fn spill(&mut self) -> std::io::Result<()> {
        if self.file.is_none() {
            self.file = Some(unnamed()?);
        }
        let Some(file) = &self.file else { return Ok(()) };
        let lower = self.top.len() / 2;
        let bytes = postcard::to_stdvec(&self.top[..lower]).map_err(std::io::Error::other)?;
        let at = self.blocks.last().map_or(0, |(at, length)| at + *length as u64);
        file.write_all_at(&bytes, at)?;
        self.top.drain(..lower);
        self.blocks.push((at, bytes.len()));
        Ok(())
    }

    /// Pops the top entry.
    ///
    /// # Errors
    /// If entries on disk cannot be read again.
    pub fn pop(&mut self) -> Result<Option<T>, Broken> {
        if self.top.is_empty()
            && let (Some((at, length)), Some(file)) = (self.blocks.pop(), &self.file)
        {
            let lost = |why: String| Broken(format!("cannot read the list of directories to walk: {why}"));
            let mut bytes = vec![0; length];
            file.read_exact_at(&mut bytes, at).map_err(|why| lost(why.to_string()))?;
            self.top = postcard::from_bytes(&bytes).map_err(|why| lost(why.to_string()))?;
        }
        Ok(self.top.pop())
    }

    /// Whether the stack is empty.
    pub fn is_empty(&self) -> bool {
        self.top.is_empty() && self.blocks.is_empty()
    }
}

/// A file without a name. It disappears when it is closed.
fn unnamed() -> std::io::Result<File> {
    let directory = std::env::temp_dir();
    let path = directory.join(format!(".weft-walk-{}-{:x}", std::process::id(), fastrand::u64(..)));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_disk_comes_back_in_order() {
        let mut stack = Stack { most: 10, ..Stack::default() };
        let mut oracle = Vec::new();
        let mut rng = fastrand::Rng::with_seed(7);
        for n in 0..3000u64 {
            stack.push(n);
            oracle.push(n);
            assert!(stack.top.len() <= 10);
            while rng.u8(..) < 120 {
                assert_eq!(stack.pop().unwrap(), oracle.pop());
            }
            assert_eq!(stack.is_empty(), oracle.is_empty());
        }
        assert!(!stack.blocks.is_empty(), "some of it is on disk");
        while let Some(one) = stack.pop().unwrap() {
            assert_eq!(Some(one), oracle.pop());
        }
        assert!(oracle.is_empty());
    }
}
