//! What the text of the write-cost analysis of ExSTorus-FS says in percent. Its tables are images;
//! these are all the shares that its sentences name.

use plan::cost::streams::Stream;

/// A network of the study.
pub struct Published {
    /// Its name.
    pub net: &'static str,
    /// Its speed.
    pub bits_per_second: f64,
    /// Measured there, or predicted.
    pub measured: bool,
    /// CO, PC and DD in percent.
    pub shares: [f64; 3],
    /// How many times longer a record of 128 KiB takes than one of 4 KiB, where the text says so.
    pub growth: &'static str,
}

/// They are the highest of a network, not always of the same record size, so they need not add up
/// to 100 or less.
pub const PUBLISHED: [Published; 4] = [
    Published {
        net: "1G",
        bits_per_second: 1e9,
        measured: true,
        shares: [3.1, 1.0, 93.1],
        growth: "CO and SP 4, MP and PC 17, DD 9",
    },
    Published {
        net: "10G",
        bits_per_second: 1e10,
        measured: true,
        shares: [19.2, 4.1, 78.7],
        growth: "CO and SP 4.5, MP and PC 13, DD 3",
    },
    Published { net: "40G", bits_per_second: 4e10, measured: true, shares: [27.0, 6.6, 47.7], growth: "" },
    Published { net: "100G", bits_per_second: 1e11, measured: false, shares: [46.0, 9.2, 17.2], growth: "" },
];

/// The steps of [`Published::shares`], by their number among the five.
pub const STEPS: [usize; 3] = [0, 2, 3];

/// What the study says of a network of that speed.
pub fn published(bits_per_second: f64) -> Option<&'static Published> {
    PUBLISHED.iter().find(|network| network.bits_per_second == bits_per_second)
}

/// What the study's text says of the throughput that a code loses against none, in percent: one
/// thread, and several. Its AVX2:CRS is a Cauchy code with SIMD, as `crs` and `rs` are here; its
/// CRS and LIB are XOR codes without SIMD; its RS works with tables. Of several threads it names
/// the least and the most.
pub fn published_loss(stream: &Stream) -> Option<f64> {
    let name = stream.code.split(':').next().unwrap_or_default();
    let plain = matches!(stream.kernel.as_deref(), Some("plain" | "naive"));
    let (one, several) = match name {
        "rs" if plain => (Some(29.0), Some(26.0)),
        "rs" | "crs" if !plain => (Some(4.0), Some(4.0)),
        "crs" | "cauchy-good" | "cauchy-original" | "liberation" if plain => (Some(15.0), None),
        _ => (None, None),
    };
    if stream.threads == 1 { one } else { several }
}
