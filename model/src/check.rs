//! Visits all states of a model, breadth first, and shows the shortest way to one that is wrong.

use std::collections::HashMap;
use std::fmt::{Debug, Display};
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// What can be checked.
pub trait Model {
    /// A state. Two that hash alike are one.
    type State: Clone + Debug + Hash;
    /// A step from one state to another.
    type Step: Display;

    /// The state in which everything begins.
    fn first(&self) -> Self::State;

    /// Calls `each` with all steps that are possible in a state, and where they lead.
    fn steps(&self, state: &Self::State, each: &mut dyn FnMut(Self::Step, Self::State));

    /// One state for all those that differ in nothing but names.
    fn canonical(&self, state: &Self::State) -> Self::State;

    /// What is wrong in a state, if anything is.
    fn wrong(&self, state: &Self::State) -> Option<String>;
}

/// The result of a check.
#[derive(Debug)]
pub struct Checked {
    /// How many states were visited.
    pub states: usize,
    /// The length of the longest of all shortest ways to a state, in steps.
    pub depth: usize,
    /// False if the limit of states was reached.
    pub complete: bool,
    /// What is wrong, with the steps that lead there.
    pub wrong: Option<(String, Vec<String>)>,
}

/// Visits all states, at most about `limit`. Ends at the first one that is wrong.
pub fn check<M: Model>(model: &M, limit: usize) -> Checked {
    let first = model.first();
    let mut seen: HashMap<u64, u64, BuildHasherDefault<Kept>> = HashMap::default();
    let mut level = vec![model.canonical(&first)];
    seen.insert(hash(&level[0]), 0);
    let mut checked = Checked { states: 1, depth: 0, complete: true, wrong: None };
    if let Some(why) = model.wrong(&first) {
        checked.wrong = Some((why, Vec::new()));
        return checked;
    }
    while !level.is_empty() {
        let mut next = Vec::new();
        for state in &level {
            let (from, mut found) = (hash(state), None);
            model.steps(state, &mut |_, to| {
                let to = model.canonical(&to);
                let name = hash(&to);
                if found.is_some() || seen.contains_key(&name) {
                    return;
                }
                seen.insert(name, from);
                found = model.wrong(&to).map(|why| (why, name));
                next.push(to);
            });
            if let Some((why, name)) = found {
                checked.states = seen.len();
                checked.depth += 1;
                checked.wrong = Some((why, way(model, &seen, name)));
                return checked;
            }
        }
        checked.states = seen.len();
        if checked.states >= limit {
            checked.complete = false;
            return checked;
        }
        checked.depth += usize::from(!next.is_empty());
        level = next;
    }
    checked
}

/// The steps to a state: the names of the states on the way are known, so it is walked once more.
/// States keep the names of their parts here, so that the way can be read.
fn way<M: Model>(model: &M, seen: &HashMap<u64, u64, BuildHasherDefault<Kept>>, last: u64) -> Vec<String> {
    let mut names = vec![last];
    while let Some(&from) = names.last().and_then(|name| seen.get(name)).filter(|from| **from != 0) {
        names.push(from);
    }
    let mut state = model.first();
    let mut steps = Vec::new();
    for name in names.into_iter().rev().skip(1) {
        let mut next = None;
        model.steps(&state, &mut |step, to| {
            if next.is_none() && hash(&model.canonical(&to)) == name {
                next = Some((format!("{step}\n        {to:?}"), to));
            }
        });
        let Some((step, to)) = next else { break };
        steps.push(step);
        state = to;
    }
    steps
}

/// The name of a state: 64 bits, so that two of a hundred million states have one name once in some
/// thousand checks.
fn hash<T: Hash>(state: &T) -> u64 {
    let mut mixer = Mixer(0x243f_6a88_85a3_08d3);
    state.hash(&mut mixer);
    mixer.finish().max(1)
}

/// Each byte changes the state one to one and spreads in all of it.
struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        let mixed = (self.0 ^ (self.0 >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        mixed ^ (mixed >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(value.into());
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(value.into());
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 29;
    }
}

/// Keys of the map are hashes already.
#[derive(Default)]
struct Kept(u64);

impl Hasher for Kept {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two counters up to three, of which neither has a name; both at three is wrong, if asked.
    struct Counters(bool);

    impl Model for Counters {
        type State = [u8; 2];
        type Step = usize;

        fn first(&self) -> [u8; 2] {
            [0, 0]
        }

        fn steps(&self, state: &[u8; 2], each: &mut dyn FnMut(usize, [u8; 2])) {
            for part in (0..2).filter(|&part| state[part] < 3) {
                let mut to = *state;
                to[part] += 1;
                each(part, to);
            }
        }

        fn canonical(&self, state: &[u8; 2]) -> [u8; 2] {
            [state[0].min(state[1]), state[0].max(state[1])]
        }

        fn wrong(&self, state: &[u8; 2]) -> Option<String> {
            (self.0 && *state == [3, 3]).then(|| "full".into())
        }
    }

    #[test]
    fn all_states_are_visited_once() {
        let checked = check(&Counters(false), usize::MAX);
        assert!(checked.complete && checked.wrong.is_none());
        assert_eq!((checked.states, checked.depth), (10, 6));
        assert!(!check(&Counters(false), 5).complete);
    }

    #[test]
    fn the_way_to_a_wrong_state_is_shown() {
        let (why, steps) = check(&Counters(true), usize::MAX).wrong.expect("it is found");
        assert_eq!((why.as_str(), steps.len()), ("full", 6));
        assert!(steps[5].ends_with("[3, 3]"), "{steps:?}");
    }
}
