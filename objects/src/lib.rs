//! Objects in a volume: keys in buckets, which are paths of files in directories, so that a mount
//! shows the same bytes. Calls of `fs::FileSystem` are the only way to data. Every door to objects
//! stands on this crate: the S3 gateway, and the library for programs in Rust.
//!
//! - `home`, `place`, `naming`, `opened`, `about`: where things are, how they get their names, and
//!   what is kept of an object.
//! - `store`, `batch`, `copy`, `multipart`, `level`, `listing`: what the operations do.
//! - `sweep`: what is left over goes.
//! - `failure`: why an operation failed; `text`: encoding of keys and values in texts.
#![forbid(unsafe_code)]

pub mod about;
pub mod batch;
pub mod copy;
pub mod etag;
pub mod failure;
pub mod home;
pub mod level;
pub mod listing;
pub mod multipart;
mod naming;
mod opened;
mod place;
pub mod store;
pub mod sweep;
pub mod text;

pub use about::About;
pub use failure::{Code, Error, Result};
pub use opened::Opened;
pub use place::{ATTEMPTS, Aim, Condition, Found, KEY, MADE, Objects, answer, is_bucket, is_overtaken, now, whole};
