//! Pages of keys in byte order. A page is found by going down the directories in the order of keys
//! and leaving out those that cannot have one of it. Nothing is kept for the next page: it begins
//! behind the last key of this one, whatever came and went meanwhile.

use crate::about::About;
use crate::failure::{Code, Result, failed, is};
use crate::level::{self, Entry, Level};
use crate::place::Objects;
use fs::{Attributes, FileKind, Ino, object_name};
use rustix::io::Errno;

/// What a page is asked of.
#[derive(Clone, Debug)]
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

/// An object of a page.
#[derive(Clone, Debug)]
pub struct Key {
    /// Its key.
    pub key: String,
    /// Its file.
    pub file: Attributes,
    /// What is kept of it, if that is known by now.
    pub about: Option<About>,
}

impl Key {
    /// Its file and what is kept of it. None when it went since.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn found(&self, objects: &Objects, bucket: &str) -> Result<Option<(Attributes, About)>> {
        if let Some(about) =
            self.about.clone().map_or_else(|| objects.about_if_there(&self.file), |about| Ok(Some(about)))?
        {
            return Ok(Some((self.file, about)));
        }
        // It was replaced or removed meanwhile.
        match objects.get(bucket, &self.key) {
            Ok((found, about)) => Ok(Some((found.file, about))),
            Err(why) if why.code() == Code::NoSuchKey => Ok(None),
            Err(why) => Err(why),
        }
    }
}

/// A page.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// Objects, in order.
    pub keys: Vec<Key>,
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

/// Finds pages.
pub struct Listings {
    /// What the entries of a directory may take in memory while they are read, in bytes, where the
    /// metadata does not list it in the order of keys.
    memory: u64,
    /// Whether the metadata is asked for that.
    by_key: bool,
}

impl Listings {
    /// By this much memory for each directory that is read whole, in bytes.
    pub fn new(memory: u64) -> Self {
        Self { memory, by_key: true }
    }

    /// The same, of a metadata that lists no directory in the order of keys.
    pub fn by_hash(memory: u64) -> Self {
        Self { memory, by_key: false }
    }

    /// Up to `limit` keys and common prefixes.
    ///
    /// # Errors
    /// `NoSuchBucket`; when a directory cannot be read.
    pub fn page(&self, objects: &Objects, question: &Question, limit: usize) -> Result<Page> {
        let bucket = objects.bucket(&question.bucket)?.ino;
        let mut walk = Walk { listings: self, objects, question, limit, page: Page::default(), more: false };
        if limit > 0 {
            walk.below(bucket, "")?;
        }
        let Walk { mut page, more, .. } = walk;
        if more {
            let key = page.keys.last().map(|key| &key.key);
            page.last = Some(key.max(page.prefixes.last()).cloned().unwrap_or_default());
        }
        Ok(page)
    }
}

/// The longest key of a request.
const MAX_KEY_BYTES: usize = 1024;

/// A page that is being found.
struct Walk<'a> {
    listings: &'a Listings,
    objects: &'a Objects,
    question: &'a Question,
    limit: usize,
    page: Page,
    /// The page is full, and something is behind it.
    more: bool,
}

impl Walk<'_> {
    /// Looks at a directory whose keys begin with `base`.
    fn below(&mut self, directory: Ino, base: &str) -> Result<()> {
        let Question { prefix, after, .. } = self.question;
        let rest = prefix.strip_prefix(base).unwrap_or_default();
        // What entries must be behind, or begin with.
        let behind = after.strip_prefix(base).unwrap_or_default();
        let lowest = rest.max(behind);
        let mut from = lowest.as_bytes().to_vec();
        if let Some(slash) = lowest.find('/') {
            // It is below this directory, which no other entry need be read for.
            let part = &lowest[..slash];
            if let Some(entry) = self.directory(directory, part)? {
                self.visit(base, &entry)?;
            }
            if self.more || rest.contains('/') {
                return Ok(());
            }
            from = [part.as_bytes(), b"0"].concat();
        }
        loop {
            let Level { entries, next } = self.level(directory, &from)?;
            let (mut at, mut skip) = (0, Vec::new());
            while let Some(entry) = entries.get(at) {
                at += 1;
                // All with the prefix are before this one.
                if entry.part.as_str() > rest && !entry.part.starts_with(rest) {
                    return Ok(());
                }
                if let Some(end) = self.visit(base, entry)? {
                    at += entries[at..].partition_point(|entry| entry.part.as_bytes() < &*end);
                    skip = end;
                }
                if self.more {
                    return Ok(());
                }
            }
            match next {
                Some(next) => from = next.max(skip),
                None => return Ok(()),
            }
        }
    }

    /// The directory of a part.
    fn directory(&self, parent: Ino, part: &str) -> Result<Option<Entry>> {
        let Ok(name) = object_name::name(part) else { return Ok(None) };
        let found = self.objects.entry(parent, &name)?.filter(|found| found.kind == FileKind::Directory);
        Ok(found.map(|file| Entry { part: format!("{part}/"), file, about: None }))
    }

    fn level(&self, directory: Ino, from: &[u8]) -> Result<Level> {
        // One more says whether there are more.
        let limit = self.limit + 1 - self.page.len();
        match self.read(directory, from, limit) {
            Ok(level) => Ok(level),
            // It was removed since.
            Err(error) if is(&error, Errno::NOENT) || is(&error, Errno::STALE) => Ok(Level::default()),
            Err(error) => Err(failed(&error)),
        }
    }

    fn read(&self, directory: Ino, from: &[u8], limit: usize) -> fs::Result<Level> {
        if self.listings.by_key
            && let Some(level) = level::read(self.objects, directory, from, limit)?
        {
            return Ok(level);
        }
        level::read_whole(self.objects, directory, from, limit + 1, self.listings.memory)
    }

    /// Looks at an entry. Where the next ones have the same common prefix, it returns a text behind
    /// them.
    fn visit(&mut self, base: &str, entry: &Entry) -> Result<Option<Vec<u8>>> {
        let Question { prefix, delimiter, after, .. } = self.question;
        let full = format!("{base}{}", entry.part);
        let is_directory = entry.is_directory();
        let may_match = full.starts_with(prefix.as_str()) || is_directory && prefix.starts_with(&full);
        let is_behind = full > *after || is_directory && after.starts_with(&full);
        if !may_match || !is_behind {
            return Ok(None);
        }
        let rest = full.strip_prefix(prefix.as_str()).unwrap_or_default();
        let cut = delimiter.as_deref().filter(|text| !text.is_empty());
        if let Some(end) = cut.and_then(|text| Some(rest.find(text)? + text.len())) {
            let common = &full[..prefix.len() + end];
            if *common != **after && self.page.prefixes.last().is_none_or(|last| last != common) {
                self.add(|page| page.prefixes.push(common.to_owned()));
            }
            // No character has this byte.
            return Ok(common.strip_prefix(base).map(|common| [common.as_bytes(), b"\xff"].concat()));
        }
        if is_directory {
            // A mount makes directories of any depth; no request can name what is in them.
            if full.len() < MAX_KEY_BYTES {
                self.below(entry.file.ino, &full)?;
            }
            return Ok(None);
        }
        let (file, about) = (entry.file, entry.about.clone());
        self.add(|page| page.keys.push(Key { key: full, file, about }));
        Ok(None)
    }

    fn add(&mut self, push: impl FnOnce(&mut Page)) {
        if self.page.len() == self.limit {
            self.more = true;
        } else {
            push(&mut self.page);
        }
    }
}
