//! Erasure codes over blocks in memory: encode, repair any recoverable pattern, update, accumulate.
//!
//! Pure mathematics: no I/O, no clock in any result. A code's bytes depend on its [`Spec`] only,
//! never on the kernel, the region, the threads or the machine.
//!
//! ```
//! let code = weft_ec::parse("rs:4+2")?;
//! let data = [b"four", b"data", b"bloc", b"ks.."];
//! let data: Vec<&[u8]> = data.iter().map(|block| &block[..]).collect();
//! let mut parity = vec![vec![0; 4]; 2];
//! let mut parity: Vec<&mut [u8]> = parity.iter_mut().map(|block| &mut block[..]).collect();
//! code.encode(&data, &mut parity);
//!
//! // Blocks 1 and 2 are lost; 0 and 3, and the parity blocks 4 and 5, are there.
//! let repair = code.repair(&[1, 2], &[0, 3, 4, 5])?;
//! let stored = [data[0], data[1], data[2], data[3], parity[0], parity[1]];
//! let reads: Vec<&[u8]> = repair.reads().iter().map(|read| stored[read.block]).collect();
//! let (mut one, mut two) = ([0; 4], [0; 4]);
//! repair.run(&reads, &mut [&mut one, &mut two]);
//! assert_eq!((&one, &two), (b"data", b"bloc"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Features
//! - `jit` (default): bit-matrix codes run as machine code that is made for their matrix, on
//!   x86-64.
//! - `checksums` (default): `partition::encode_checksummed`.
//! - `cache-sizes`: [`partition::caches`] reads the cache sizes from `/sys`. This is the only file
//!   access.

mod byte_code;
mod cache;
mod code;
mod codes;
mod fastest;
mod grs;
mod invalid;
mod linear;
pub mod partition;
mod plane_code;
mod spec;
mod transform;
pub mod xor;

pub use code::{Code, Read, Repair, Unrecoverable};
pub use codes::{CATALOGUE, Family, build};
pub use gf;
pub use invalid::{InvalidCode, Limit};
pub use spec::{MAX_BLOCKS, MAX_SPEC_BYTES, Shape, Spec};
pub use transform::Transform;

use std::sync::Arc;

/// The code of a spec like `rs:4+2`, on this machine's kernel.
///
/// ```
/// let code = weft_ec::parse("lrc:12+2+2")?;
/// assert_eq!((code.shape().k, code.shape().m, code.tolerates()), (12, 4, 3));
/// // The text of an error says what works.
/// let error = weft_ec::parse("raid6:4+3").unwrap_err();
/// assert_eq!(error.to_string(), "raid6:4+3: raid6 has m = 2; raid6:4+2 works");
/// # Ok::<(), weft_ec::InvalidCode>(())
/// ```
///
/// # Errors
/// When the text is not a spec, the code does not exist or cannot do the shape, or the kernel of
/// `WEFT_KERNEL` is not available.
pub fn parse(text: &str) -> Result<Arc<dyn Code>, InvalidCode> {
    let spec: Spec = text.parse()?;
    build(&spec, gf::select::chosen()?)
}

/// Every code that Weft has.
pub fn catalogue() -> &'static [Family] {
    CATALOGUE
}

/// The examples of the README are tests, too.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
