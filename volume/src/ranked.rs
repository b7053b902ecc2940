//! Locks with a rank. A thread takes them from low ranks to high ones, so that no two threads wait
//! for each other. That is checked where the environment has `WEFT_CHECK_LOCKS`, as in all tests,
//! and in builds with debug assertions. Elsewhere it costs a branch.
//!
//! There are two kinds. A *turn* is for work that only one thread may do at a time, however long it
//! takes: its holder may wait for a server or a target. All others are held for moments only. A
//! thread that waits for a server under such a lock would block work that needs no server, for as
//! long as the server is unreachable.

use crate::unpoisoned;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, LockResult, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};
use std::time::Duration;

/// Ranks below this one are turns.
pub const FIRST_BRIEF: u32 = 100;

/// The rank of a lock.
pub trait Rank {
    /// Locks are taken from low orders to high ones.
    const ORDER: u32;
    /// The name, for messages.
    const NAME: &'static str;
}

/// Declares ranks: `pub(crate) Name = order;`.
#[macro_export]
macro_rules! ranks {
    ($($(#[$about:meta])* $visibility:vis $name:ident = $order:expr;)*) => {$(
        $(#[$about])*
        #[derive(Debug)]
        $visibility enum $name {}

        impl $crate::ranked::Rank for $name {
            const ORDER: u32 = $order;
            const NAME: &'static str = concat!(module_path!(), "::", stringify!($name));
        }
    )*};
}

/// A mutex with a rank. A panic of an earlier holder is ignored.
pub struct Ranked<T, R>(Mutex<T>, PhantomData<fn() -> R>);

/// Access to the content of a locked mutex.
#[must_use]
pub struct Guard<'a, T, R> {
    // It is released before the note of it.
    content: MutexGuard<'a, T>,
    held: Held<R>,
}

impl<T: Default, R: Rank> Default for Ranked<T, R> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: fmt::Debug, R> fmt::Debug for Ranked<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T, R: Rank> Ranked<T, R> {
    /// Wraps content in a lock.
    pub const fn new(content: T) -> Self {
        Self(Mutex::new(content), PhantomData)
    }

    /// Locks the mutex.
    pub fn lock(&self) -> Guard<'_, T, R> {
        let held = Held::new(None);
        Guard { content: unpoisoned(self.0.lock()), held }
    }

    /// As `lock`. A thread may lock several of this rank, by rising keys.
    pub fn lock_by(&self, key: u64) -> Guard<'_, T, R> {
        let held = Held::new(Some(key));
        Guard { content: unpoisoned(self.0.lock()), held }
    }

    /// Locks the mutex if that is possible without a wait. So no order is asked for.
    pub fn try_lock(&self) -> Option<Guard<'_, T, R>> {
        let content = match self.0.try_lock() {
            Ok(content) => content,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(Guard { content, held: Held::unchecked(None) })
    }

    /// As `lock`, but an error when an earlier holder panicked.
    ///
    /// # Errors
    /// The access all the same.
    pub fn lock_sound(&self) -> Result<Guard<'_, T, R>, Guard<'_, T, R>> {
        let held = Held::new(None);
        sound(self.0.lock(), |content| Guard { content, held })
    }

    /// The content of a lock that nobody else has.
    pub fn into_inner(self) -> T {
        unpoisoned(self.0.into_inner())
    }
}

/// What a lock returned, made into access to its content; an error when a holder panicked.
fn sound<G, A>(found: LockResult<G>, access: impl FnOnce(G) -> A) -> Result<A, A> {
    match found {
        Ok(guard) => Ok(access(guard)),
        Err(poisoned) => Err(access(poisoned.into_inner())),
    }
}

impl<T, R: Rank> Guard<'_, T, R> {
    /// Releases the lock and waits for `signal`.
    pub fn wait(self, signal: &Condvar) -> Self {
        let Self { content, held } = self;
        held.assert_others_are_turns();
        Self { content: unpoisoned(signal.wait(content)), held }
    }

    /// Releases the lock and waits for `signal`, as long as `waits` returns true.
    pub fn wait_while(self, signal: &Condvar, mut waits: impl FnMut(&T) -> bool) -> Self {
        let Self { content, held } = self;
        held.assert_others_are_turns();
        Self { content: unpoisoned(signal.wait_while(content, |content| waits(content))), held }
    }

    /// Releases the lock and waits for `signal`, at most for `time`.
    pub fn wait_timeout(self, signal: &Condvar, time: Duration) -> Self {
        self.wait_timeout_while(signal, time, once())
    }

    /// Releases the lock and waits for `signal` as long as `waits` returns true, at most for
    /// `time`.
    pub fn wait_timeout_while(self, signal: &Condvar, time: Duration, mut waits: impl FnMut(&T) -> bool) -> Self {
        let Self { content, held } = self;
        held.assert_others_are_turns();
        let (content, _) = unpoisoned(signal.wait_timeout_while(content, time, |content| waits(content)));
        Self { content, held }
    }
}

/// A condition that holds the first time only: one wait.
fn once<T>() -> impl FnMut(&T) -> bool {
    let mut first = true;
    move |_| std::mem::take(&mut first)
}

impl<T, R> Deref for Guard<'_, T, R> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.content
    }
}

impl<T, R> DerefMut for Guard<'_, T, R> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.content
    }
}

impl<T: fmt::Debug, R> fmt::Debug for Guard<'_, T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// A lock with a rank for one writer or several readers. A panic of an earlier writer is ignored.
pub struct RankedRw<T, R>(RwLock<T>, PhantomData<fn() -> R>);

/// Access to the content, for reading or writing.
#[must_use]
pub struct RwGuard<G, R> {
    // It is released before the note of it.
    content: G,
    _held: Held<R>,
}

/// Access for reading.
pub type ReadGuard<'a, T, R> = RwGuard<RwLockReadGuard<'a, T>, R>;
/// Access for writing.
pub type WriteGuard<'a, T, R> = RwGuard<RwLockWriteGuard<'a, T>, R>;

impl<T: Default, R: Rank> Default for RankedRw<T, R> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: fmt::Debug, R> fmt::Debug for RankedRw<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T, R: Rank> RankedRw<T, R> {
    /// Wraps content in a lock.
    pub const fn new(content: T) -> Self {
        Self(RwLock::new(content), PhantomData)
    }

    /// Locks for reading. A thread that reads already may not do so again: a writer that waits
    /// meanwhile would wait for ever.
    pub fn read(&self) -> ReadGuard<'_, T, R> {
        self.read_sound().unwrap_or_else(|guard| guard)
    }

    /// Locks for writing.
    pub fn write(&self) -> WriteGuard<'_, T, R> {
        self.write_sound().unwrap_or_else(|guard| guard)
    }

    /// As `read`, but an error when an earlier writer panicked.
    ///
    /// # Errors
    /// The access all the same.
    pub fn read_sound(&self) -> Result<ReadGuard<'_, T, R>, ReadGuard<'_, T, R>> {
        let held = Held::new(None);
        sound(self.0.read(), |content| RwGuard { content, _held: held })
    }

    /// As `write`, but an error when an earlier writer panicked.
    ///
    /// # Errors
    /// The access all the same.
    pub fn write_sound(&self) -> Result<WriteGuard<'_, T, R>, WriteGuard<'_, T, R>> {
        let held = Held::new(None);
        sound(self.0.write(), |content| RwGuard { content, _held: held })
    }
}

impl<G: Deref, R> Deref for RwGuard<G, R> {
    type Target = G::Target;

    fn deref(&self) -> &G::Target {
        &self.content
    }
}

impl<G: DerefMut, R> DerefMut for RwGuard<G, R> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.content
    }
}

/// Notes that this thread holds a lock of a rank, where that is checked.
struct Held<R> {
    note: Option<notes::Note>,
    rank: PhantomData<fn() -> R>,
}

impl<R: Rank> Held<R> {
    fn new(key: Option<u64>) -> Self {
        let held = Self::unchecked(key);
        held.note.iter().for_each(|note| notes::check(*note));
        held
    }

    fn unchecked(key: Option<u64>) -> Self {
        let note = notes::are_kept().then_some(notes::Note { order: R::ORDER, key, name: R::NAME });
        note.iter().for_each(|note| notes::add(*note));
        Self { note, rank: PhantomData }
    }

    /// Checks before a wait that others may need no lock of this thread meanwhile.
    fn assert_others_are_turns(&self) {
        if self.note.is_some() {
            notes::assert_none_is_brief(self.note, R::NAME);
        }
    }
}

impl<R> Drop for Held<R> {
    fn drop(&mut self) {
        self.note.iter().for_each(|note| notes::remove(*note));
    }
}

/// Answers a request of this process as another one would: locks of the caller do not count.
pub fn as_another_process<T>(answer: impl FnOnce() -> T) -> T {
    let _set_aside = notes::are_kept().then(notes::SetAside::new);
    answer()
}

/// Called before a request to a server or a target. Where ranks are checked, it panics if this
/// thread holds a ranked lock that is no turn.
pub fn assert_only_turns() {
    if notes::are_kept() {
        notes::assert_none_is_brief(None, "a server or a target");
    }
}

mod notes {
    use super::FIRST_BRIEF;
    use std::cell::RefCell;
    use std::sync::LazyLock;

    static ARE_KEPT: LazyLock<bool> = LazyLock::new(|| {
        cfg!(any(test, debug_assertions)) || std::env::var_os("WEFT_CHECK_LOCKS").is_some_and(|set| !set.is_empty())
    });

    /// Whether this process checks ranks. It does so from its first lock on, or never.
    pub fn are_kept() -> bool {
        *ARE_KEPT
    }

    /// A lock that this thread holds.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub struct Note {
        pub order: u32,
        pub key: Option<u64>,
        pub name: &'static str,
    }

    thread_local! {
        static HELD: RefCell<Vec<Note>> = const { RefCell::new(Vec::new()) };
    }

    /// A destructor of a thread that ends may find no list any more.
    fn with<T>(work: impl FnOnce(&mut Vec<Note>) -> T) -> Option<T> {
        HELD.try_with(|held| work(&mut held.borrow_mut())).ok()
    }

    /// A second panic would end the process before the first one is reported.
    fn fail(what: String) {
        if !std::thread::panicking() {
            panic!("{what}");
        }
    }

    pub fn add(new: Note) {
        with(|held| held.push(new));
    }

    /// Panics when the lock noted last is not above all others.
    pub fn check(new: Note) {
        let is_above = |held: &&Note| (held.order, held.key) >= (new.order, new.key);
        let above = with(|held| held[..held.len() - 1].iter().find(is_above).copied());
        if let Some(Some(above)) = above {
            fail(format!("{} (rank {}) is locked under {} (rank {})", new.name, new.order, above.name, above.order));
        }
    }

    /// The locks that do not count; they count again when this is dropped.
    pub struct SetAside(Vec<Note>);

    impl SetAside {
        pub fn new() -> Self {
            Self(with(std::mem::take).unwrap_or_default())
        }
    }

    impl Drop for SetAside {
        fn drop(&mut self) {
            with(|held| *held = std::mem::take(&mut self.0));
        }
    }

    pub fn remove(note: Note) {
        with(|held| held.iter().rposition(|one| *one == note).map(|place| held.remove(place)));
    }

    pub fn assert_none_is_brief(own: Option<Note>, waits_for: &str) {
        let is_brief = |one: &Note| one.order >= FIRST_BRIEF && Some(*one) != own;
        if let Some(Some(brief)) = with(|held| held.iter().copied().find(is_brief)) {
            fail(format!("a thread waits for {waits_for} under {} (rank {})", brief.name, brief.order));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    ranks! {
        Turn = 1;
        Low = FIRST_BRIEF;
        High = FIRST_BRIEF + 1;
    }

    /// What the check says about this; empty when it is allowed.
    fn complaint(work: impl FnOnce()) -> String {
        let failed = catch_unwind(AssertUnwindSafe(work)).err();
        // The locks are released.
        assert_only_turns();
        failed.map_or(String::new(), |why| *why.downcast::<String>().unwrap())
    }

    #[test]
    fn locks_are_taken_from_low_ranks_to_high_ones() {
        let (low, high) = (Ranked::<_, Low>::new(1), RankedRw::<_, High>::new(2));
        assert_eq!(complaint(|| assert_eq!(*low.lock() + *high.read(), 3)), "");
        // Those may be released in any order.
        assert_eq!(
            complaint(|| {
                let (first, second) = (low.lock(), high.write());
                drop(first);
                drop(second);
                drop(low.lock());
            }),
            ""
        );
        let name = "volume::ranked::tests";
        let expected = format!("{name}::Low (rank 100) is locked under {name}::High (rank 101)");
        assert_eq!(complaint(|| drop((high.read(), low.lock()))), expected);
        assert_eq!(complaint(|| drop((high.write(), low.lock_sound().is_ok()))), expected);
        let expected = format!("{name}::High (rank 101) is locked under {name}::High (rank 101)");
        assert_eq!(complaint(|| drop((high.read(), high.read()))), expected);
        // After a panic they are as before.
        assert_eq!((*low.lock(), *high.read()), (1, 2));
    }

    #[test]
    fn several_of_a_rank_are_locked_by_rising_keys() {
        let files = [1, 2].map(|_| Ranked::<(), Turn>::default());
        assert_eq!(complaint(|| drop((files[0].lock_by(1), files[1].lock_by(2)))), "");
        let expected = "volume::ranked::tests::Turn (rank 1) is locked under volume::ranked::tests::Turn (rank 1)";
        assert_eq!(complaint(|| drop((files[1].lock_by(2), files[0].lock_by(1)))), expected);
        assert_eq!(complaint(|| drop((files[1].lock(), files[0].lock()))), expected);
    }

    #[test]
    fn only_turns_are_held_while_a_server_is_asked() {
        let (turn, low) = (Ranked::<(), Turn>::default(), Ranked::<(), Low>::default());
        assert_eq!(complaint(|| (turn.lock(), assert_only_turns()).1), "");
        let expected = "a thread waits for a server or a target under volume::ranked::tests::Low (rank 100)";
        assert_eq!(complaint(|| (low.lock(), assert_only_turns()).1), expected);
    }

    #[test]
    fn a_thread_that_waits_for_a_signal_lets_others_in() {
        let (turn, low, high) =
            (Ranked::<(), Turn>::default(), Ranked::<_, Low>::new(0), Ranked::<(), High>::default());
        let signal = Condvar::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                *low.lock() = 7;
                signal.notify_all();
            });
            let _turn = turn.lock();
            assert_eq!(*low.lock().wait_while(&signal, |number| *number == 0), 7);
        });
        let expected = "a thread waits for volume::ranked::tests::High under volume::ranked::tests::Low (rank 100)";
        assert_eq!(complaint(|| drop((low.lock(), high.lock().wait(&signal)))), expected);
        drop(low.lock().wait_timeout(&signal, Duration::from_millis(1)));
    }

    #[test]
    fn a_panic_of_a_holder_is_seen_by_those_that_ask() {
        let (low, high) = (Ranked::<_, Low>::new(1), RankedRw::<_, High>::new(2));
        assert!(low.lock_sound().is_ok() && high.read_sound().is_ok());
        let both = || {
            let _both = (low.lock(), high.write());
            panic!("{}", "on purpose");
        };
        assert_eq!(complaint(both), "on purpose");
        assert_eq!((low.lock_sound().map_err(|held| *held).err(), *low.lock()), (Some(1), 1));
        assert_eq!(high.read_sound().map_err(|held| *held).err(), Some(2));
        assert_eq!(high.write_sound().map_err(|held| *held).err(), Some(2));
    }
}
