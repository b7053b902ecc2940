//! Memory that is measured on: aligned, written once so that no page fault lands inside the clock,
//! and laid out as the peers lay theirs out, block after block, five cache lines apart. Without the
//! gap, blocks of a multiple of 4 KiB would all fall into the same cache sets, and the layout would
//! be measured instead of the code.

/// Pages are this long, and the arena begins at one.
const PAGE: usize = 4096;

/// From the begin of one block to the next.
fn pitch(block_bytes: usize) -> usize {
    block_bytes.next_multiple_of(64) + 5 * 64
}

/// Pseudo-random bytes at a page boundary.
pub struct Arena {
    bytes: Vec<u8>,
    skip: usize,
    length: usize,
}

impl Arena {
    /// `length` bytes.
    pub fn new(length: usize) -> Self {
        // Without `unsafe` the way to alignment is to take too much and begin at the boundary.
        let mut bytes = vec![0u8; length + PAGE];
        let skip = bytes.as_ptr().align_offset(PAGE).min(PAGE);
        let mut state = 0x9E37_79B9_7F4A_7C15u64;
        for word in bytes.chunks_exact_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
        Self { bytes, skip, length }
    }

    /// Space for `blocks` blocks.
    pub fn of_blocks(blocks: usize, block_bytes: usize) -> Self {
        Self::new(blocks * pitch(block_bytes))
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes[self.skip..self.skip + self.length]
    }

    /// The blocks in order, `per_stripe` at a time.
    pub fn stripes(&mut self, per_stripe: usize, block_bytes: usize) -> Vec<Vec<&mut [u8]>> {
        let mut blocks = self.bytes().chunks_exact_mut(pitch(block_bytes)).map(|b| &mut b[..block_bytes]);
        let mut stripes = Vec::new();
        loop {
            let stripe: Vec<&mut [u8]> = blocks.by_ref().take(per_stripe).collect();
            if stripe.len() < per_stripe {
                return stripes;
            }
            stripes.push(stripe);
        }
    }
}

/// Blocks of one stripe, parted into what is read and what is made.
pub struct Stripe<'a> {
    pub inputs: Vec<&'a [u8]>,
    pub outputs: Vec<&'a mut [u8]>,
}

impl<'a> Stripe<'a> {
    /// Reads the positions `reads` and makes the positions `makes`, each in the order given.
    pub fn new(blocks: Vec<&'a mut [u8]>, reads: &[usize], makes: &[usize]) -> Self {
        let mut blocks: Vec<Option<&mut [u8]>> = blocks.into_iter().map(Some).collect();
        let mut take = |&at: &usize| blocks[at].take().expect("a block is read or made, once");
        let outputs = makes.iter().map(&mut take).collect();
        Self { inputs: reads.iter().map(|at| &*take(at)).collect(), outputs }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripes_are_aligned_and_do_not_touch() {
        let mut arena = Arena::of_blocks(6, 100);
        let stripes = arena.stripes(3, 100);
        assert_eq!(stripes.len(), 2);
        assert!(stripes.iter().flatten().all(|b| b.len() == 100 && b.as_ptr().align_offset(64) == 0));
        assert_eq!(stripes[0][0].as_ptr().align_offset(PAGE), 0);
    }
}
