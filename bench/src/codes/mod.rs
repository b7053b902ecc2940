//! The sections of `weft bench codes`, a file each. A section says what it races and how it is to
//! be read.

mod bitmatrix;
mod decode;
mod file;
mod kernels;
mod memory;
mod overlap;
mod regions;
mod table;
mod wide;

use crate::args::Section;
use crate::contest::{Contest, Entrant};
use crate::results::{Row, Table};

/// Measures a section.
pub fn tables(section: Section, contest: &mut Contest) -> Vec<Table> {
    match section {
        Section::Table => table::tables(contest),
        Section::Regions => {
            let mut tables = regions::tables(contest);
            tables.push(overlap::table(contest, &regions::SHAPES));
            tables
        }
        Section::Memory => memory::tables(contest),
        Section::Wide => wide::tables(contest),
        Section::Decode => decode::tables(contest),
        Section::Bitmatrix => bitmatrix::tables(contest),
        Section::Kernels => kernels::tables(contest),
        Section::File => file::tables(contest),
    }
}

/// Every peer's Reed-Solomon codes, those with ISA-L's bytes and those with bytes of their own.
fn rs_peers() -> Vec<Entrant> {
    vec![
        Entrant::peer("ISA-L rs", "isal", "rs"),
        Entrant::peer("Jerasure rs", "jerasure", "rs-vandermonde"),
        Entrant::peer("Jerasure plain", "jerasure-plain", "rs-vandermonde"),
        Entrant::peer("zfec", "zfec", "zfec"),
        Entrant::peer("klauspost rs", "klauspost", "rs"),
        Entrant::peer("klauspost points", "klauspost", "rs-points"),
        Entrant::peer("Leopard gf8", "klauspost", "leopard-gf8"),
        Entrant::peer("rs-erasure", "reed-solomon-erasure", "rs-points"),
        Entrant::peer("rs-simd", "reed-solomon-simd", "reed-solomon-simd"),
    ]
}

/// How `rs` compares with its peers.
fn compare_rs(row: &mut Row) {
    row.add_best_peer("weft rs", "rs/ best");
    row.add_ratio("rs/ ISA-L", "weft rs", "ISA-L rs");
}

/// A block length that all byte codes take: whole 512-byte chunks of a stripe of `user_bytes` user
/// data.
fn cached_block(user_bytes: usize, k: usize) -> usize {
    (user_bytes / k / 512 * 512).max(512)
}
