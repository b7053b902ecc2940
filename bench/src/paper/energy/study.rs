//! The energy study's methods and workloads (tables 2 and 3), and what its text says of them.

use gf::Isa;

/// One of the study's methods.
#[derive(Debug)]
pub struct Method {
    /// The study's name, or this engine's.
    pub name: &'static str,
    pub what: &'static str,
    /// The code's family here: it makes the same bytes.
    pub family: &'static str,
    pub simd: bool,
}

/// Table 2, and this engine's default code.
pub const METHODS: [Method; 8] = [
    Method { name: "zfec", what: "zfec", family: "zfec", simd: false },
    Method { name: "EC1-A", what: "RS-Vandermonde", family: "rs-vandermonde", simd: false },
    Method { name: "EC1-B", what: "Cauchy original", family: "cauchy-original", simd: false },
    Method { name: "EC1-C", what: "Cauchy good", family: "cauchy-good", simd: false },
    Method { name: "EC2-A", what: "RS-Vandermonde", family: "rs-vandermonde", simd: true },
    Method { name: "EC2-B", what: "Cauchy original", family: "cauchy-original", simd: true },
    Method { name: "EC2-C", what: "Cauchy good", family: "cauchy-good", simd: true },
    Method { name: "rs", what: "Weft's default", family: "rs", simd: true },
];

/// The kernel of a method that has SIMD is chosen by the user.
pub fn kernel(method: &Method, simd: Isa) -> Isa {
    if method.simd { simd } else { Isa::Plain }
}

/// Table 3.
pub const SHAPES: [(usize, usize); 3] = [(160, 80), (160, 40), (160, 32)];

/// What the study says of a pair of methods, plain and with SIMD, at each shape: how much less the
/// second takes, in percent.
pub struct Reduction {
    pub plain: &'static str,
    pub simd: &'static str,
    /// On the disk.
    pub energy_on_disk: Option<[f64; 3]>,
    /// On flash.
    pub time_on_flash: Option<[f64; 3]>,
    pub energy_on_flash: Option<[f64; 3]>,
}

/// Figures 4A, 5B, 6A and 6B. Of the time of A the text gives 85.33 and 90.25 % for 3A and 4A both.
pub const REDUCTIONS: [Reduction; 3] = [
    Reduction {
        plain: "EC1-A",
        simd: "EC2-A",
        energy_on_disk: Some([90.01, 87.85, 87.04]),
        time_on_flash: None,
        energy_on_flash: Some([56.02, 42.96, 52.42]),
    },
    Reduction {
        plain: "EC1-B",
        simd: "EC2-B",
        energy_on_disk: None,
        time_on_flash: Some([28.01, 27.01, 27.17]),
        energy_on_flash: Some([28.29, 28.19, 27.54]),
    },
    Reduction {
        plain: "EC1-C",
        simd: "EC2-C",
        energy_on_disk: None,
        time_on_flash: Some([28.15, 25.64, 25.85]),
        energy_on_flash: Some([26.69, 24.54, 25.29]),
    },
];

/// Table 4: input and output, coding, idle, in percent, at each shape; on the disk.
pub const SHARES: [(&str, [[f64; 3]; 3]); 2] = [
    ("EC1-A", [[1.0, 13.0, 86.0], [2.0, 8.0, 90.0], [2.0, 6.0, 92.0]]),
    ("EC2-A", [[10.0, 11.0, 79.0], [13.0, 9.0, 78.0], [16.0, 7.0, 77.0]]),
];

/// Figure 7, beside disk to disk, in percent: by the numbers of source and destination, the disk
/// first, flash second.
pub const MIXED: [((usize, usize), f64); 3] = [((1, 1), -50.75), ((1, 0), -33.33), ((0, 1), -24.15)];

/// User data of three years, as the study counts it (its three petabytes a month are 108).
pub const YEARS_BYTES: f64 = 120e15;
/// Dollars for a kWh in New Mexico.
pub const PRICE: f64 = 0.107;
/// Figures 8 and 9: how much less SIMD costs, in percent, least and most; the disk, then flash.
pub const YEARS_REDUCTION: [(f64, f64); 2] = [(67.25, 84.95), (87.04, 90.04)];
