//! Names: each directory's operations have an order that their results agree with, in which each
//! one takes effect between its beginning and its end. When the metadata server dies, operations at
//! the end of this order may be lost, but none that was synced, and none before one that is kept.

use crate::history::{Act, All, Found, Naming};
use plan::Ino;
use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

/// The names of a directory, with their files.
pub type Names = BTreeMap<u8, Ino>;

/// In place of the number of a file that is not known.
const UNKNOWN: Ino = Ino(0);

/// How many states are looked at, at most. Beyond that a history counts as right.
const MAX_STATES: usize = 400_000;

/// Checks every directory.
pub fn check(history: &All) -> Vec<String> {
    let directories = history.namings.iter().map(|naming| naming.directory).max().map_or(0, |last| last + 1);
    (0..directories).filter_map(|directory| one(history, directory)).collect()
}

fn one(history: &All, directory: usize) -> Option<String> {
    let mut ops: Vec<Op> = Vec::new();
    for naming in history.namings.iter().filter(|naming| naming.directory == directory) {
        // An operation that changes nothing and whose result is not known says nothing.
        let says = naming.found != Found::Unknown || !matches!(naming.act, Act::Lookup(_) | Act::List);
        if says {
            ops.push(Op::new(history, naming));
        }
    }
    ops.sort_by_key(|op| op.begin);
    let mut search =
        Search { ops: &ops, deaths: &history.deaths, seen: HashSet::new(), deepest: (0, Names::new(), Vec::new()) };
    let mut state = State { done: vec![false; ops.len()], names: Names::new(), path: Vec::new(), era: 0 };
    if search.goes_on(&mut state) != Verdict::Wrong {
        return None;
    }
    let (count, names, left) = search.deepest;
    let left: Vec<String> = left.iter().map(|at| format!("  {:?}", ops[*at].naming)).collect();
    Some(format!(
        "directory {directory}: {count} of {} operations have an order, up to {names:?}; then none of these fits:\n{}",
        ops.len(),
        left.join("\n")
    ))
}

/// An operation.
struct Op<'a> {
    naming: &'a Naming,
    begin: u64,
    /// The end; `u64::MAX` when it is not known.
    end: u64,
    /// From when on it is durable, if it took effect.
    durable: u64,
    /// It changed nothing, or its client learned of a loss before it synced all, or never did so.
    may_be_lost: bool,
}

impl<'a> Op<'a> {
    fn new(history: &All, naming: &'a Naming) -> Self {
        let end = naming.span.end.filter(|_| naming.found != Found::Unknown).unwrap_or(u64::MAX);
        let syncs = || history.syncs.iter().filter(|sync| sync.client == naming.client && sync.span.begin > end);
        let durable = syncs().filter_map(|sync| sync.span.end).min().unwrap_or(u64::MAX);
        // The sync of another file does not tell of a lost name.
        let of_all = syncs().filter(|sync| sync.file.is_none()).filter_map(|sync| sync.span.end);
        let told = of_all.min().unwrap_or(u64::MAX);
        let begin = naming.span.begin;
        let only_looks = matches!(naming.act, Act::Lookup(_) | Act::List);
        let changes = !only_looks && !matches!(naming.found, Found::Missing | Found::Exists);
        let may_be_lost = !changes || told == u64::MAX || !history.is_clean(naming.client, begin, told);
        Self { naming, begin, end, durable, may_be_lost }
    }
}

/// The names after an operation; None if its result is another one.
fn after(names: &Names, naming: &Naming) -> Option<Names> {
    let mut new = names.clone();
    let found = match naming.act {
        Act::Make(name) => match (names.get(&name), &naming.found) {
            (Some(_), _) => Found::Exists,
            // The number of the file is the server's choice.
            (None, &Found::File(ino)) => {
                new.insert(name, ino);
                Found::File(ino)
            }
            // A file with an unknown number.
            (None, Found::Unknown) => {
                new.insert(name, UNKNOWN);
                Found::Unknown
            }
            (None, _) => return None,
        },
        Act::Unlink(name) => match new.remove(&name) {
            Some(_) => Found::Done,
            None => Found::Missing,
        },
        Act::Rename(from, to) => match names.get(&from).copied() {
            None => Found::Missing,
            Some(ino) => {
                // Two names of one file both stay.
                if names.get(&to) != Some(&ino) || ino == UNKNOWN {
                    new.remove(&from);
                    new.insert(to, ino);
                }
                Found::Done
            }
        },
        Act::Link(ino, name) => {
            let is_known = names.values().any(|other| *other == ino);
            let may_be = names.values().any(|other| *other == UNKNOWN);
            match (is_known, names.get(&name)) {
                (false, _) if !may_be => match naming.found {
                    // Which of the two errors comes first is not fixed.
                    Found::Exists if names.contains_key(&name) => Found::Exists,
                    // A file without a name gets one again if a client may still know it.
                    Found::Done | Found::Unknown if !names.contains_key(&name) => {
                        new.insert(name, ino);
                        Found::Done
                    }
                    _ => Found::Missing,
                },
                (_, Some(_)) => Found::Exists,
                (_, None) if naming.found == Found::Missing && may_be && !is_known => Found::Missing,
                (_, None) => {
                    new.insert(name, ino);
                    Found::Done
                }
            }
        }
        Act::Lookup(name) => match (names.get(&name), &naming.found) {
            (Some(&UNKNOWN), &Found::File(ino)) => {
                learn(&mut new, name, ino);
                Found::File(ino)
            }
            (Some(&ino), _) => Found::File(ino),
            (None, _) => Found::Missing,
        },
        Act::List => {
            if let Found::All(all) = &naming.found {
                for &(name, ino) in all {
                    if new.get(&name) == Some(&UNKNOWN) {
                        learn(&mut new, name, ino);
                    }
                }
            }
            Found::All(new.iter().map(|(name, ino)| (*name, *ino)).collect())
        }
    };
    (naming.found == Found::Unknown || naming.found == found).then_some(new)
}

/// The number of a file becomes known.
fn learn(names: &mut Names, name: u8, ino: Ino) {
    names.insert(name, ino);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Right,
    Wrong,
    TooLong,
}

/// Where the search is.
struct State {
    /// Operations that took effect, or were lost for good.
    done: Vec<bool>,
    names: Names,
    /// Operations since the last death that took effect, each with the names before it.
    path: Vec<(usize, Names)>,
    /// How often the server has died.
    era: usize,
}

struct Search<'a> {
    ops: &'a [Op<'a>],
    deaths: &'a [u64],
    /// Hashes of the states that were looked at.
    seen: HashSet<u64>,
    /// The most operations that fit, with the names after them and what could be next.
    deepest: (usize, Names, Vec<usize>),
}

impl Search<'_> {
    /// What identifies a state. What could be lost belongs to it.
    fn key(&self, state: &State) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&state.done, &state.names, state.era).hash(&mut hasher);
        if state.era < self.deaths.len() {
            // The names where it begins are what is left if all of it is lost.
            state.path.first().map(|(_, before)| before).hash(&mut hasher);
            state.path.iter().for_each(|(op, _)| op.hash(&mut hasher));
        }
        hasher.finish()
    }

    fn goes_on(&mut self, state: &mut State) -> Verdict {
        if self.seen.len() >= MAX_STATES {
            return Verdict::TooLong;
        }
        if !self.seen.insert(self.key(state)) {
            return Verdict::Wrong;
        }
        let death = self.deaths.get(state.era).copied().unwrap_or(u64::MAX);
        let born = state.era.checked_sub(1).map_or(0, |before| self.deaths[before]);
        let left = || (0..self.ops.len()).filter(|&op| !state.done[op]);
        let first_end = left().map(|op| self.ops[op].end).min().unwrap_or(u64::MAX);
        // Nothing takes effect after something that ended before it began.
        let next: Vec<usize> = left()
            .filter(|&op| self.ops[op].begin <= first_end && self.ops[op].begin < death && self.ops[op].end > born)
            .collect();
        let must = left().any(|op| self.ops[op].end < death);
        let count = state.done.iter().filter(|done| **done).count();
        if count >= self.deepest.0 {
            self.deepest = (count, state.names.clone(), next.clone());
        }
        if death == u64::MAX && left().all(|op| self.ops[op].end == u64::MAX) {
            return Verdict::Right;
        }
        if !must && death != u64::MAX {
            match self.dies(state, death) {
                Verdict::Wrong => {}
                verdict => return verdict,
            }
        }
        for op in next {
            let Some(names) = after(&state.names, self.ops[op].naming) else { continue };
            let before = std::mem::replace(&mut state.names, names);
            state.done[op] = true;
            state.path.push((op, before));
            let verdict = self.goes_on(state);
            let (_, before) = state.path.pop().expect("it was pushed");
            state.done[op] = false;
            state.names = before;
            if verdict != Verdict::Wrong {
                return verdict;
            }
        }
        Verdict::Wrong
    }

    /// The server dies: some of the last operations are lost.
    fn dies(&mut self, state: &mut State, death: u64) -> Verdict {
        let durable = state.path.iter().rposition(|(op, _)| self.ops[*op].durable < death).map_or(0, |at| at + 1);
        let path = std::mem::take(&mut state.path);
        let names = state.names.clone();
        state.era += 1;
        let mut verdict = Verdict::Wrong;
        for kept in (durable..=path.len()).rev() {
            let lost = &path[kept..];
            if let Some((_, before)) = lost.first() {
                state.names = before.clone();
            }
            // One that had not ended is lost if its answer was on its way, and else repeated.
            let is_open = |op: &usize| self.ops[*op].end >= death && self.ops[*op].may_be_lost;
            let open: Vec<usize> = lost.iter().map(|(op, _)| *op).filter(is_open).collect();
            verdict = (0..1u64 << open.len().min(16)).fold(Verdict::Wrong, |verdict, gone| {
                if verdict != Verdict::Wrong {
                    return verdict;
                }
                lost.iter().for_each(|(op, _)| state.done[*op] = self.ops[*op].end < death);
                open.iter().enumerate().for_each(|(bit, op)| state.done[*op] = gone >> bit & 1 == 1);
                self.goes_on(state)
            });
            if verdict != Verdict::Wrong {
                break;
            }
        }
        state.era -= 1;
        state.names = names;
        path.iter().for_each(|(op, _)| state.done[*op] = true);
        state.path = path;
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Span, Sync};

    fn op(client: usize, begin: u64, end: u64, act: Act, found: Found) -> Naming {
        Naming { directory: 0, client, span: Span { begin, end: Some(end) }, act, found }
    }

    fn is_right(namings: &[Naming], deaths: &[u64], syncs: &[(u64, u64)]) -> bool {
        let sync = |&(begin, end): &(u64, u64)| Sync { client: 0, file: None, span: Span { begin, end: Some(end) } };
        let syncs = syncs.iter().map(sync).collect();
        let all = All { namings: namings.to_vec(), deaths: deaths.to_vec(), syncs, ..All::default() };
        check(&all).is_empty()
    }

    #[test]
    fn operations_have_an_order() {
        let made = op(0, 10, 20, Act::Make(1), Found::File(Ino(5)));
        let seen = |begin, end, found| op(1, begin, end, Act::Lookup(1), found);
        assert!(is_right(&[made.clone(), seen(12, 13, Found::Missing), seen(15, 16, Found::File(Ino(5)))], &[], &[]));
        assert!(!is_right(&[made.clone(), seen(12, 13, Found::File(Ino(5))), seen(15, 16, Found::Missing)], &[], &[]));
        assert!(!is_right(&[made.clone(), seen(30, 31, Found::Missing)], &[], &[]));
        let renamed = op(0, 40, 50, Act::Rename(1, 2), Found::Done);
        let all = |begin, all: &[(u8, Ino)]| op(1, begin, begin + 1, Act::List, Found::All(all.to_vec()));
        assert!(is_right(&[made.clone(), renamed.clone(), all(45, &[(2, Ino(5))]), all(60, &[(2, Ino(5))])], &[], &[]));
        assert!(!is_right(&[made.clone(), renamed, all(60, &[(1, Ino(5)), (2, Ino(5))])], &[], &[]));
        // Carried out twice.
        assert!(!is_right(&[op(0, 10, 20, Act::Make(1), Found::Exists)], &[], &[]));
        // Nobody knows whether it was carried out.
        let unknown = op(0, 10, 20, Act::Make(1), Found::Unknown);
        assert!(is_right(
            &[unknown.clone(), seen(30, 31, Found::Missing), seen(40, 41, Found::File(Ino(9)))],
            &[],
            &[]
        ));
        assert!(!is_right(&[unknown, seen(30, 31, Found::File(Ino(8))), seen(40, 41, Found::Missing)], &[], &[]));
    }

    #[test]
    fn a_death_takes_the_last_operations() {
        let made = |name, begin| op(0, begin, begin + 1, Act::Make(name), Found::File(Ino(u64::from(name))));
        let seen = |name, begin, found| op(1, begin, begin + 1, Act::Lookup(name), found);
        let history = |first, second| [made(1, 10), made(2, 20), seen(1, 50, first), seen(2, 60, second)];
        let (one, two, none) = (Found::File(Ino(1)), Found::File(Ino(2)), Found::Missing);
        assert!(is_right(&history(one.clone(), two.clone()), &[40], &[]));
        assert!(is_right(&history(one.clone(), none.clone()), &[40], &[]));
        assert!(is_right(&history(none.clone(), none.clone()), &[40], &[]));
        // Not the first without the second, not without a death, and not what was synced.
        assert!(!is_right(&history(none.clone(), two.clone()), &[40], &[]));
        assert!(!is_right(&history(one.clone(), none.clone()), &[], &[]));
        assert!(!is_right(&history(one.clone(), none.clone()), &[40], &[(30, 35)]));
        assert!(is_right(&history(one, none), &[40], &[(15, 18)]));
    }

    /// Which of two deaths took a name away shows only after the second one.
    #[test]
    fn two_deaths_take_the_last_operations() {
        let listed = |begin, all: &[(u8, Ino)]| op(1, begin, begin + 1, Act::List, Found::All(all.to_vec()));
        let history = [
            op(0, 10, 11, Act::Make(2), Found::File(Ino(5))),
            op(0, 30, 31, Act::Make(1), Found::File(Ino(6))),
            op(0, 32, 33, Act::Rename(1, 2), Found::Done),
            listed(34, &[(2, Ino(6))]),
        ];
        let (old, new) = (Ino(5), Ino(6));
        for left in [&[][..], &[(1, new)], &[(2, new)], &[(2, old)], &[(1, new), (2, old)]] {
            let all: Vec<Naming> = history.iter().cloned().chain([listed(50, left)]).collect();
            assert!(is_right(&all, &[20, 40], &[]), "{left:?}");
            assert_eq!(is_right(&all, &[40], &[(12, 13)]), !left.is_empty() && left != [(1, new)], "{left:?}");
        }
    }

    #[test]
    fn an_answer_outlives_the_server() {
        let renamed = op(0, 30, 45, Act::Rename(1, 2), Found::Done);
        let seen = |name, begin, found| op(1, begin, begin + 1, Act::Lookup(name), found);
        let history =
            |name, found| [op(0, 10, 11, Act::Make(1), Found::File(Ino(1))), renamed.clone(), seen(name, 50, found)];
        // Lost with the server, or repeated.
        assert!(is_right(&history(1, Found::File(Ino(1))), &[40], &[(15, 18)]));
        assert!(is_right(&history(2, Found::File(Ino(1))), &[40], &[(15, 18)]));
        // Not without a death, and not when it was synced.
        assert!(!is_right(&history(1, Found::File(Ino(1))), &[], &[]));
        assert!(!is_right(&history(1, Found::File(Ino(1))), &[40], &[(46, 48)]));
        let of_a_file = Sync { client: 0, file: Some(3), span: Span { begin: 46, end: Some(48) } };
        let all = All { namings: history(1, Found::File(Ino(1))).into(), deaths: vec![40], ..All::default() };
        assert!(check(&All { syncs: vec![of_a_file], ..all }).is_empty());
        // What was seen, and lost after that.
        let seen = op(0, 30, 45, Act::Lookup(1), Found::File(Ino(1)));
        let all =
            [op(1, 20, 21, Act::Make(1), Found::File(Ino(1))), seen, op(1, 50, 51, Act::Lookup(1), Found::Missing)];
        assert!(is_right(&all, &[40], &[(46, 48)]) && !is_right(&all, &[], &[(46, 48)]));
    }
}
