//! Bit-matrix codes: matrices over GF(2), XOR programs made from them, and running those over
//! packets.

pub(crate) mod bits;
pub(crate) mod optimise;
mod plane_map;

pub use gf::{Plane, Program, Step};
pub(crate) use plane_map::{Layout, PlaneMap};
