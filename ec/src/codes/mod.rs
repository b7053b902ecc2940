//! How the code of each family is made, and which shapes it can do.

mod array;
pub(crate) mod catalogue;
pub(crate) mod cauchy;
mod crs;
mod lrc;
pub(crate) mod points;
mod vandermonde;

pub use catalogue::{CATALOGUE, Family};

use crate::byte_code::{self, ByteCode};
use crate::code::Code;
use crate::grs::Grs;
use crate::invalid::{InvalidCode, Limit};
use crate::linear::Matrix;
use crate::plane_code::{self, PlaneCode};
use crate::spec::{MAX_BLOCKS, Shape, Spec};
use crate::xor::Layout;
use crate::xor::bits::BitMatrix;
use catalogue::{DEFAULT_PACKET, MAX_PACKET_BYTES, MAX_PRIME};
use gf::Kernel;
use gf::field::mul;
use std::sync::Arc;

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
            request.require(m == 0 || spec.stores_zeroes(), || Limit::NoParity)?;
            request.byte(kernel, vec![vec![0; k]; m], 0, None, false)
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
            "none" if spec.shape().m > 0 => &[crate::spec::UNSAFE],
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
        let plain = self.spec.name == "none" && self.shape.m == 0;
        let numbers = if plain { vec![self.shape.k] } else { self.spec.numbers.clone() };
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
