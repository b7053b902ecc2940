//! Pages of keys in byte order. A page is found by going down the directories in the order of keys
//! and leaving out those that cannot have one of it. A large directory is read whole; its entries
//! are then kept for the next pages of the same listing, which ask for them by a token.

use crate::failure::{failed, is};
use crate::level::{self, Entry, Level};
use crate::objects::Objects;
use fs::{Attributes, Ino};
use rustix::io::Errno;
use s3s::{S3Result, s3_error};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Directories with fewer entries are read again for each page.
const KEPT_FROM: usize = 2000;
/// How long the entries of a listing are kept after its last page.
const KEPT_FOR: Duration = Duration::from_secs(120);

/// What a page is asked of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Question {
    /// The bucket.
    pub bucket: String,
    /// What all keys begin with.
    pub prefix: String,
    /// Keys are told together up to this text, if it comes behind the prefix.
    pub delimiter: Option<String>,
    /// Keys and common prefixes are behind this one.
    pub after: String,
}

/// A page.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// Keys and their files, in order.
    pub keys: Vec<(String, Attributes)>,
    /// Common prefixes, in order.
    pub prefixes: Vec<String>,
    /// The last of both, if there are more behind it.
    pub last: Option<String>,
}

impl Page {
    fn len(&self) -> usize {
        self.keys.len() + self.prefixes.len()
    }
}

/// The directories of one listing.
struct Kept {
    levels: HashMap<Ino, Arc<Level>>,
    bytes: u64,
    used: Instant,
}

/// The listings that clients are in the middle of, by what they ask for next.
pub struct Listings {
    kept: Mutex<HashMap<Question, Kept>>,
    memory: u64,
}

impl Listings {
    /// Keeps entries that take this many bytes.
    pub fn new(memory: u64) -> Self {
        Self { kept: Mutex::default(), memory }
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<Question, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Up to `limit` keys and common prefixes.
    ///
    /// # Errors
    /// `NoSuchBucket`; when a directory cannot be read.
    pub fn page(&self, objects: &Objects, question: &Question, limit: usize) -> S3Result<Page> {
        let bucket = objects.bucket(&question.bucket)?.ino;
        let levels = self.kept().remove(question).map(|kept| kept.levels).unwrap_or_default();
        let mut walk =
            Walk { objects, question, limit, page: Page::default(), more: false, levels, memory: self.memory };
        if limit > 0 {
            walk.below(bucket, "")?;
        }
        let Walk { mut page, more, levels, .. } = walk;
        if more {
            let last = page.keys.last().map(|(key, _)| key).max(page.prefixes.last()).cloned().unwrap_or_default();
            let large = levels.into_iter().filter(|(_, level)| level.is_complete && level.entries.len() >= KEPT_FROM);
            self.keep(Question { after: last.clone(), ..question.clone() }, large.collect());
            page.last = Some(last);
        }
        Ok(page)
    }

    fn keep(&self, next: Question, levels: HashMap<Ino, Arc<Level>>) {
        if levels.is_empty() {
            return;
        }
        let bytes = levels.values().flat_map(|level| &level.entries).map(Entry::bytes).sum();
        let mut kept = self.kept();
        kept.retain(|_, listing| listing.used.elapsed() < KEPT_FOR);
        kept.insert(next, Kept { levels, bytes, used: Instant::now() });
        while kept.values().map(|listing| listing.bytes).sum::<u64>() > self.memory {
            let Some(oldest) = kept.iter().min_by_key(|(_, listing)| listing.used).map(|(asked, _)| asked.clone())
            else {
                break;
            };
            kept.remove(&oldest);
        }
    }
}

/// A page that is being found.
struct Walk<'a> {
    objects: &'a Objects,
    question: &'a Question,
    limit: usize,
    page: Page,
    /// The page is full, and something is behind it.
    more: bool,
    levels: HashMap<Ino, Arc<Level>>,
    memory: u64,
}

impl Walk<'_> {
    /// Looks at a directory whose keys begin with `base`.
    fn below(&mut self, directory: Ino, base: &str) -> S3Result<()> {
        self.look(directory, base)?;
        if !self.more {
            // The next page begins behind it.
            self.levels.remove(&directory);
        }
        Ok(())
    }

    fn look(&mut self, directory: Ino, base: &str) -> S3Result<()> {
        let Question { prefix, after, .. } = self.question;
        // What entries must be behind, or begin with.
        let mut from = after.strip_prefix(base).unwrap_or_default().to_owned();
        if let Some(rest) = prefix.strip_prefix(base)
            && *rest > *from
        {
            from = rest.to_owned();
        }
        let mut is_kept = self.levels.contains_key(&directory);
        loop {
            let level = self.level(directory, &from)?;
            let begin = first(&level.entries, &from);
            for entry in &level.entries[begin..] {
                // All with the prefix are before this one.
                let rest = prefix.strip_prefix(base).unwrap_or_default();
                let is_past = entry.part.as_str() > rest && !entry.part.starts_with(rest);
                if !is_past {
                    self.visit(directory, base, entry, is_kept)?;
                }
                if self.more || is_past {
                    return Ok(());
                }
            }
            match level.entries.last() {
                Some(last) if !level.is_complete => {
                    from = behind(last);
                    self.levels.remove(&directory);
                    is_kept = false;
                }
                _ => return Ok(()),
            }
        }
    }

    fn level(&mut self, directory: Ino, from: &str) -> S3Result<Arc<Level>> {
        if let Some(level) = self.levels.get(&directory) {
            return Ok(level.clone());
        }
        // Several requests read at a time.
        let (least, memory) = (self.limit + 2, self.memory / 4);
        let level = match level::read(self.objects, directory, from, least, memory) {
            Ok(level) => level,
            // It was removed since.
            Err(error) if is(&error, Errno::NOENT) => Level { entries: Vec::new(), is_complete: true },
            Err(error) => return Err(failed(&error)),
        };
        let level = Arc::new(level);
        self.levels.insert(directory, level.clone());
        Ok(level)
    }

    fn visit(&mut self, directory: Ino, base: &str, entry: &Entry, is_kept: bool) -> S3Result<()> {
        let Question { prefix, delimiter, after, .. } = self.question;
        let full = format!("{base}{}", entry.part);
        let is_directory = entry.is_directory();
        let may_match = full.starts_with(prefix.as_str()) || is_directory && prefix.starts_with(&full);
        let is_behind = full > *after || is_directory && after.starts_with(&full);
        if !may_match || !is_behind {
            return Ok(());
        }
        let rest = full.strip_prefix(prefix.as_str()).unwrap_or_default();
        let cut = delimiter.as_deref().filter(|text| !text.is_empty());
        if let Some(end) = cut.and_then(|text| Some(rest.find(text)? + text.len())) {
            let common = &full[..prefix.len() + end];
            if *common != **after && self.page.prefixes.last().is_none_or(|last| last != common) {
                self.add(|page| page.prefixes.push(common.to_owned()));
            }
            return Ok(());
        }
        if is_directory {
            return self.below(entry.file.ino, &full);
        }
        // What was kept may have changed since.
        let file = match is_kept {
            true => match self.objects.fs.lookup(directory, &entry.name) {
                Ok(now) if now.kind == fs::FileKind::File => now,
                Ok(_) => return Ok(()),
                Err(error) if is(&error, Errno::NOENT) => return Ok(()),
                Err(error) => return Err(failed(&error)),
            },
            false => entry.file,
        };
        self.add(|page| page.keys.push((full, file)));
        Ok(())
    }

    fn add(&mut self, push: impl FnOnce(&mut Page)) {
        if self.page.len() == self.limit {
            self.more = true;
        } else {
            push(&mut self.page);
        }
    }
}

/// The first entry that can have keys from a text on: the directory that the text is below, if it
/// is below one.
fn first(entries: &[Entry], from: &str) -> usize {
    let lowest = from.find('/').map_or(from, |slash| &from[..=slash]);
    entries.partition_point(|entry| entry.part.as_str() < lowest)
}

/// The lowest text behind an entry and all keys below it.
fn behind(entry: &Entry) -> String {
    match entry.part.strip_suffix('/') {
        // `0` is the next character after a slash.
        Some(directory) => format!("{directory}0"),
        None => format!("{}\0", entry.part),
    }
}

/// A token for the next page of a listing.
pub fn token(last: &str) -> String {
    base64_simd::URL_SAFE_NO_PAD.encode_to_string(last)
}

/// Where a token goes on.
///
/// # Errors
/// `InvalidArgument`.
pub fn from_token(token: &str) -> S3Result<String> {
    let bytes = base64_simd::URL_SAFE_NO_PAD.decode_to_vec(token).ok();
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    text.ok_or_else(|| s3_error!(InvalidArgument, "the continuation token is not one of this gateway's"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_comes_back() {
        assert_eq!(from_token(&token("a/ä b")).unwrap(), "a/ä b");
        assert!(from_token("*").is_err());
    }
}
