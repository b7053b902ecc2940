//! Verifies stripes.

use super::block_state::BlockState;
use super::layout::SetLayout;
use super::reader::StripeAt;
use crate::targets::Targets;
use plan::RecordOffset;

/// The result of the verification of a stripe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StripeReport {
    /// Its blocks, by position.
    pub blocks: Vec<BlockState>,
    /// Whether the blocks are consistent with each other; None if too few are available to decide.
    pub parity_fits: Option<bool>,
    /// Whether its data is readable.
    pub recoverable: bool,
}

/// Reads a whole stripe. Checks every block against its checksums, and the blocks against each
/// other.
pub fn verify_stripe(targets: &Targets, layout: &SetLayout, record: RecordOffset, block: u32) -> StripeReport {
    let stripe = StripeAt { targets, layout, record, block, fresh: true, hedged: false };
    let length = block as usize;
    let code = &*layout.code;
    let (quick, hanging) = stripe.by_haste(0..layout.places.len());
    let mut found = stripe.granules(&quick, &(0..length));
    // Each of them would delay each stripe by the deadline.
    found.extend(hanging.into_iter().map(|position| (position, Err(BlockState::Late))));
    stripe.outvote(&mut found);
    let (mut blocks, mut states) = (Vec::new(), Vec::new());
    for granules in found.into_values() {
        match granules {
            Ok(granules) => {
                blocks.push(Some(granules.bytes));
                states.push(BlockState::Sound);
            }
            Err(why) => {
                blocks.push(None);
                states.push(why);
            }
        }
    }
    let have: Vec<usize> = (0..blocks.len()).filter(|&position| blocks[position].is_some()).collect();
    let lost: Vec<usize> = (0..blocks.len()).filter(|&position| blocks[position].is_none()).collect();
    let recoverable = lost.is_empty() || code.repair(&lost, &have).is_ok();
    StripeReport { parity_fits: fits(layout, &blocks, &have), blocks: states, recoverable }
}

/// Whether the available blocks are consistent: each block that the others determine must equal
/// what they yield.
fn fits(layout: &SetLayout, blocks: &[Option<Vec<u8>>], have: &[usize]) -> Option<bool> {
    let code = &*layout.code;
    let k = code.shape().k;
    if have.len() == blocks.len() && code.systematic() {
        let data: Vec<&[u8]> = blocks[..k].iter().flatten().map(Vec::as_slice).collect();
        let mut coded = vec![vec![0; data[0].len()]; code.coded().len()];
        code.encode(&data, &mut coded.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
        return Some(coded.iter().zip(&blocks[k..]).all(|(made, found)| Some(made) == found.as_ref()));
    }
    // Compute each block from the others, as far as they determine it.
    let mut known = None;
    for &position in have {
        let others: Vec<usize> = have.iter().copied().filter(|&other| other != position).collect();
        let Ok(repair) = code.repair(&[position], &others) else { continue };
        let sources: Vec<&[u8]> = repair.reads().iter().filter_map(|read| blocks[read.block].as_deref()).collect();
        let found = blocks[position].as_deref()?;
        let mut made = vec![0; found.len()];
        repair.run(&sources, &mut [&mut made]);
        if made != found {
            return Some(false);
        }
        known = Some(true);
    }
    known
}
