//! Reads every byte of an object and checks it: each granule against its checksum, and each
//! stripe's parity against its data.

use super::find::Object;
use super::parallel::{run, thread_count};
use super::problems::{Problem, ProblemKind, Problems};
use super::recover::StripeReader;
use super::rows::Rows;
use super::survival::Trials;
use crate::format::Header;
use crate::lock;
use crate::{Control, Result, unpoisoned};
use plan::Position;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// How the fragment of one position stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FragmentState {
    /// Every block of it is there and right.
    Sound(PathBuf),
    /// It is there, with problems.
    Damaged(PathBuf),
    /// There is none.
    Missing,
}

/// What a verification found.
#[derive(Debug)]
pub struct Report {
    /// The object's header.
    pub header: Header,
    /// By position.
    pub fragments: Vec<FragmentState>,
    /// Stripes whose blocks match their checksums but not each other.
    pub inconsistent_stripes: u64,
    /// How many more fragments, whichever they are, can be lost; `None` when the object cannot be
    /// decoded any more.
    pub survives: Option<usize>,
    /// Everything that is wrong.
    pub problems: Problems,
}

impl Report {
    /// Whether there is nothing to repair or to look after.
    pub fn is_healthy(&self) -> bool {
        self.problems.is_empty()
    }
}

/// What `scan` found out about the blocks of an object.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// The patterns of bad positions that occur in its stripes.
    pub patterns: BTreeSet<Vec<usize>>,
    pub inconsistent_stripes: u64,
}

impl Scan {
    /// The positions that are bad in some stripe.
    pub fn bad_positions(&self) -> BTreeSet<Position> {
        self.patterns.iter().flatten().map(|&index| Position::at(index)).collect()
    }
}

/// Reads all blocks; with `parity`, also codes the data again and compares.
pub(super) fn scan(object: &Object, threads: Option<usize>, parity: bool, control: &Control) -> Result<Scan> {
    let layout = &object.header.layout;
    control.begin(layout.object_bytes());
    // Of stripes behind the end of every file, one stands for all: a header may claim very many.
    let stripes = layout.stripes().min(object.stored_stripes() + 1);
    let (next, found) = (AtomicU64::new(0), Mutex::new(Scan::default()));
    let coded = if parity { object.code.coded().len() } else { 0 };
    let memory = object.stripe_memory_bytes() + coded * layout.block_bytes(0);
    run(thread_count(threads, memory, stripes), |stop| {
        let mut reader = StripeReader::new(object, true)?;
        let mut expected = Rows::new(coded, 0, layout.block_bytes(0))?;
        loop {
            let stripe = next.fetch_add(1, Ordering::Relaxed);
            if stripe >= stripes || stop.is_set() {
                return Ok(());
            }
            control.check()?;
            reader.begin(stripe);
            let bad = reader.read_all();
            let inconsistent =
                parity && !consistent(object, &mut reader, &bad, &mut expected, layout.block_bytes(stripe));
            let mut found = lock(&found);
            found.patterns.insert(bad);
            found.inconsistent_stripes += u64::from(inconsistent);
            drop(found);
            control.advance(layout.data_bytes(stripe));
        }
    })?;
    Ok(unpoisoned(found.into_inner()))
}

/// Whether the stored coded blocks are those of the data; true when too little is there to tell.
fn consistent(
    object: &Object,
    reader: &mut StripeReader<'_>,
    bad: &[usize],
    expected: &mut Rows,
    block_bytes: usize,
) -> bool {
    let code = &object.code;
    if code.coded().all(|position| bad.contains(&position)) || reader.data().is_err() {
        return true;
    }
    let mut coded = expected.all_mut(block_bytes);
    code.encode(&reader.data_blocks(), &mut coded);
    let differs = |&(position, ref block): &(usize, &mut &mut [u8])| {
        !bad.contains(&position) && reader.block(position) != &***block
    };
    let Some((position, _)) = code.coded().zip(&mut coded).find(differs) else {
        return true;
    };
    let path = object.fragments[position].first().map(|fragment| fragment.path.clone());
    let what = "the checksums match but the block is not the parity of the data; encode the file again if you have it";
    reader.report(Problem::new(ProblemKind::Parity, path, Position::at(position), what));
    false
}

/// Verifies the object.
///
/// # Errors
/// If it was cancelled. All damage to the object is in the report.
pub fn verify(object: Object, threads: Option<usize>, control: &Control) -> Result<Report> {
    let scan = scan(&object, threads, true, control)?;
    let bad = scan.bad_positions();
    let state = |(position, files): (usize, &Vec<super::Fragment>)| match files.first() {
        None => FragmentState::Missing,
        Some(first) if first.sound && !bad.contains(&Position::at(position)) => {
            FragmentState::Sound(first.path.clone())
        }
        Some(first) => FragmentState::Damaged(first.path.clone()),
    };
    let fragments = object.fragments.iter().enumerate().map(state).collect();
    let survives = worst(&object, &scan, control)?;
    let Scan { inconsistent_stripes, .. } = scan;
    Ok(Report {
        header: object.header,
        fragments,
        inconsistent_stripes,
        survives,
        problems: object.problems.into_list(),
    })
}

/// What the worst stripe survives, counting fragments that are not there at all in an object
/// without stripes.
pub(super) fn worst(object: &Object, scan: &Scan, control: &Control) -> Result<Option<usize>> {
    let missing: Vec<usize> = (0..object.fragments.len()).filter(|&p| object.fragments[p].is_empty()).collect();
    let mut trials = Trials::new(&*object.code, control);
    // An object without data needs no blocks.
    let mut blocks = usize::MAX;
    let missing = (object.header.layout.stripes() > 0).then_some(&missing);
    for lost in scan.patterns.iter().chain(missing) {
        match trials.survives(lost)? {
            Some(survives) => blocks = blocks.min(survives),
            None => return Ok(None),
        }
    }
    Ok(Some(most(object, blocks)))
}

/// As much of what its blocks survive as its headers do, too.
fn most(object: &Object, blocks: usize) -> usize {
    let having =
        |what: fn(&super::Fragment) -> bool| object.fragments.iter().filter(move |f| f.iter().any(what)).count();
    // Records say nothing of the object's name and length: one header is needed.
    let headers = having(|file| file.headed);
    // Files that were not committed count only while one that was is there.
    let uncommitted = object.fragments.iter().flatten().any(|file| !file.committed);
    let committed = if uncommitted { having(|file| file.committed && file.headed) } else { headers };
    blocks.min(headers.saturating_sub(1)).min(committed.saturating_sub(1))
}
