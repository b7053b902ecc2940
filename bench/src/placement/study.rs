//! What paper 003 (ECFS) says of its three policies, section VI.B, figures 8 and 10: aggregate
//! write bandwidth of 32 nodes, RS(6,2), each node a storage server and a client.

use super::result::Load;

/// How much more bandwidth adaptive placement has, in percent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Published {
    /// What clients write.
    pub load: Load,
    /// Than round-robin.
    pub over_round_robin: f64,
    /// Than random.
    pub over_random: f64,
}

/// The figures that the text names; the curves are images.
pub const PUBLISHED: [Published; 2] = [
    Published { load: Load::Balanced, over_round_robin: 12.9, over_random: 38.9 },
    Published { load: Load::Unbalanced, over_round_robin: 22.7, over_random: 42.0 },
];

/// Whose figures are which.
pub const WORDS: &str = "The paper's figures are of 32 nodes with a disk and an InfiniBand link each, which are \
    clients and servers, none of them slowed; ours are of this machine, whose stores share its processors and its \
    disk. Compare which policy is ahead, not by how much.";

/// The paper on a load.
pub fn published(load: Load) -> Published {
    match load {
        Load::Balanced => PUBLISHED[0],
        Load::Unbalanced => PUBLISHED[1],
    }
}
