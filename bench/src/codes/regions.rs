//! Partition Encoding's curves (ECFS): long blocks coded region by region, over the length of the
//! region, and beside it the conventional way, a whole pass over the parity for every data block.

use crate::arena::{Arena, Stripe};
use crate::contest::{Contest, begun, progress};
use crate::machine::memory;
use crate::measure::interleaved;
use crate::own::{self, passes};
use crate::results::{Beside, Cell, Chart, Role, Row, Table, Value};
use ec::Code;
use ec::partition::Partition;
use std::time::Instant;

/// The paper's, as k and m.
pub(super) const SHAPES: [(usize, usize); 5] = [(5, 3), (6, 2), (10, 4), (12, 4), (12, 6)];

/// How a stripe is worked through.
#[derive(Clone, Copy)]
enum Way {
    Region(usize),
    Default,
    Conventional,
}

pub fn tables(contest: &mut Contest) -> Vec<Table> {
    let rows = SHAPES.iter().filter_map(|&(k, m)| row(contest, k, m).ok()).collect();
    vec![Table {
        id: "regions".into(),
        title: "Region size of Partition Encoding, rs, one core".into(),
        how:
            "One stripe of 64 MiB blocks (shorter where memory is short), MiB/s of user data over the bytes of a block \
              coded at a time. Default: what the engine chooses from the caches. Conventional: for each data block \
              one pass over all parity blocks, as the paper has it; gain is the best region over it: the paper says \
              21.4 % of the time for 12+6. Shapes are k+m: k data blocks and m of parity."
                .into(),
        first: "shape".into(),
        chart: Chart::Curves,
        rows,
    }]
}

fn row(contest: &Contest, k: usize, m: usize) -> Result<Row, String> {
    begun(&format!("{k}+{m}"));
    let code = own::build(contest.kernel, "rs", k, m, 0)?;
    let block_bytes = block_bytes(contest, k + m);
    let sizes = std::iter::successors(Some(contest.effort.region_least), |bytes| Some(bytes * 2));
    let sizes: Vec<usize> = sizes.take_while(|&bytes| bytes <= block_bytes).collect();
    let mut ways: Vec<(String, Way)> =
        sizes.iter().map(|&bytes| (plan::words::size(bytes as u64), Way::Region(bytes))).collect();
    ways.push(("default".into(), Way::Default));
    ways.push(("conventional".into(), Way::Conventional));

    let mut arena = Arena::of_blocks(k + m, block_bytes);
    let (reads, makes) = (Vec::from_iter(0..k), Vec::from_iter(k..k + m));
    let stripes = arena.stripes(k + m, block_bytes).into_iter();
    let mut stripes: Vec<Stripe> = stripes.map(|blocks| Stripe::new(blocks, &reads, &makes)).collect();
    let user_mib = (k * block_bytes) as f64 / (1 << 20) as f64;
    let figures = interleaved(contest.effort.rounds, ways.len(), |at| {
        let (name, way) = &ways[at];
        progress(&format!("{k}+{m}: {name}"));
        Ok(user_mib / time(&*code, &mut stripes, *way))
    });
    progress("");
    let cells = ways.iter().zip(figures).map(|((name, _), outcome)| Cell {
        column: name.clone(),
        role: Role::Own,
        code: "rs".into(),
        block_bytes,
        stripes: 1,
        iterations: 1,
        threads: 1,
        charted: true,
        outcome: outcome.into(),
    });
    let mut row = Row { label: format!("{k}+{m}"), k, m, lost: vec![], cells: cells.collect(), beside: vec![] };
    compare(&mut row, &ways[..sizes.len()]);
    Ok(row)
}

/// What the best region gains over the conventional way and over the worst region.
fn compare(row: &mut Row, regions: &[(String, Way)]) {
    let median = |name: &str| row.figure(name).map_or(0.0, |figure| figure.median);
    let by_speed = |a: &&String, b: &&String| median(a).total_cmp(&median(b));
    let names = || regions.iter().map(|(name, _)| name);
    let Some((best, worst)) = names().max_by(by_speed).zip(names().min_by(by_speed)) else { return };
    let gains =
        [("gain conv.", median("conventional")), ("gain worst", median(worst)), ("default/ best", median(best))];
    let values = [
        Value::Ratio(median(best) / gains[0].1),
        Value::Ratio(median(best) / gains[1].1),
        Value::Share(median("default") / gains[2].1),
    ];
    row.beside.extend(gains.iter().zip(values).map(|((name, _), value)| Beside { name: (*name).into(), value }));
}

fn time(code: &dyn Code, stripes: &mut [Stripe], way: Way) -> f64 {
    let partition = match way {
        Way::Region(bytes) => Partition { region_bytes: Some(bytes), threads: 1 },
        Way::Default => Partition::default(),
        Way::Conventional => return conventional(code, stripes),
    };
    let (start, end) = passes(stripes, 1, code.encoder(), partition, &Instant::now);
    (end - start).as_secs_f64()
}

/// Zeroes the parity, then adds every data block to it in a pass of its own over whole blocks.
fn conventional(code: &dyn Code, stripes: &mut [Stripe]) -> f64 {
    let start = Instant::now();
    for stripe in stripes {
        stripe.outputs.iter_mut().for_each(|parity| parity.fill(0));
        for (j, block) in stripe.inputs.iter().enumerate() {
            code.accumulate(j, block, &mut stripe.outputs);
        }
    }
    start.elapsed().as_secs_f64()
}

/// The block length wanted, halved until the stripe fits into half of the memory that is free.
pub(super) fn block_bytes(contest: &Contest, blocks: usize) -> usize {
    let free = memory("MemAvailable").unwrap_or(u64::MAX) / 2;
    let halves = std::iter::successors(Some(contest.effort.region_block), |bytes| Some(bytes / 2));
    let fits = |bytes: &usize| (blocks * bytes) as u64 <= free || *bytes <= contest.effort.region_least;
    halves.into_iter().find(fits).unwrap_or(contest.effort.region_least)
}
