//! How much more an object can lose: a function of its code and of what is lost already.

use ec::Code;

/// As many patterns of further losses are tried for a code that survives more than it promises.
const MAX_PATTERNS: usize = 4000;

/// How many more blocks, whichever they are, can be lost after `lost`; `None` when that is too much already. For
/// wide codes that are not MDS it may be more than is answered.
pub fn survives(code: &dyn Code, lost: &[usize]) -> Option<usize> {
    let blocks = code.shape().blocks();
    let left: Vec<usize> = (0..blocks).filter(|position| !lost.contains(position)).collect();
    let recoverable = |more: &[usize]| {
        let mut gone = [lost, more].concat();
        gone.sort_unstable();
        let have: Vec<usize> = left.iter().copied().filter(|position| !more.contains(position)).collect();
        gone.is_empty() || code.repair(&gone, &have).is_ok()
    };
    if !recoverable(&[]) {
        return None;
    }
    let mut sure = code.tolerates().saturating_sub(lost.len());
    if code.tolerates() < code.shape().m {
        let mut tried = 0;
        while sure < left.len()
            && each_subset(&left, sure + 1, &mut |more| {
                tried += 1;
                tried <= MAX_PATTERNS && recoverable(more)
            })
        {
            sure += 1;
        }
    }
    Some(sure)
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
