//! Locally repairable codes: k data blocks in l groups with an XOR parity each, and g global
//! parities.
//!
//! Positions: data, then local parities, then global ones. With two groups of at most 15 and two
//! global parities the construction is Azure's (Huang et al., 2012), which repairs every pattern
//! that any code of this structure could; other shapes take their global rows from a Cauchy matrix
//! and repair any g+1 losses.

use crate::linear::Matrix;
use gf::field::{inv, mul};

/// The data blocks of group `group`.
pub(crate) fn members(k: usize, l: usize, group: usize) -> std::ops::Range<usize> {
    group * k / l..(group + 1) * k / l
}

/// The parity rows, local first.
pub(crate) fn rows(k: usize, l: usize, g: usize) -> Matrix {
    let local = (0..l).map(|group| (0..k).map(|j| u8::from(members(k, l, group).contains(&j))).collect());
    local.chain(global(k, l, g)).collect()
}

/// Two global rows over at most 15 members per group: x and x^2, where the members of one group are
/// x = a and of the next x = 16 a (a = 1 .. 15), so that sums inside different groups never meet;
/// this is Azure's construction. Otherwise Cauchy rows: any g+1 losses are repaired.
fn global(k: usize, l: usize, g: usize) -> Matrix {
    if g == 2 && l == 2 && k.div_ceil(l) <= 15 {
        let point = |j: usize| {
            let group = usize::from(!members(k, l, 0).contains(&j));
            let a = (j - members(k, l, group).start + 1) as u8;
            if group == 0 { a } else { a << 4 }
        };
        return vec![(0..k).map(point).collect(), (0..k).map(|j| mul(point(j), point(j))).collect()];
    }
    // One Cauchy row more than there are global parities, every column divided by its entry in that
    // row: it becomes all ones, which is what the local parities add up to, so any g+1 columns stay
    // independent.
    let cauchy = |i: usize, j: usize| inv(((k + i) ^ j) as u8);
    (1..=g).map(|i| (0..k).map(|j| mul(cauchy(i, j), inv(cauchy(0, j)))).collect()).collect()
}
