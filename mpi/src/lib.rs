//! The parallel archive encoder with its roles in many processes (`docs/mpi.md`). This library is
//! all of it but MPI: it moves no bytes between processes itself, so that it can be built and
//! tested without MPI. The program `weft-mpi` moves them (`main.rs`).
#![forbid(unsafe_code)]

pub mod command;
mod follow;
pub mod layout;
mod lead;
pub mod metadata;
pub mod process_message;
mod read;
pub mod router;
mod run;
mod work;

pub use follow::follow;
pub use lead::Done;
pub use work::{lead, work};
