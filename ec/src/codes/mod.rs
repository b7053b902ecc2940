//! The table of codes: every family's name, what it is, which shapes it can do, and how it is made.

mod array;
pub(crate) mod cauchy;
mod crs;
mod lrc;
pub(crate) mod points;
mod vandermonde;

use crate::byte_code::{self, ByteCode};
use crate::code::Code;
use crate::grs::Grs;
use crate::invalid::{InvalidCode, Limit};
use crate::linear::Matrix;
use crate::plane_code::{self, PlaneCode};
use crate::spec::{MAX_BLOCKS, Shape, Spec};
use crate::xor::Layout;
use crate::xor::bits::BitMatrix;
use gf::Kernel;
use gf::field::mul;
use std::sync::Arc;

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

/// The code of a spec, on a given kernel.
///
/// # Errors
/// When there is no such code, or it cannot do the shape: why, and the nearest that works.
pub fn build(spec: &Spec, kernel: &'static dyn Kernel) -> Result<Arc<dyn Code>, InvalidCode> {
    let request = Request::new(spec)?;
    let Shape { k, m } = request.shape;
    let byte = |parity: Matrix| request.byte(kernel, parity, m, None, false);
    match spec.name.as_str() {
        "rs" => request.byte(kernel, cauchy::isa(k, m), m, Some(Grs::cauchy(k, m)), false),
        "rs-points" => request.byte(kernel, points::backblaze(k, m), m, Some(Grs::evaluation(k, m)), false),
        "rs-isa-vandermonde" => {
            request.require(vandermonde::isa_is_mds(k, m), || {
                let nearest = (1..k).rev().find(|&k| vandermonde::isa_is_mds(k, m)).unwrap_or(1);
                Limit::NotMds { nearest }
            })?;
            byte(vandermonde::isa(k, m))
        }
        "rs-vandermonde" => byte(vandermonde::jerasure(k, m)),
        "zfec" => byte(points::zfec(k, m)),
        "raid6" => {
            request.parities(2)?;
            request.at_most(254)?;
            request.byte(kernel, vandermonde::raid6(k), m, None, true)
        }
        "xor" => {
            request.parities(1)?;
            byte(vec![vec![1; k]])
        }
        "replica" => {
            request.require(k == 1, || Limit::OneData)?;
            byte(vec![vec![1]; m])
        }
        "none" => {
            request.require(m == 0, || Limit::NoParity)?;
            byte(Matrix::new())
        }
        "lrc" => {
            let (l, g) = (spec.numbers[1], spec.numbers[2]);
            request.byte(kernel, lrc::rows(k, l, g), g + 1, None, false)
        }
        "crs" => {
            request.require(k + m <= 32, || Limit::SmallField)?;
            let layout = Layout { planes: crs::planes(k, m), packet: crs::PACKET, short_tail: true };
            request.planes(kernel, vec![], layout, crs::matrix(k, m), true)
        }
        "cauchy-original" => request.cauchy(kernel, cauchy::original(k, m)),
        "cauchy-good" => request.cauchy(kernel, cauchy::good(k, m)),
        "liberation" => {
            request.parities(2)?;
            let w = request.prime("w", k, 0)?;
            request.array(kernel, "w", w, w, array::liberation(k, w))
        }
        "evenodd" => {
            request.parities(2)?;
            let p = request.prime("p", k, 0)?;
            request.array(kernel, "p", p, p - 1, array::evenodd(k, p))
        }
        "rdp" => {
            request.parities(2)?;
            let p = request.prime("p", k, 1)?;
            request.array(kernel, "p", p, p - 1, array::rdp(k, p))
        }
        "gluster" => {
            request.require(m <= 254, || Limit::MaxParity(254))?;
            request.at_most(MAX_BLOCKS - 1 - m)?;
            let layout = Layout { planes: 8, packet: 64, short_tail: false };
            request.planes(kernel, vec![], layout, expand(&points::gluster(k, m)), false)
        }
        other => unreachable!("{other} is in the catalogue"),
    }
}

/// The bit matrix over GF(2^8).
fn expand(elements: &Matrix) -> BitMatrix {
    BitMatrix::expand(elements, 8, |e| mul(2, e))
}

/// A spec whose name, numbers and parameters fit the family's form.
struct Request<'a> {
    spec: &'a Spec,
    shape: Shape,
}

impl<'a> Request<'a> {
    fn new(spec: &'a Spec) -> Result<Self, InvalidCode> {
        let family = CATALOGUE.iter().find(|family| family.name == spec.name);
        let Family { name, example, .. } = family.ok_or_else(|| InvalidCode::UnknownFamily(spec.name.clone()))?;
        let wanted = match *name {
            "none" => 1,
            "lrc" => 3,
            _ => 2,
        };
        // `none:4+0` names the code as well.
        if spec.numbers.len() != wanted && !(*name == "none" && spec.numbers.len() == 2) {
            return Err(InvalidCode::Numbers { family: name, example });
        }
        let allowed: &'static [&'static str] = match *name {
            "cauchy-original" | "cauchy-good" => &["packet"],
            "liberation" => &["w", "packet"],
            "evenodd" | "rdp" => &["p", "packet"],
            _ => &[],
        };
        if let Some((parameter, _)) = spec.parameters.iter().find(|(n, _)| !allowed.contains(&n.as_str())) {
            let (family, parameter) = (spec.name.clone(), parameter.clone());
            return Err(InvalidCode::UnknownParameter { family, parameter, allowed });
        }
        let shape @ Shape { k, m } = spec.shape();
        let request = Self { spec, shape };
        request.require(k > 0, || Limit::MinData)?;
        request.require(m > 0 || *name == "none", || Limit::MinParity)?;
        request.require(k.saturating_add(m) <= MAX_BLOCKS, || Limit::MaxBlocks)?;
        if *name == "lrc" {
            let (l, g) = (spec.numbers[1], spec.numbers[2]);
            request.require(l > 0 && g > 0 && l <= k, || Limit::LocalGroups)?;
            request.require(k + l + g < MAX_BLOCKS, || Limit::MaxLocal(MAX_BLOCKS - 1))?;
        }
        Ok(request)
    }

    fn require(&self, holds: bool, limit: impl FnOnce() -> Limit) -> Result<(), InvalidCode> {
        if holds { Ok(()) } else { Err(InvalidCode::Unsupported { spec: self.spec.clone(), limit: limit() }) }
    }

    fn parities(&self, m: usize) -> Result<(), InvalidCode> {
        self.require(self.shape.m == m, || Limit::ExactParity(m))
    }

    fn at_most(&self, k: usize) -> Result<(), InvalidCode> {
        self.require(self.shape.k <= k, || Limit::MaxData(k))
    }

    /// The prime that an array code is built on: the parameter, or the least that holds k + `extra`
    /// columns.
    fn prime(&self, name: &'static str, k: usize, extra: usize) -> Result<usize, InvalidCode> {
        let least = array::prime_from((k + extra).max(3));
        let prime = self.spec.parameter(name).unwrap_or(least);
        self.require(array::odd_prime(prime) && prime >= k + extra && prime <= MAX_PRIME, || Limit::Prime {
            parameter: name,
            at_least: (k + extra).max(3),
            works: least,
        })?;
        Ok(prime)
    }

    fn packet(&self) -> Result<usize, InvalidCode> {
        let packet = self.spec.parameter("packet").unwrap_or(DEFAULT_PACKET);
        let fits = (8..=MAX_PACKET_BYTES).contains(&packet) && packet.is_multiple_of(8);
        self.require(fits, || Limit::Packet)?;
        Ok(packet)
    }

    fn byte(
        &self,
        kernel: &'static dyn Kernel,
        parity: Matrix,
        tolerates: usize,
        grs: Option<Grs>,
        pq: bool,
    ) -> Result<Arc<dyn Code>, InvalidCode> {
        let numbers = if self.spec.name == "none" { vec![self.shape.k] } else { self.spec.numbers.clone() };
        let spec = Spec { numbers, ..self.spec.clone() };
        let definition = byte_code::Definition { spec, shape: self.shape, parity, tolerates, grs, pq };
        Ok(Arc::new(ByteCode::new(kernel, definition)))
    }

    fn planes(
        &self,
        kernel: &'static dyn Kernel,
        parameters: Vec<(String, usize)>,
        layout: Layout,
        coded: BitMatrix,
        systematic: bool,
    ) -> Result<Arc<dyn Code>, InvalidCode> {
        let spec = Spec { parameters, ..self.spec.clone() };
        let definition = plane_code::Definition { spec, shape: self.shape, layout, coded, systematic };
        Ok(Arc::new(PlaneCode::new(kernel, definition)))
    }

    fn cauchy(&self, kernel: &'static dyn Kernel, elements: Matrix) -> Result<Arc<dyn Code>, InvalidCode> {
        let packet = self.packet()?;
        let layout = Layout { planes: 8, packet, short_tail: false };
        self.planes(kernel, vec![("packet".into(), packet)], layout, expand(&elements), true)
    }

    fn array(
        &self,
        kernel: &'static dyn Kernel,
        prime_name: &str,
        prime: usize,
        planes: usize,
        coded: BitMatrix,
    ) -> Result<Arc<dyn Code>, InvalidCode> {
        let packet = self.packet()?;
        let layout = Layout { planes, packet, short_tail: false };
        let parameters = vec![(prime_name.to_owned(), prime), ("packet".into(), packet)];
        self.planes(kernel, parameters, layout, coded, true)
    }
}
