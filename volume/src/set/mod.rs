//! Chunk sets: the k+m chunks that hold the blocks of the same stripes.
//!
//! A stripe has the same offset, its record, in all its chunks. So one number locates it.

mod block_state;
mod buffers;
mod cached;
mod encoded;
mod failures;
mod headers;
mod identify;
mod layout;
mod master;
mod orders;
mod overloaded;
mod pages;
mod reader;
mod rebuild;
mod scan;
mod sealing;
mod verify;
mod writer;

pub use block_state::BlockState;
pub use buffers::{BufferPool, StripeBuffer};
pub use cached::read_at_hand;
pub(crate) use headers::Headers;
pub use identify::{FoundChunk, Identity, identify};
pub use layout::{SetLayout, record_range};
pub use orders::{Distributed, Master, NoMaster, Order, RebuildOrder, RebuildReport};
pub use reader::{ReadReport, read, read_manifest};
pub use rebuild::rebuild;
pub use scan::{Scanned, scan};
pub use sealing::Sealing;
pub use verify::{StripeReport, verify_stripe};
pub use writer::{Appended, SetWriter, Synced};
