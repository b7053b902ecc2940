//! The two structures for names alone, in memory: an ordered map in the order of hashes, as Weft's
//! metadata has them, and an extendible hash, as ECFS has (Fagin and others, 1979).
//! A prototype to measure with; no part of Weft uses it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::hash::{DefaultHasher, Hasher};
use std::ops::Bound;

/// The bytes of a dinode: an inode and its name's place.
pub const DINODE_BYTES: usize = 64;
/// The bytes of a bucket of the hash.
const BUCKET_BYTES: usize = 4096;
/// What an entry has beside its name: hash, length, dinode.
const FIXED_BYTES: usize = 8 + 1 + DINODE_BYTES;
/// The most bits of the hash that its directory is indexed by.
const MAX_DEPTH: u32 = 28;

pub type Dinode = [u8; DINODE_BYTES];

/// The order of names: the top bits choose a bucket.
pub fn hash(name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(name);
    hasher.finish()
}

/// What a directory can do.
pub trait Names {
    /// Adds a name; false if it is there.
    fn create(&mut self, name: &[u8], dinode: &Dinode) -> bool;
    fn look_up(&self, name: &[u8]) -> Option<Dinode>;
    /// Calls `each` for the next names after a cookie, `limit` of them or a few more. Returns the
    /// cookie to go on with; None at the end.
    fn list(&self, cookie: Option<u64>, limit: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Option<u64>;
}

/// Names in the order of their hashes.
#[derive(Default)]
pub struct Ordered(BTreeMap<(u64, Box<[u8]>), Dinode>);

impl Names for Ordered {
    fn create(&mut self, name: &[u8], dinode: &Dinode) -> bool {
        match self.0.entry((hash(name), name.into())) {
            Entry::Occupied(_) => false,
            Entry::Vacant(place) => {
                place.insert(*dinode);
                true
            }
        }
    }

    fn look_up(&self, name: &[u8]) -> Option<Dinode> {
        self.0.get(&(hash(name), name.into())).copied()
    }

    fn list(&self, cookie: Option<u64>, limit: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Option<u64> {
        let from = match cookie.map(|last| last.checked_add(1)) {
            Some(None) => return None,
            Some(Some(next)) => Bound::Included((next, Box::default())),
            None => Bound::Unbounded,
        };
        let (mut count, mut last) = (0, None);
        for ((hash, name), dinode) in self.0.range((from, Bound::Unbounded)) {
            // Names of one hash stay together.
            if count >= limit && last != Some(*hash) {
                return last;
            }
            each(name, dinode);
            (count, last) = (count + 1, Some(*hash));
        }
        None
    }
}

/// A page of entries whose hashes begin with the same bits.
struct Bucket {
    depth: u32,
    page: Vec<u8>,
}

/// An entry in a page.
struct Stored<'a> {
    hash: u64,
    name: &'a [u8],
    dinode: &'a [u8],
    whole: &'a [u8],
}

impl Bucket {
    fn entries(&self) -> impl Iterator<Item = Stored<'_>> {
        let mut rest = &self.page[..];
        std::iter::from_fn(move || {
            let (head, _) = rest.split_first_chunk::<8>()?;
            let length = FIXED_BYTES + usize::from(rest[8]);
            let (whole, after) = rest.split_at(length);
            rest = after;
            let (name, dinode) = whole[9..].split_at(length - FIXED_BYTES);
            Some(Stored { hash: u64::from_le_bytes(*head), name, dinode, whole })
        })
    }
}

/// An extendible hash: a directory of 2^depth places, each with a bucket that may be that of its
/// neighbours, too. A full bucket is split in two, and the directory doubles where it must.
pub struct Extendible {
    depth: u32,
    directory: Vec<u32>,
    buckets: Vec<Bucket>,
}

impl Default for Extendible {
    fn default() -> Self {
        Self { depth: 0, directory: vec![0], buckets: vec![Bucket { depth: 0, page: Vec::new() }] }
    }
}

impl Extendible {
    fn place(&self, hash: u64) -> usize {
        if self.depth == 0 { 0 } else { (hash >> (64 - self.depth)) as usize }
    }

    /// Splits the bucket of a hash.
    fn split(&mut self, hash: u64) {
        let number = self.directory[self.place(hash)];
        let depth = self.buckets[number as usize].depth + 1;
        assert!(depth <= MAX_DEPTH, "a page has room for names that differ in so many bits");
        if depth > self.depth {
            self.directory = self.directory.iter().flat_map(|&bucket| [bucket, bucket]).collect();
            self.depth = depth;
        }
        let full = std::mem::take(&mut self.buckets[number as usize].page);
        let old = Bucket { depth, page: full };
        let (mut low, mut high) = (Vec::with_capacity(BUCKET_BYTES), Vec::with_capacity(BUCKET_BYTES));
        for entry in old.entries() {
            let half = if entry.hash >> (64 - depth) & 1 == 0 { &mut low } else { &mut high };
            half.extend_from_slice(entry.whole);
        }
        self.buckets[number as usize] = Bucket { depth, page: low };
        let new = self.buckets.len() as u32;
        self.buckets.push(Bucket { depth, page: high });
        // The places of the upper half get the new one.
        let (bits, first) = (self.depth - depth, (hash >> (64 - depth) | 1) as usize);
        self.directory[first << bits..(first + 1) << bits].fill(new);
    }

    /// How many buckets there are, and how full they are on average.
    pub fn fill(&self) -> (usize, f64) {
        let used: usize = self.buckets.iter().map(|bucket| bucket.page.len()).sum();
        (self.buckets.len(), used as f64 / (self.buckets.len() * BUCKET_BYTES) as f64)
    }
}

impl Names for Extendible {
    fn create(&mut self, name: &[u8], dinode: &Dinode) -> bool {
        let hash = hash(name);
        loop {
            let place = self.place(hash);
            let bucket = &mut self.buckets[self.directory[place] as usize];
            if bucket.entries().any(|entry| entry.hash == hash && entry.name == name) {
                return false;
            }
            if bucket.page.len() + FIXED_BYTES + name.len() <= BUCKET_BYTES {
                bucket.page.extend_from_slice(&hash.to_le_bytes());
                bucket.page.push(name.len() as u8);
                bucket.page.extend_from_slice(name);
                bucket.page.extend_from_slice(dinode);
                return true;
            }
            self.split(hash);
        }
    }

    fn look_up(&self, name: &[u8]) -> Option<Dinode> {
        let hash = hash(name);
        let bucket = &self.buckets[self.directory[self.place(hash)] as usize];
        let found = bucket.entries().find(|entry| entry.hash == hash && entry.name == name);
        found.and_then(|entry| entry.dinode.try_into().ok())
    }

    fn list(&self, cookie: Option<u64>, limit: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Option<u64> {
        let mut place = cookie.map_or(0, |last| self.place(last));
        let (mut count, mut last) = (0, cookie);
        while place < self.directory.len() {
            let bucket = &self.buckets[self.directory[place] as usize];
            // A page has no order: a cookie that survives a split takes one.
            let mut entries: Vec<Stored<'_>> =
                bucket.entries().filter(|entry| last.is_none_or(|last| entry.hash > last)).collect();
            entries.sort_unstable_by_key(|entry| entry.hash);
            entries.iter().for_each(|entry| each(entry.name, entry.dinode));
            (count, last) = (count + entries.len(), entries.last().map(|entry| entry.hash).or(last));
            // A cookie leads to the last of the places that its bucket has.
            let places = 1 << (self.depth - bucket.depth);
            place = (place & !(places - 1)) + places;
            if count >= limit {
                // The next page begins behind this one.
                let next = (place < self.directory.len()).then(|| (place as u64) << (64 - self.depth));
                return next.map(|first| first - 1);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn check(names: &mut dyn Names) {
        let name = |number: u32| format!("file {number:x}").into_bytes();
        let dinode = |number: u32| std::array::from_fn(|at| (number >> (at % 4 * 8)) as u8);
        for number in 0..20_000 {
            assert!(names.create(&name(number), &dinode(number)));
        }
        assert!(!names.create(&name(77), &dinode(0)));
        assert!((0..20_000).all(|number| names.look_up(&name(number)) == Some(dinode(number))));
        assert_eq!(names.look_up(b"file"), None);
        for limit in [1, 100, 1 << 20] {
            let (mut cookie, mut all, mut count) = (None, BTreeSet::new(), 0);
            loop {
                cookie = names.list(cookie, limit, &mut |name, dinode| {
                    assert_eq!(dinode.len(), DINODE_BYTES);
                    all.insert(name.to_vec());
                    count += 1;
                });
                if cookie.is_none() {
                    break;
                }
            }
            assert_eq!((all.len(), count), (20_000, 20_000), "{limit}");
        }
    }

    #[test]
    fn both_keep_all_names() {
        check(&mut Ordered::default());
        let mut hash = Extendible::default();
        check(&mut hash);
        let (buckets, fill) = hash.fill();
        assert!((300..1200).contains(&buckets) && (0.5..0.9).contains(&fill), "{buckets} {fill}");
    }
}
