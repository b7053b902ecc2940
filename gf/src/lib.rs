//! Arithmetic on blocks of bytes over GF(2^8), with one kernel per instruction set, chosen at run
//! time.
//!
//! The only crate of Weft with SIMD `unsafe`. It knows fields, cosets and XOR programs, and nothing
//! of codes. All kernels give the same bytes; [`naive`] says what those are.
//!
//! [`select::chosen`] gives the best [`Kernel`] of this machine. A kernel multiplies and adds
//! blocks of bytes:
//!
//! ```
//! use weft_gf::{field, select};
//!
//! let kernel = select::chosen()?;
//! // Two parity blocks from one data block: 3 times it, and 7 times it.
//! let (mut three, mut seven) = (vec![0; 1000], vec![0; 1000]);
//! let data: Vec<u8> = (0..1000).map(|i| i as u8).collect();
//! let factors = kernel.factors(&[3, 7]);
//! kernel.multiply_add(&factors, &data, &mut [&mut three, &mut seven], 0..1000);
//! assert_eq!(seven[200], field::mul(7, 200));
//! # Ok::<(), select::NoKernel>(())
//! ```
//!
//! # Features
//! - `jit` (default): module `jit` compiles an XOR [`Program`] to machine code, on x86-64.
//! - `checksums` (default): module `checksum`, CRC-64/NVME.

// What only the fast kernels need.
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code, unused_mut))]

#[cfg(feature = "checksums")]
pub mod checksum;
pub mod coset;
mod dyadic;
mod erasure;
mod factors;
pub mod field;
mod grouped;
mod isa;
#[cfg(all(feature = "jit", target_arch = "x86_64"))]
pub mod jit;
mod kernel;
pub mod naive;
pub mod plain;
mod program;
pub mod select;
#[cfg(target_arch = "x86_64")]
mod simd;
#[cfg(target_arch = "x86_64")]
mod vector;
#[cfg(target_arch = "x86_64")]
pub mod x86;

pub use dyadic::{Dyadic, DyadicGroup};
pub use erasure::Erasure;
pub use factors::{Expand, Factors};
pub use grouped::{Direct, Group, Grouped, GroupedSpec, NO_BLOCK, Way};
pub use isa::{Isa, UnknownIsa};
pub use kernel::Kernel;
pub use program::{Plane, Program, Step};

/// The examples of the README are tests, too.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
