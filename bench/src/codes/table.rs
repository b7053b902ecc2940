//! Gluster's table: raw coding speed of one core on a buffer that stays in cache, beside the
//! figures its developers published in 2016; and the same buffer for the systematic codes and all
//! peers.

use super::{cached_block, compare_rs, rs_peers};
use crate::contest::{Contest, Entrant, Race, Regime};
use crate::results::{Beside, Cell, Chart, Row, Table, Value};

/// k, m and MiB/s of Gluster's test program: Atom D525 and Xeon E5-2630L, plain code, then both
/// with SSE2.
const PUBLISHED: [(usize, usize, [f64; 4]); 9] = [
    (2, 1, [633., 1856., 821., 3047.]),
    (4, 1, [405., 1203., 767., 2246.]),
    (4, 2, [324., 984., 629., 1887.]),
    (4, 3, [275., 807., 535., 1632.]),
    (8, 2, [227., 611., 466., 1237.]),
    (8, 3, [202., 545., 423., 1104.]),
    (8, 4, [182., 501., 388., 1044.]),
    (16, 3, [116., 303., 289., 675.]),
    (16, 4, [111., 295., 271., 637.]),
];

/// What the same message says of a systematic 16+4 with SSE2 on the Xeon.
const PUBLISHED_SYSTEMATIC: f64 = 3865.;

/// Further shapes that targets are set for.
const FURTHER_SHAPES: [(usize, usize); 6] = [(6, 2), (10, 2), (12, 2), (10, 4), (12, 4), (12, 6)];

const GLUSTER: &str = "weft gluster";
const BASELINE: &str = "gluster 2016";
const PLAIN: &str = "2016 plain";

pub fn tables(contest: &mut Contest) -> Vec<Table> {
    let iterations = Some(contest.effort.table_iterations);
    let (mut gluster, mut systematic, mut more) = (vec![], vec![], vec![]);
    for (k, m, published) in PUBLISHED {
        let row = contest.run(&race(contest, k, m, Regime::Cached { iterations }));
        let (own, all) = split(row);
        gluster.push(beside_published(own, published));
        systematic.push(compared(all));
    }
    for (k, m) in FURTHER_SHAPES {
        let row = contest.run(&race(contest, k, m, Regime::Cached { iterations: None }));
        more.push(compared(split(row).1));
    }
    let table = |id: &str, title: &str, how: &str, rows| Table {
        id: id.into(),
        title: title.into(),
        how: how.into(),
        first: "shape".into(),
        chart: Chart::Bars,
        rows,
    };
    vec![
        table("gluster", "Gluster's table: one core, 128 KiB buffer, 2 GiB in all", HOW_GLUSTER, gluster),
        table("systematic", "The same buffer, systematic codes and peers", HOW_SYSTEMATIC, systematic),
        table("cached", "More shapes from cache", HOW_MORE, more),
    ]
}

const HOW_GLUSTER: &str = "In every round 16384 iterations over one stripe of 128 KiB of user data, MiB/s of user \
    data; all k+m fragments of the non-systematic code are made. Atom D525 1.8 GHz and Xeon E5-2630L 2.0 GHz are the \
    published figures, plain and with SSE2. The column gluster 2016 is the published algorithm run here with 128-bit \
    registers, as SSE2's are: what it has over the Xeon's SSE2 column is the processor, and what weft has over it is \
    weft. The column 2016 plain is the same on 64-bit words, without SIMD: each multiplication \
    is compiled, and stays in general registers; those of gluster 2016 are lists that run on planes in the first-level \
    cache, which is why it may be the slower one.";
const HOW_SYSTEMATIC: &str = "As above, parity only. Blocks are 128 KiB / k, rounded down to 512 bytes, and for crs to \
    whole regions. They lie five cache lines apart, here and in the peers, so that those of a multiple of 4 KiB do \
    not meet in the same cache sets. A subject that would take over 1.5 s a round makes fewer iterations. Limit: the \
    same reads and writes without arithmetic, by one XOR into the first parity and fills of the others.";
const HOW_MORE: &str = "The buffer and block lengths of Gluster's table; 0.1 s a round.";

fn race(contest: &Contest, k: usize, m: usize, regime: Regime) -> Race {
    let mut entrants = vec![Entrant::own("weft rs", "rs"), Entrant::own("weft crs", "crs"), Entrant::limit()];
    if regime != (Regime::Cached { iterations: None }) {
        entrants.push(Entrant::own(GLUSTER, "gluster"));
        entrants.push(Entrant::peer(BASELINE, "gluster-2016", "gluster"));
        entrants.push(Entrant::peer(PLAIN, "gluster-2016-plain", "gluster"));
    }
    entrants.extend(rs_peers());
    let block_bytes = cached_block(contest.effort.cached_bytes, k);
    Race { label: format!("{k}+{m}"), k, m, block_bytes, regime, lost: vec![], entrants }
}

/// The row of Gluster's table and that of the peers', from the same rounds.
fn split(row: Row) -> (Row, Row) {
    let (own, all): (Vec<_>, Vec<_>) =
        row.cells.iter().cloned().partition(|c| [GLUSTER, BASELINE, PLAIN].contains(&&*c.column));
    let systematic = all.iter().filter(|c| c.column == "weft rs" || c.column == "weft crs");
    let beside_gluster = systematic.map(|cell| Cell { charted: false, ..cell.clone() });
    let own = own.into_iter().chain(beside_gluster).collect();
    (Row { cells: own, ..row.clone() }, Row { cells: all, ..row })
}

fn beside_published(mut row: Row, published: [f64; 4]) -> Row {
    let mut add = |name: &str, value| row.beside.push(Beside { name: name.into(), value });
    ["Atom plain", "Xeon plain", "Atom SSE2", "Xeon SSE2"]
        .iter()
        .zip(published)
        .for_each(|(name, rate)| add(name, Value::Rate(rate)));
    let to = |column: &str, rate: f64| row.figure(column).map(|figure| Value::Ratio(figure.median / rate));
    let (gluster, processor, plain) = (to(GLUSTER, published[3]), to(BASELINE, published[3]), to(PLAIN, published[1]));
    let mut push = |name: &str, value: Option<Value>| {
        row.beside.extend(value.map(|value| Beside { name: name.into(), value }));
    };
    push("weft/ Xeon-SSE2", gluster);
    push("2016/ Xeon-SSE2", processor);
    push("plain/ Xeon-plain", plain);
    row.add_ratio("weft/ 2016", GLUSTER, BASELINE);
    if (row.k, row.m) == (16, 4) {
        row.beside.push(Beside { name: "Xeon systematic".into(), value: Value::Rate(PUBLISHED_SYSTEMATIC) });
    }
    row
}

fn compared(mut row: Row) -> Row {
    compare_rs(&mut row);
    row.add_ratio("crs/ ISA-L", "weft crs", "ISA-L rs");
    row
}
