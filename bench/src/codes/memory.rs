//! Streaming from memory: many stripes, together far larger than the caches, by one core and by
//! all.

use super::{cached_block, compare_rs, rs_peers};
use crate::contest::{Contest, Entrant, Race, Regime};
use crate::results::{Chart, Row, Table};
use crate::threads::cores;

const SHAPES: [(usize, usize); 7] = [(4, 2), (8, 2), (8, 4), (10, 4), (12, 4), (12, 6), (16, 4)];

/// Shapes that arithmetic limits, not memory.
const COMPUTED: [(usize, usize); 3] = [(10, 4), (12, 6), (16, 4)];

pub fn tables(contest: &mut Contest) -> Vec<Table> {
    let mut rows = |entrants: &[Entrant], finish: fn(&mut Row)| -> Vec<Row> {
        let rows = SHAPES.iter().map(|&(k, m)| {
            let (label, block_bytes) = (format!("{k}+{m}"), contest.effort.streamed_block);
            let entrants = entrants.to_vec();
            let mut row =
                contest.run(&Race { label, k, m, block_bytes, regime: Regime::Streamed, lost: vec![], entrants });
            finish(&mut row);
            row
        });
        rows.collect()
    };
    let own = [Entrant::own("weft rs", "rs"), Entrant::own("weft crs", "crs"), Entrant::limit()];
    let one_core: Vec<Entrant> = own.iter().cloned().chain(rs_peers()).collect();
    let one = rows(&one_core, |row| {
        compare_rs(row);
        row.add_share("rs/ limit", "weft rs", "limit");
        row.add_share("crs/ limit", "weft crs", "limit");
    });
    let mut all_cores = own.to_vec();
    all_cores
        .extend(own.into_iter().zip(["rs all", "crs all", "limit all"]).map(|(e, name)| e.with_threads(name, cores())));
    let all = rows(&all_cores, |row| {
        row.add_ratio("rs all/one", "rs all", "weft rs");
        row.add_ratio("crs all/one", "crs all", "weft crs");
        row.add_ratio("limit all/one", "limit all", "limit");
        row.add_share("rs all/limit", "rs all", "limit all");
        row.add_share("crs all/limit", "crs all", "limit all");
    });
    let computed = COMPUTED.iter().map(|&(k, m)| {
        let own = Entrant::own("weft rs", "rs");
        let entrants = vec![own.clone(), own.with_threads("rs all", cores())];
        let block_bytes = cached_block(contest.effort.cached_bytes, k);
        let (label, regime) = (format!("{k}+{m}"), Regime::Cached { iterations: None });
        let mut row = contest.run(&Race { label, k, m, block_bytes, regime, lost: vec![], entrants });
        row.add_ratio("rs all/one", "rs all", "weft rs");
        row
    });
    let computed = computed.collect();
    let table = |id: &str, title: String, how: &str, rows| Table {
        id: id.into(),
        title,
        how: how.into(),
        first: "shape".into(),
        chart: Chart::Bars,
        rows,
    };
    vec![
        table("memory", "From memory, one core".into(), HOW_ONE, one),
        table("memory-all", format!("From memory, one core and all {}", cores()), HOW_ALL, all),
        table("cores", format!("From cache, one core and all {}", cores()), HOW_CORES, computed),
    ]
}

const HOW_ONE: &str = "Blocks of 1 MiB, 512 MiB in all (far slower subjects: 64 MiB at least). Limit: the same reads \
    and writes without arithmetic, by one XOR into the first parity and fills of the others.";
const HOW_ALL: &str = "Each core has stripes of its own; from the first start to the last end. Columns without all are \
    one core.";
const HOW_CORES: &str = "128 KiB of user data for each core, again and again: what computation gains from more cores.";
