//! Decoding one and m lost blocks: how fast, against encoding the same shape and against the peers.

use super::{cached_block, compare_rs, rs_peers};
use crate::contest::{Contest, Entrant, Race, Regime};
use crate::results::{Beside, Cell, Chart, Row, Table, Value};

const SHAPES: [(usize, usize); 6] = [(4, 2), (8, 4), (10, 4), (12, 6), (16, 4), (160, 80)];

/// Where the spread losses come from; fixed, so that every run loses the same blocks.
const SEED: u64 = 7;

pub fn tables(contest: &mut Contest) -> Vec<Table> {
    let mut rows = vec![];
    for (k, m) in SHAPES {
        // A wide stripe of the usual buffer would have blocks too short for what it is used for.
        let block_bytes = if k < 64 { cached_block(contest.effort.cached_bytes, k) } else { 4096 };
        let race = |label: &str, lost, entrants| {
            let label = format!("{k}+{m} {label}");
            Race { label, k, m, block_bytes, regime: Regime::Cached { iterations: None }, lost, entrants }
        };
        let encode = contest.run(&race("encode", vec![], vec![Entrant::own("rs encode", "rs")]));
        for (label, lost) in
            [("1 lost", vec![0]), ("m first", Vec::from_iter(0..m.min(k))), ("m spread", spread(k + m, m))]
        {
            let mut entrants = vec![Entrant::own("weft rs", "rs")];
            entrants.extend(rs_peers());
            let row = contest.run(&race(label, lost, entrants));
            rows.push(beside_encode(row, &encode.cells));
        }
    }
    vec![Table {
        id: "decode".into(),
        title: "Decoding, one core, from cache".into(),
        how: "MiB/s of user data of the stripe, as for encoding. One lost: block 0. m first: blocks 0 to m-1. m \
              spread: m positions drawn from all k+m with a fixed seed, parity included. Inverses are made before \
              the clock starts where the library lets one keep them. Blocks as for encoding; 4 KiB at 160+80."
            .into(),
        first: "shape and loss".into(),
        chart: Chart::Bars,
        rows,
    }]
}

/// The encoding figure was measured just before, so its ratio is one of medians.
fn beside_encode(mut row: Row, encode: &[Cell]) -> Row {
    compare_rs(&mut row);
    let pair = row.figure("weft rs").zip(encode.first().and_then(|cell| cell.outcome.figure()));
    if let Some((decode, encode)) = pair.map(|(d, e)| (d.median, e.median)) {
        row.beside.push(Beside { name: "rs encode".into(), value: Value::Rate(encode) });
        row.beside.push(Beside { name: "dec/ enc".into(), value: Value::Ratio(decode / encode) });
    }
    row
}

/// `count` of the positions below `blocks`, in order.
fn spread(blocks: usize, count: usize) -> Vec<usize> {
    let mut state = SEED;
    let mut positions: Vec<usize> = (0..blocks).collect();
    for at in 0..count {
        // Knuth's generator is random enough to shuffle a few positions.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        positions.swap(at, at + (state >> 33) as usize % (blocks - at));
    }
    positions.truncate(count);
    positions.sort_unstable();
    positions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_losses_are_different_positions_in_order() {
        for (blocks, count) in [(6, 2), (20, 4), (240, 80)] {
            let lost = spread(blocks, count);
            assert_eq!(lost.len(), count);
            assert!(lost.is_sorted_by(|a, b| a < b) && lost.iter().all(|&at| at < blocks));
        }
    }
}
