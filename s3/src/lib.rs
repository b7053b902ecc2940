//! An S3 gateway: buckets are directories, keys are paths, and the bytes are those that a mount
//! shows. Calls of `fs::FileSystem` are its only way to data.
//!
//! - `objects`, a crate of its own: where objects are, what is kept of them, how they are put,
//!   copied and listed.
//! - `put`, `get`, `buffers`, `reading`: bodies of requests and answers.
//! - `ops`: the operations of S3, each a few lines; `copying`, `removing`, `tags`, `parts`: those
//!   that are longer; `asked`, `headers`, `digest`, `token`: what requests say.
//! - `settings`, `configure`, `policy`, `cors`, `lifecycle`: what is set for a bucket.
//! - `keys`, `rights`, `permits`, `access`, `known`: who may do what.
//! - `server`, `silence`, `chunks`, `sweep`: the connections, and what is done without being asked.
#![forbid(unsafe_code)]

mod access;
mod asked;
mod buckets;
mod buffers;
mod chunks;
mod configure;
mod copying;
mod cors;
mod digest;
mod failure;
mod gateway;
mod get;
mod headers;
pub mod keys;
mod known;
mod lifecycle;
mod ops;
mod parts;
mod permits;
mod policy;
mod put;
mod reading;
mod removing;
mod rights;
mod server;
mod settings;
mod silence;
mod sweep;
mod tags;
#[cfg(test)]
mod tests;
mod tls;
mod token;
mod whole;

pub use objects::Objects;
pub use objects::etag::Kind as Etag;
pub use server::{Options, run};
pub use silence::Taken;
pub use tls::tls;
