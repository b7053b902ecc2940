//! The energy study's wide workloads, where additive transforms leave matrices behind.

use super::{compare_rs, rs_peers};
use crate::contest::{Contest, Entrant, Race, Regime};
use crate::results::{Chart, Table};

const SHAPES: [(usize, usize); 3] = [(160, 80), (160, 40), (160, 32)];

/// Block length of the stripe that is coded again and again.
const CACHED_BLOCK: usize = 4096;

pub fn tables(contest: &mut Contest) -> Vec<Table> {
    let mut rows = vec![];
    let streamed = contest.effort.wide_block;
    let regimes = [("", CACHED_BLOCK, Regime::Cached { iterations: None }), (" mem", streamed, Regime::Streamed)];
    for (suffix, block_bytes, regime) in regimes {
        for (k, m) in SHAPES {
            let label = format!("{k}+{m}{suffix}");
            let mut entrants = vec![Entrant::own("weft rs", "rs"), Entrant::limit()];
            entrants.extend(rs_peers());
            let mut row = contest.run(&Race { label, k, m, block_bytes, regime, lost: vec![], entrants });
            compare_rs(&mut row);
            row.add_ratio("rs/ rs-simd", "weft rs", "rs-simd");
            row.add_ratio("rs/ Leopard", "weft rs", "Leopard gf8");
            rows.push(row);
        }
    }
    vec![Table {
        id: "wide".into(),
        title: "Wide stripes, one core".into(),
        how: "Blocks of 4 KiB, one stripe again and again (about the second-level cache); and, marked mem, of 64 KiB, \
              512 MiB in all."
            .into(),
        first: "shape".into(),
        chart: Chart::Bars,
        rows,
    }]
}
