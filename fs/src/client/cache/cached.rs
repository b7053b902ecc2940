//! The state behind [`Cache`](super::Cache): the cached metadata of a volume, and how changes
//! invalidate it. It has no clock and sends no requests.

use crate::data::windows::Windows;
use meta::{Attributes, Listed};
use plan::{Extent, Ino};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::time::Instant;

/// The most names and files in the cache; with more, all are dropped.
const MAX_CACHED_NAMES: usize = 1 << 16;
/// The most cached extents of all files, by [`Windows::weight`].
const MAX_CACHED_EXTENTS: usize = 1 << 16;
/// After this many requests within a while, a file's extents are requested for a whole window.
const WINDOW_AFTER_MISSES: u32 = 8;
/// The lookups in a directory that go to the server before its next entries are read together.
const LIST_AFTER_MISSES: u32 = 8;
/// The largest such number, for directories where reading entries did not help.
const MAX_LIST_AFTER_MISSES: u32 = 4096;

/// The whole cached state.
#[derive(Debug, Default)]
pub(super) struct CachedState {
    period: u64,
    /// Changes that began or ended.
    changes: u64,
    /// Changes in progress.
    changing: u32,
    files: HashMap<Ino, Attributes>,
    /// Files that give no privileges to their executors.
    unprivileged: HashSet<Ino>,
    directories: HashMap<Ino, Directory>,
    names: usize,
    contents: HashMap<Ino, Windows>,
    /// The weight of all extents.
    extents: usize,
}

/// The cached part of a directory.
#[derive(Debug)]
struct Directory {
    names: HashMap<Box<[u8]>, Name>,
    /// Where reading continues; None at the end of the directory: a name that is not cached does
    /// not exist then.
    cookie: Option<u64>,
    /// Lookups since entries were last read: cached ones, and others.
    hits: u32,
    misses: u32,
    /// The misses after which more entries are read.
    list_after: u32,
}

/// The cached state of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    /// It belongs to this file.
    Of(Ino),
    /// It does not exist.
    Nobodys,
    /// It was changed and not looked up since.
    Unsure,
}

impl Directory {
    /// A directory that was just created.
    fn empty() -> Self {
        Self { cookie: None, ..Self::default() }
    }

    fn name(&self, name: &[u8]) -> Name {
        let others = if self.cookie.is_none() { Name::Nobodys } else { Name::Unsure };
        self.names.get(name).copied().unwrap_or(others)
    }
}

impl Default for Directory {
    fn default() -> Self {
        // Start as if entries had been read and had helped.
        Self {
            names: HashMap::new(),
            cookie: Some(0),
            hits: LIST_AFTER_MISSES,
            misses: 0,
            list_after: LIST_AFTER_MISSES,
        }
    }
}

/// What a change affects.
#[derive(Clone, Debug, Default)]
pub(super) struct Concerned<'a> {
    /// Files whose attributes, and maybe contents, change.
    pub files: Vec<Ino>,
    /// Names that are added or removed.
    pub names: Vec<(Ino, &'a [u8])>,
    /// It may affect anything else, too.
    pub all: bool,
    /// When it ends, it is durable, as is everything that changed before it began.
    pub durably: bool,
}

/// The known result of a change.
pub(super) enum Now<'a> {
    /// A file has these attributes, and this name if one is given.
    File(Option<(Ino, &'a [u8])>, Attributes),
    /// A directory with this name is new and empty.
    Directory((Ino, &'a [u8]), Attributes),
}

impl Now<'_> {
    /// The file that it describes.
    pub fn ino(&self) -> Ino {
        match self {
            Now::File(_, attributes) | Now::Directory(_, attributes) => attributes.ino,
        }
    }
}

/// The moment of a request. Its answer may be cached only if nothing changed meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    period: u64,
    changes: u64,
}

impl CachedState {
    /// Begins a request in this period without other clients.
    pub fn ask(&mut self, period: u64) -> Asked {
        if self.period != period {
            self.forget_all();
            self.period = period;
        }
        Asked { period, changes: self.changes }
    }

    /// Whether the answer to a request is still valid.
    fn is_true(&self, asked: Asked) -> bool {
        self.changing == 0 && asked == Asked { period: self.period, changes: self.changes }
    }

    /// Whether the result of the only change in progress is valid: no other change began or ended
    /// since it began.
    fn is_own(&self, begun: Asked) -> bool {
        self.changing == 1 && begun == Asked { period: self.period, changes: self.changes }
    }

    /// Begins a change.
    pub fn begin(&mut self, concerned: &Concerned<'_>) -> Asked {
        self.changing += 1;
        self.changes += 1;
        self.forget(concerned);
        Asked { period: self.period, changes: self.changes }
    }

    /// Ends a change; `now` is the state after it, if known.
    pub fn end(&mut self, concerned: &Concerned<'_>, begun: Asked, now: Option<Now<'_>>) {
        let is_own = self.is_own(begun);
        self.changing -= 1;
        self.changes += 1;
        self.forget(concerned);
        match now.filter(|_| is_own) {
            Some(Now::File(name, attributes)) => self.put(name, Some(attributes)),
            Some(Now::Directory(name, attributes)) => {
                self.put(Some(name), Some(attributes));
                self.directories.insert(attributes.ino, Directory::empty());
            }
            None => {}
        }
    }

    fn forget(&mut self, concerned: &Concerned<'_>) {
        if concerned.all {
            return self.forget_all();
        }
        for ino in &concerned.files {
            self.files.remove(ino);
            self.unprivileged.remove(ino);
            self.forget_extents(*ino);
        }
        for &(parent, name) in &concerned.names {
            self.files.remove(&parent);
            let Some(directory) = self.directories.get_mut(&parent) else { continue };
            if directory.cookie == Some(0) {
                // It is found when reading begins.
                self.names -= usize::from(directory.names.remove(name).is_some());
            } else {
                self.names += usize::from(directory.names.insert(name.into(), Name::Unsure).is_none());
            }
        }
        if !self.has_space(0) {
            self.forget_names();
        }
    }

    /// Drops everything.
    pub fn forget_all(&mut self) {
        let Self { period, changes, changing, .. } = *self;
        *self = Self { period, changes, changing, ..Self::default() };
    }

    /// Another server took over, which may have lost some of what was cached: drops everything, and
    /// what answers of the one before say.
    pub fn take_over(&mut self) {
        self.changes += 1;
        self.forget_all();
    }

    /// Drops the cached extents of a file.
    pub fn forget_extents(&mut self, ino: Ino) {
        let gone = self.contents.remove(&ino);
        self.extents -= gone.map_or(0, |windows| windows.weight());
    }

    /// The attributes of a file.
    pub fn file(&self, ino: Ino) -> Option<Attributes> {
        self.files.get(&ino).copied()
    }

    /// Whether a file is known to give no privileges to its executors.
    pub fn is_unprivileged(&self, ino: Ino) -> bool {
        self.unprivileged.contains(&ino)
    }

    /// Caches that a file gives no privileges.
    pub fn learn_unprivileged(&mut self, asked: Asked, ino: Ino) {
        if self.is_true(asked) {
            if self.unprivileged.len() >= MAX_CACHED_NAMES {
                self.unprivileged = HashSet::new();
            }
            self.unprivileged.insert(ino);
        }
    }

    /// The cached result of a lookup; the inner None means that the name does not exist.
    pub fn name(&mut self, parent: Ino, name: &[u8]) -> Option<Option<Attributes>> {
        let directory = self.directories.get_mut(&parent)?;
        let found = match directory.name(name) {
            Name::Nobodys => Some(None),
            Name::Of(ino) => self.files.get(&ino).copied().map(Some),
            Name::Unsure => None,
        };
        directory.hits = directory.hits.saturating_add(u32::from(found.is_some()));
        found
    }

    /// The file of a cached name, even if its attributes are not cached.
    pub fn ino(&self, parent: Ino, name: &[u8]) -> Option<Ino> {
        if let Name::Of(ino) = self.directories.get(&parent)?.name(name) { Some(ino) } else { None }
    }

    /// Caches attributes.
    pub fn learn_file(&mut self, asked: Asked, attributes: Attributes) {
        if self.is_true(asked) {
            self.put(None, Some(attributes));
        }
    }

    /// Caches the result of a lookup. Returns the cookie from which to read entries of the
    /// directory if that is likely to save requests.
    pub fn learn_name(&mut self, asked: Asked, parent: Ino, name: &[u8], found: Option<Attributes>) -> Option<u64> {
        if !self.is_true(asked) {
            return None;
        }
        self.put(Some((parent, name)), found);
        let directory = self.directories.get_mut(&parent)?;
        directory.misses += u32::from(found.is_some());
        if directory.misses < directory.list_after {
            return None;
        }
        let helped = directory.hits >= directory.misses;
        directory.list_after =
            if helped { LIST_AFTER_MISSES } else { (directory.list_after * 2).min(MAX_LIST_AFTER_MISSES) };
        (directory.hits, directory.misses) = (0, 0);
        directory.cookie
    }

    /// Caches the entries of a directory after a cookie; an empty list means its end.
    pub fn learn_entries(&mut self, asked: Asked, parent: Ino, cookie: u64, listed: &[Listed]) {
        if !self.is_true(asked) {
            return;
        }
        // Make space before inserting: dropping names in between would make existing names look
        // absent.
        if !self.has_space(listed.len()) {
            self.forget_names();
        }
        if !self.has_space(listed.len()) {
            return;
        }
        for entry in listed {
            self.put(Some((parent, &entry.name)), Some(entry.attributes));
        }
        let directory = self.directories.entry(parent).or_default();
        if directory.cookie == Some(cookie) {
            directory.cookie = listed.last().map(|last| last.cookie);
        }
    }

    /// Whether `files` more files and their names fit.
    fn has_space(&self, files: usize) -> bool {
        self.files.len() + self.directories.len() + self.names + 2 * files < MAX_CACHED_NAMES
    }

    fn forget_names(&mut self) {
        (self.files, self.directories, self.names) = Default::default();
    }

    fn put(&mut self, name: Option<(Ino, &[u8])>, found: Option<Attributes>) {
        if !self.has_space(0) {
            self.forget_names();
        }
        if let Some((parent, name)) = name {
            let directory = self.directories.entry(parent).or_default();
            match found {
                // In a directory that is cached completely, names that are not cached do not exist.
                None if directory.cookie.is_none() => self.names -= usize::from(directory.names.remove(name).is_some()),
                None => self.names += usize::from(directory.names.insert(name.into(), Name::Nobodys).is_none()),
                Some(Attributes { ino, .. }) => {
                    self.names += usize::from(directory.names.insert(name.into(), Name::Of(ino)).is_none());
                }
            }
        }
        if let Some(attributes) = found {
            self.files.insert(attributes.ino, attributes);
        }
    }

    /// The cached extents of a range, clipped to it.
    pub fn extents(&self, ino: Ino, range: &Range<u64>, now: Instant) -> Option<Vec<Extent>> {
        self.contents.get(&ino).filter(|windows| windows.are_valid(now))?.find(range)
    }

    /// The range to request instead of a range that is not cached.
    pub fn widen(&mut self, ino: Ino, range: Range<u64>, now: Instant) -> Range<u64> {
        if self.contents.get(&ino).is_none_or(|windows| !windows.are_valid(now)) {
            if self.contents.len() >= MAX_CACHED_NAMES {
                self.contents = HashMap::new();
                self.extents = 0;
            }
            self.forget_extents(ino);
            self.contents.insert(ino, Windows::new(now));
        }
        self.contents.get_mut(&ino).expect("it was just made, if it was not there").widen(range, WINDOW_AFTER_MISSES)
    }

    /// Caches the extents of a range.
    pub fn learn_extents(&mut self, asked: Asked, ino: Ino, range: &Range<u64>, extents: &[Extent]) {
        let most = MAX_CACHED_EXTENTS.saturating_sub(self.extents);
        if !self.is_true(asked) {
            return;
        }
        if let Some(windows) = self.contents.get_mut(&ino) {
            self.extents -= windows.weight();
            windows.learn(range, extents, most);
            self.extents += windows.weight();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::windows::{EXTENTS_FOR, WINDOW_BYTES};
    use meta::{FileKind, Time};
    use plan::SetId;
    use plan::Span;
    use plan::{ExtentPlace, RecordOffset};

    fn file(ino: Ino) -> Attributes {
        let (zero, kind) = (Time { seconds: 0, nanoseconds: 0 }, FileKind::File);
        let (accessed, modified, changed, created) = (zero, zero, zero, zero);
        let (mode, links, uid, gid, device, size, allocated) = (0o644, 1, 0, 0, 0, 0, 0);
        Attributes { ino, kind, mode, links, uid, gid, device, size, allocated, accessed, modified, changed, created }
    }

    fn entry(number: u64) -> Listed {
        Listed { cookie: 256 + number, name: format!("f{number}").into(), attributes: file(Ino(number)) }
    }

    fn extent(offset: u64, length: u64) -> Extent {
        let span = Span { set: SetId(1), record: RecordOffset(0), block: 4096, start: 0 };
        Extent { offset, length, place: ExtentPlace::Stripe(span) }
    }

    #[test]
    fn what_a_change_concerns_is_not_known_any_more() {
        let mut cached = CachedState::default();
        let asked = cached.ask(1);
        cached.learn_name(asked, Ino(1), b"a", Some(file(Ino(10))));
        cached.learn_name(asked, Ino(1), b"b", Some(file(Ino(11))));
        cached.learn_name(asked, Ino(1), b"c", None);
        assert_eq!(cached.name(Ino(1), b"a"), Some(Some(file(Ino(10)))));
        assert_eq!((cached.name(Ino(1), b"c"), cached.name(Ino(1), b"d")), (Some(None), None));
        cached.learn_unprivileged(asked, Ino(10));
        assert_eq!((cached.is_unprivileged(Ino(10)), cached.is_unprivileged(Ino(11))), (true, false));

        let written = Concerned { files: vec![Ino(10)], ..Concerned::default() };
        let begun = cached.begin(&written);
        assert_eq!((cached.file(Ino(10)), cached.name(Ino(1), b"a")), (None, None));
        assert!(!cached.is_unprivileged(Ino(10)));
        assert_eq!((cached.file(Ino(11)), cached.ino(Ino(1), b"a")), (Some(file(Ino(11))), Some(Ino(10))));
        cached.end(&written, begun, Some(Now::File(None, Attributes { size: 5, ..file(Ino(10)) })));
        assert_eq!(cached.file(Ino(10)).unwrap().size, 5);

        let made = Concerned { names: vec![(Ino(1), b"c")], ..Concerned::default() };
        let begun = cached.begin(&made);
        cached.end(&made, begun, Some(Now::File(Some((Ino(1), b"c")), file(Ino(12)))));
        assert_eq!(cached.name(Ino(1), b"c"), Some(Some(file(Ino(12)))));
        cached.forget_all();
        assert_eq!((cached.file(Ino(11)), cached.name(Ino(1), b"b")), (None, None));
    }

    #[test]
    fn what_was_asked_before_a_change_ended_is_not_learnt() {
        let mut cached = CachedState::default();
        let none = Concerned::default();
        let early = cached.ask(1);
        let begun = cached.begin(&none);
        let during = cached.ask(1);
        // Two changes at the same time: neither knows the result of the other.
        let other = cached.begin(&none);
        cached.end(&none, begun, Some(Now::File(None, file(Ino(1)))));
        cached.end(&none, other, Some(Now::File(None, file(Ino(2)))));
        cached.learn_file(early, file(Ino(3)));
        cached.learn_file(during, file(Ino(4)));
        assert!([1, 2, 3, 4].iter().all(|&ino| cached.file(Ino(ino)).is_none()));
        let late = cached.ask(1);
        cached.learn_file(late, file(Ino(5)));
        assert_eq!(cached.file(Ino(5)), Some(file(Ino(5))));
        // Other clients came and went.
        cached.ask(2);
        assert_eq!(cached.file(Ino(5)), None);
        cached.learn_file(late, file(Ino(6)));
        assert_eq!(cached.file(Ino(6)), None);
    }

    #[test]
    fn a_directory_whose_names_are_looked_up_is_read_while_that_helps() {
        let mut cached = CachedState::default();
        let asked = cached.ask(1);
        let misses = |cached: &mut CachedState, from: u64, count: u64| {
            let learnt =
                (from..from + count).map(|n| cached.learn_name(asked, Ino(1), &entry(n).name, Some(file(Ino(n)))));
            learnt.collect::<Vec<_>>()
        };
        let few = u64::from(LIST_AFTER_MISSES);
        let first = misses(&mut cached, 0, few);
        assert!(first[..LIST_AFTER_MISSES as usize - 1].iter().all(Option::is_none));
        assert_eq!(first.last(), Some(&Some(0)));
        let page: Vec<Listed> = (1000..1100).map(entry).collect();
        cached.learn_entries(asked, Ino(1), 0, &page);
        assert!(page.iter().all(|entry| cached.name(Ino(1), &entry.name).is_some()), "each is a hit");
        // Reading entries helped, so it continues from there.
        assert_eq!(misses(&mut cached, 20, few).last(), Some(&Some(page[99].cookie)));
        cached.learn_entries(asked, Ino(1), page[99].cookie, &[entry(2000)]);
        // It did not help; and then the directory ends.
        assert_eq!(misses(&mut cached, 40, few).last(), Some(&Some(entry(2000).cookie)));
        assert_eq!(cached.directories[&Ino(1)].list_after, 2 * LIST_AFTER_MISSES);
        cached.learn_entries(asked, Ino(1), entry(2000).cookie, &[]);
        assert_eq!(misses(&mut cached, 60, 3 * few), vec![None; 3 * LIST_AFTER_MISSES as usize]);
    }

    #[test]
    fn extents_of_a_file_that_is_read_here_and_there_are_known_for_a_while() {
        let mut cached = CachedState::default();
        let (start, asked) = (Instant::now(), cached.ask(1));
        for read in 1..u64::from(WINDOW_AFTER_MISSES) {
            assert_eq!(cached.widen(Ino(7), read * 4096..read * 4096 + 9, start), read * 4096..read * 4096 + 9);
        }
        let across = WINDOW_BYTES - 5..WINDOW_BYTES + 5;
        assert_eq!(cached.widen(Ino(7), across.clone(), start), across);
        let wide = cached.widen(Ino(7), WINDOW_BYTES + 100..WINDOW_BYTES + 200, start);
        assert_eq!(wide, WINDOW_BYTES..2 * WINDOW_BYTES);
        let extents = [extent(WINDOW_BYTES, 4096), extent(WINDOW_BYTES + 8192, 4096)];
        cached.learn_extents(asked, Ino(7), &wide, &extents);
        let found = cached.extents(Ino(7), &(WINDOW_BYTES + 4000..WINDOW_BYTES + 8200), start).unwrap();
        assert_eq!(
            found.iter().map(Extent::range).collect::<Vec<_>>(),
            [WINDOW_BYTES + 4000..WINDOW_BYTES + 4096, WINDOW_BYTES + 8192..WINDOW_BYTES + 8200]
        );
        assert_eq!(cached.extents(Ino(7), &(WINDOW_BYTES + 4096..WINDOW_BYTES + 8192), start), Some(vec![]), "a hole");
        assert_eq!(cached.extents(Ino(7), &across, start), None);
        assert_eq!(cached.extents(Ino(7), &(0..10), start), None);
        assert_eq!(cached.extents(Ino(7), &wide, start + EXTENTS_FOR), None);
        assert_eq!(cached.extents, 3);
        // It starts again when the time is over.
        assert_eq!(cached.widen(Ino(7), 0..10, start + EXTENTS_FOR), 0..10);
        assert_eq!(cached.extents, 0);
    }

    #[test]
    fn in_a_directory_that_is_known_whole_other_names_are_nobodys() {
        let mut cached = CachedState::default();
        let asked = cached.ask(1);
        // A directory that was created here, and one that was read to its end.
        let of = |parent, name| Concerned { names: vec![(parent, name)], ..Concerned::default() };
        let begun = cached.begin(&of(Ino(1), b"new"));
        cached.end(&of(Ino(1), b"new"), begun, Some(Now::Directory((Ino(1), b"new"), file(Ino(5)))));
        let asked = if cached.is_true(asked) { asked } else { cached.ask(1) };
        cached.learn_entries(asked, Ino(6), 0, &[entry(0), entry(1)]);
        // Two changes at the same time while the directory is read: the state of both names is
        // unknown.
        let begun = [cached.begin(&of(Ino(6), b"c")), cached.begin(&of(Ino(6), b"d"))];
        begun.into_iter().for_each(|begun| cached.end(&of(Ino(6), b"c"), begun, None));
        cached.forget(&of(Ino(6), b"d"));
        let asked = cached.ask(1);
        cached.learn_entries(asked, Ino(6), entry(1).cookie, &[entry(2)]);
        assert_eq!(cached.name(Ino(6), b"x"), None, "there may be more");
        cached.learn_entries(asked, Ino(6), entry(2).cookie, &[]);
        assert_eq!((cached.name(Ino(6), b"c"), cached.name(Ino(6), b"d")), (None, None));
        for parent in [Ino(5), Ino(6)] {
            assert_eq!((cached.name(parent, b"x"), cached.name(parent, b"y")), (Some(None), Some(None)));
            let made = of(parent, b"x");
            let begun = cached.begin(&made);
            assert_eq!((cached.name(parent, b"x"), cached.name(parent, b"y")), (None, Some(None)), "it is being made");
            cached.end(&made, begun, Some(Now::File(Some((parent, b"x")), file(Ino(9)))));
            assert_eq!(cached.name(parent, b"x"), Some(Some(file(Ino(9)))));
            // Two changes at the same time: the state of both names is unknown until they are
            // looked up.
            let (a, b) = (of(parent, b"a"), of(parent, b"b"));
            let begun = [cached.begin(&a), cached.begin(&b)];
            cached.end(&a, begun[0], Some(Now::File(Some((parent, b"a")), file(Ino(10)))));
            cached.end(&b, begun[1], None);
            assert_eq!((cached.name(parent, b"a"), cached.name(parent, b"b")), (None, None));
            let asked = cached.ask(1);
            cached.learn_name(asked, parent, b"b", None);
            assert_eq!((cached.name(parent, b"a"), cached.name(parent, b"b")), (None, Some(None)));
            let begun = cached.begin(&made);
            cached.end(&made, begun, None);
            assert_eq!((cached.name(parent, b"x"), cached.ino(parent, b"x")), (None, None), "it may be removed");
        }
        // Other clients joined.
        cached.ask(2);
        assert_eq!((cached.name(Ino(5), b"y"), cached.name(Ino(6), b"y")), (None, None));
    }

    #[test]
    fn no_more_is_kept_in_mind_than_there_is_space_for() {
        let mut cached = CachedState::default();
        let asked = cached.ask(1);
        for number in 0..2 * MAX_CACHED_NAMES as u64 {
            cached.learn_name(asked, Ino(number % 100), &entry(number).name, Some(file(Ino(number))));
            assert!(cached.files.len() + cached.directories.len() + cached.names <= MAX_CACHED_NAMES + 3);
        }
        assert_eq!(cached.names, cached.directories.values().map(|directory| directory.names.len()).sum::<usize>());
        // A directory is not complete if everything was dropped while it was read.
        cached.learn_entries(asked, Ino(200), 0, &[entry(1)]);
        let many: Vec<Listed> = (2..MAX_CACHED_NAMES as u64 / 2 - 100).map(entry).collect();
        cached.learn_entries(asked, Ino(200), entry(1).cookie, &many);
        cached.learn_entries(asked, Ino(200), many.last().unwrap().cookie, &[]);
        assert_eq!(cached.name(Ino(200), b"f1"), None);
        // Names in an unknown state take space, too.
        let made = (0..2 * MAX_CACHED_NAMES).map(|number| format!("{number}").into_bytes()).collect::<Vec<_>>();
        for name in &made {
            let concerned = Concerned { names: vec![(Ino(200), name)], ..Concerned::default() };
            let begun = cached.begin(&concerned);
            cached.end(&concerned, begun, None);
        }
        assert!(cached.names <= MAX_CACHED_NAMES);
        for number in 0..2 * MAX_CACHED_NAMES as u64 {
            let begun = cached.begin(&Concerned::default());
            cached.end(&Concerned::default(), begun, Some(Now::Directory((Ino(1), b"lock"), file(Ino(1000 + number)))));
            assert!(cached.directories.len() <= MAX_CACHED_NAMES);
        }
    }
}
