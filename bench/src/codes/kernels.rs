//! The same code under every kernel that runs here, on blocks that fit the first-level cache.

use crate::contest::{Contest, Entrant, Race, Regime};
use crate::own::Own;
use crate::results::{Chart, Table};
use crate::subject::Subject;

const BLOCK: usize = 1024;

pub fn tables(contest: &mut Contest) -> Vec<Table> {
    // A kernel that the processor runs but does not list is probed in a child process; it is marked
    // as forced.
    let kernels = gf::select::all().into_iter().filter_map(|kernel| {
        let name = kernel.isa.name();
        let column = if kernel.listed.is_some() { name.to_owned() } else { format!("{name} forced") };
        Some((column, name, gf::select::kernel(kernel.isa).ok()?))
    });
    let (mut subjects, mut entrants) = (Vec::<Box<dyn Subject>>::new(), vec![]);
    for (column, name, kernel) in kernels {
        subjects.push(Box::new(Own::new(name, kernel)));
        entrants.push(Entrant { subject: name, ..Entrant::own(&column, "rs") });
    }
    let mut own = Contest::new(contest.effort, contest.kernel, subjects);
    let rows = [(10, 4), (4, 2), (12, 6)].into_iter().map(|(k, m)| {
        let label = format!("rs {k}+{m}");
        let (regime, entrants) = (Regime::Cached { iterations: None }, entrants.clone());
        let mut row = own.run(&Race { label, k, m, block_bytes: BLOCK, regime, lost: vec![], entrants });
        for entrant in row.cells.clone().into_iter().filter(|cell| cell.column != "avx2") {
            row.add_ratio(&format!("{}/ avx2", entrant.column.replace(' ', "-")), &entrant.column, "avx2");
        }
        row
    });
    let rows = rows.collect();
    vec![Table {
        id: "kernels".into(),
        title: "Kernels in the first-level cache, one core".into(),
        how: "rs on blocks of 1 KiB. A kernel marked forced is hidden by CPUID although the processor runs it.".into(),
        first: "code".into(),
        chart: Chart::Bars,
        rows,
    }]
}
