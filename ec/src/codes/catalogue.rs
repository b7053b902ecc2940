//! The names of all codes, and the limits of their parameters.

/// One row of the table of codes.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// The name in specs.
    pub name: &'static str,
    /// What it is, in a few words.
    pub title: &'static str,
    /// The shapes it can do.
    pub shapes: &'static str,
    /// The software whose parity it equals byte for byte.
    pub equals: &'static str,
    /// What it survives.
    pub survives: &'static str,
    /// A typical spec.
    pub example: &'static str,
}

/// The largest prime that an array code is built on: enough for 254 blocks, and a bound on what a
/// spec can cost.
pub(crate) const MAX_PRIME: usize = 257;

/// The bit-matrix codes' packet when a spec does not say: Ceph's.
pub(crate) const DEFAULT_PACKET: usize = 2048;

/// The longest packet: a region of 256 planes then has 16 MiB.
pub(crate) const MAX_PACKET_BYTES: usize = 64 << 10;

const fn family(
    name: &'static str,
    title: &'static str,
    shapes: &'static str,
    equals: &'static str,
    survives: &'static str,
    example: &'static str,
) -> Family {
    Family { name, title, shapes, equals, survives, example }
}

/// Every code that Weft has, the default first.
pub const CATALOGUE: &[Family] = &[
    family(
        "rs",
        "Reed-Solomon, Cauchy matrix (default)",
        "k+m <= 256",
        "ISA-L cauchy1, MarFS, klauspost Cauchy",
        "any m",
        "rs:4+2",
    ),
    family("crs", "Cauchy over GF(16) or GF(32), XOR only", "k+m <= 32", "own definition", "any m", "crs:10+4"),
    family("raid6", "P and Q", "m = 2, k <= 254", "ISA-L pq_gen, Linux md, Jerasure r6", "any 2", "raid6:8+2"),
    family(
        "lrc",
        "local groups and global parities",
        "k+l+g <= 255",
        "own definition (Azure class)",
        "any g+1, and more",
        "lrc:12+2+2",
    ),
    family(
        "rs-isa-vandermonde",
        "Vandermonde (2^i)^j",
        "m <= 3; more where MDS",
        "ISA-L gf_gen_rs_matrix",
        "any m",
        "rs-isa-vandermonde:4+2",
    ),
    family(
        "rs-vandermonde",
        "Vandermonde, extended and reduced",
        "k+m <= 256",
        "Jerasure reed_sol_van, Ceph",
        "any m",
        "rs-vandermonde:4+2",
    ),
    family(
        "rs-points",
        "evaluation at 0, 1, 2, ..",
        "k+m <= 256",
        "Backblaze, klauspost, reed-solomon-erasure",
        "any m",
        "rs-points:4+2",
    ),
    family("zfec", "evaluation at 0, 1, a, a^2, ..", "k+m <= 256", "zfec, Tahoe-LAFS", "any m", "zfec:3+7"),
    family("cauchy-original", "Cauchy bit matrix", "k+m <= 256", "Jerasure, Ceph", "any m", "cauchy-original:4+2"),
    family("cauchy-good", "Cauchy bit matrix, few ones", "k+m <= 256", "Jerasure, Ceph", "any m", "cauchy-good:8+3"),
    family(
        "liberation",
        "minimal density RAID-6",
        "m = 2, k <= w, w an odd prime",
        "Jerasure, Ceph",
        "any 2",
        "liberation:5+2",
    ),
    family("evenodd", "EVENODD RAID-6", "m = 2, k <= p, p an odd prime", "the paper", "any 2", "evenodd:5+2"),
    family("rdp", "row-diagonal parity RAID-6", "m = 2, k < p, p an odd prime", "the paper", "any 2", "rdp:4+2"),
    family("gluster", "non-systematic Vandermonde", "k+m <= 255", "Gluster disperse", "any m", "gluster:4+2"),
    family("xor", "one parity", "m = 1, k <= 255", "any code with an all-ones row", "any 1", "xor:4+1"),
    family("replica", "m+1 whole copies", "k = 1, m <= 255", "-", "any m", "replica:1+2"),
    family("none", "no parity, no coding call", "m = 0, k <= 256", "-", "nothing", "none:4"),
];
