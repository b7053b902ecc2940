//! Erasure codes over blocks in memory: encode, repair any recoverable pattern, update, accumulate.
//!
//! Pure mathematics: no I/O, no clock in any result. A code's bytes depend on its [`Spec`] only, never on the kernel,
//! the region, the threads or the machine.

mod byte_code;
mod cache;
mod code;
mod codes;
mod fastest;
mod grs;
mod linear;
pub mod partition;
mod plane_code;
mod spec;
mod transform;
pub mod xor;

pub use code::{Code, Read, Repair, Unrecoverable};
pub use codes::{CATALOGUE, Family, build};
pub use spec::{InvalidCode, MAX_BLOCKS, Shape, Spec};
pub use transform::Transform;

use std::sync::Arc;

/// The code of a spec like `rs:4+2`, on this machine's kernel.
///
/// # Errors
/// When the text is no spec, there is no such code, it cannot do the shape, or `WEFT_KERNEL` cannot be had.
pub fn parse(text: &str) -> Result<Arc<dyn Code>, InvalidCode> {
    let spec: Spec = text.parse()?;
    let kernel = gf::select::chosen().map_err(|e| InvalidCode(e.to_string()))?;
    build(&spec, kernel)
}

/// Every code that Weft has.
pub fn catalogue() -> &'static [Family] {
    CATALOGUE
}
