//! Arithmetic on blocks of bytes over GF(2^8), with one kernel per instruction set, chosen at run time.
//!
//! The only crate of Weft with SIMD `unsafe`. It knows fields, cosets and XOR programs, and nothing of codes.
//! All kernels give the same bytes; [`naive`] says what those are.

pub mod checksum;
pub mod coset;
mod dyadic;
mod erasure;
mod factors;
pub mod field;
mod grouped;
#[cfg(target_arch = "x86_64")]
pub mod jit;
mod kernel;
pub mod naive;
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
pub use factors::Factors;
pub use grouped::{Direct, Group, Grouped, GroupedSpec, NO_BLOCK, Way};
pub use kernel::Kernel;
pub use program::{Plane, Program, Step};
