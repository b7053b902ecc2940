//! How much more an object can lose: a function of its code and of what is lost already.

use crate::format::Layout;
use crate::{Control, Result};
use ec::{Code, Unrecoverable};

/// The limit of work, in patterns of further losses times the square of the blocks, for a code that
/// survives more than it promises: thousands of patterns for usual shapes, and few for the widest,
/// so that they take only a moment.
const MAX_WORK: usize = 1 << 20;

/// Whether the data of an object can be had from the blocks of these positions.
pub(super) fn readable(code: &dyn Code, layout: &Layout, have: &[usize]) -> std::result::Result<(), Unrecoverable> {
    let data = 0..code.shape().k;
    // An object without data is there when any header of it is.
    if layout.stripes() == 0 {
        return Ok(());
    }
    let plan = if code.systematic() {
        let lost: Vec<usize> = data.filter(|position| !have.contains(position)).collect();
        if lost.is_empty() {
            return Ok(());
        }
        code.repair(&lost, have)
    } else {
        code.read(&data.collect::<Vec<_>>(), have)
    };
    plan.map(|_| ())
}

/// How many more blocks, whichever they are, can be lost after `lost`; `None` when that is too much
/// already. For wide codes that are not MDS the true number may be higher.
pub fn survives(code: &dyn Code, lost: &[usize]) -> Option<usize> {
    let control = Control::default();
    Trials::new(code, &control).survives(lost).expect("nobody cancels it")
}

/// Tries what can still be lost, with as much work for all questions together as one may take.
pub(super) struct Trials<'a> {
    code: &'a dyn Code,
    control: &'a Control,
    left: usize,
}

impl<'a> Trials<'a> {
    pub fn new(code: &'a dyn Code, control: &'a Control) -> Self {
        Self { code, control, left: MAX_WORK / code.shape().blocks().pow(2) }
    }

    fn recoverable(&self, lost: &[usize]) -> Result<bool> {
        self.control.check()?;
        let have: Vec<usize> = (0..self.code.shape().blocks()).filter(|position| !lost.contains(position)).collect();
        Ok(lost.len() <= self.code.tolerates() || self.code.repair(lost, &have).is_ok())
    }

    /// A lower bound of how many more blocks can be lost after `lost`, and the number itself while
    /// there is work left.
    pub fn survives(&mut self, lost: &[usize]) -> Result<Option<usize>> {
        if !self.recoverable(lost)? {
            return Ok(None);
        }
        let mut sure = self.code.tolerates().saturating_sub(lost.len());
        if self.code.tolerates() >= self.code.shape().m {
            return Ok(Some(sure));
        }
        let others: Vec<usize> = (0..self.code.shape().blocks()).filter(|position| !lost.contains(position)).collect();
        let mut result = Ok(true);
        let mut passes = |more: &[usize]| {
            let mut gone = [lost, more].concat();
            gone.sort_unstable();
            let tried = self.left > 0;
            self.left = self.left.saturating_sub(1);
            result = if tried { self.recoverable(&gone) } else { Ok(false) };
            matches!(result, Ok(true))
        };
        while sure < others.len() && each_subset(&others, sure + 1, &mut passes) {
            sure += 1;
        }
        result.map(|_| Some(sure))
    }
}

/// Whether all subsets of that size pass.
fn each_subset(of: &[usize], size: usize, passes: &mut impl FnMut(&[usize]) -> bool) -> bool {
    fn grow(of: &[usize], size: usize, chosen: &mut Vec<usize>, passes: &mut impl FnMut(&[usize]) -> bool) -> bool {
        if chosen.len() == size {
            return passes(chosen);
        }
        (0..of.len()).all(|at| {
            chosen.push(of[at]);
            let good = grow(&of[at + 1..], size, chosen, passes);
            chosen.pop();
            good
        })
    }
    size <= of.len() && grow(of, size, &mut Vec::new(), passes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_mds_code_survives_what_parity_is_left() {
        let code = ec::parse("rs:4+2").unwrap();
        let lost: [&[usize]; 5] = [&[], &[5], &[0, 3], &[0, 1, 2], &[0, 1, 2, 3, 4, 5]];
        assert_eq!(lost.map(|lost| survives(&*code, lost)), [Some(2), Some(1), Some(0), None, None]);
    }

    #[test]
    fn a_local_code_is_tried_out() {
        let code = ec::parse("lrc:12+2+2").unwrap();
        assert_eq!(survives(&*code, &[]), Some(code.tolerates()));
        assert!(survives(&*code, &[0]).unwrap() + 1 >= code.tolerates());
    }

    #[test]
    fn subsets_are_all_and_once() {
        let mut seen = Vec::new();
        assert!(each_subset(&[1, 2, 4], 2, &mut |s| {
            seen.push(s.to_vec());
            true
        }));
        assert_eq!(seen, [vec![1, 2], vec![1, 4], vec![2, 4]]);
    }
}
