//! Codes that are made of XORs, each against the library with the same bytes where there is one.

use crate::contest::{Contest, Entrant, Race, Regime};
use crate::own;
use crate::results::{Chart, Row, Table};

/// Ceph's packet.
const PACKET: usize = 2048;

const ALL_SHAPES: Shapes = &[(4, 2), (8, 4), (10, 4), (12, 4), (12, 6), (16, 4)];

type Shapes = &'static [(usize, usize)];

/// Code, shapes, whether its blocks are cut into packets, Jerasure's code and ISA-L's to compare
/// with.
const CODES: [(&str, Shapes, bool, &str, &str); 6] = [
    ("crs", ALL_SHAPES, false, "cauchy-good", "rs"),
    ("cauchy-good", ALL_SHAPES, true, "cauchy-good", "rs"),
    ("cauchy-original", &[(4, 2), (8, 4)], true, "cauchy-original", "rs"),
    ("liberation", &[(4, 2)], true, "liberation", "rs"),
    ("raid6", &[(4, 2), (8, 2), (10, 2)], false, "raid6", "raid6"),
    ("xor", &[(4, 1), (8, 1)], false, "", "xor"),
];

pub fn tables(contest: &mut Contest) -> Vec<Table> {
    let cached = (contest.effort.cached_bytes, Regime::Cached { iterations: None });
    let mut tables = vec![];
    for (id, title, streamed) in [
        ("bitmatrix", "XOR codes from cache, one core", false),
        ("bitmatrix-memory", "XOR codes from memory, one core", true),
    ] {
        let mut rows = vec![];
        for (code, shapes, packets, jerasure, isal) in CODES {
            for &(k, m) in shapes {
                let (about, regime) =
                    if streamed { (contest.effort.streamed_block, Regime::Streamed) } else { (cached.0 / k, cached.1) };
                let packet = if packets { PACKET } else { 0 };
                // crs is compared with Jerasure's best code, which is cut into packets although crs
                // is not.
                let unit = unit(contest, if code == "crs" { "cauchy-good" } else { code }, k, m);
                let race = Race {
                    label: format!("{code} {k}+{m}"),
                    k,
                    m,
                    block_bytes: (about / unit * unit).max(unit),
                    regime,
                    lost: vec![],
                    entrants: entrants(code, packet, jerasure, isal),
                };
                rows.push(compared(contest.run(&race)));
            }
        }
        let (title, how) = (title.into(), if streamed { HOW_MEMORY } else { HOW_CACHED }.into());
        tables.push(Table { id: id.into(), title, how, first: "code".into(), chart: Chart::Bars, rows });
    }
    tables
}

const HOW_CACHED: &str = "Packets of 2048 bytes, so blocks are whole regions of w packets (16 KiB; liberation 10 \
    KiB), as near below 128 KiB / k as that allows. crs, which is its own definition, stands against Jerasure's \
    cauchy-good and ISA-L's rs; raid6 and xor against ISA-L's pq_gen and xor_gen; the others' ISA-L column is rs of \
    the same shape.";
const HOW_MEMORY: &str = "Blocks of about 1 MiB, 512 MiB in all; otherwise as above.";

/// Bytes that a block is a multiple of: regions where there are packets, else what ISA-L's vectors
/// like.
fn unit(contest: &Contest, code: &str, k: usize, m: usize) -> usize {
    let packet = if matches!(code, "raid6" | "xor") { 0 } else { PACKET };
    own::build(contest.kernel, code, k, m, packet).map_or(512, |code| code.encoder().granularity().max(512))
}

fn entrants(code: &'static str, packet: usize, jerasure: &'static str, isal: &'static str) -> Vec<Entrant> {
    let jerasure_packet = if matches!(jerasure, "raid6") { 0 } else { PACKET };
    vec![
        Entrant::own("weft", code).with_packet(packet),
        Entrant::limit(),
        Entrant::peer("Jerasure", "jerasure", jerasure).with_packet(jerasure_packet),
        Entrant::peer("Jerasure plain", "jerasure-plain", jerasure).with_packet(jerasure_packet),
        Entrant::peer("ISA-L", "isal", isal),
    ]
}

fn compared(mut row: Row) -> Row {
    row.add_ratio("weft/ Jerasure", "weft", "Jerasure");
    row.add_ratio("weft/ plain", "weft", "Jerasure plain");
    row.add_ratio("weft/ ISA-L", "weft", "ISA-L");
    row.add_share("weft/ limit", "weft", "limit");
    row
}
