//! Locks without poisoning.

pub use volume::lock;
