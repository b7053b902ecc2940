//! An S3 gateway: buckets are directories, keys are paths, and the bytes are those that a mount
//! shows. Calls of `fs::FileSystem` are its only way to data.
//!
//! - `names`: a part of a key as a name, and back.
//! - `home`, `objects`, `naming`, `opened`, `about`: where things are, how they get their names,
//!   and what is kept of an object.
//! - `put`, `batch`, `get`, `copy`, `multipart`, `level`, `listing`: what the operations do.
//! - `ops`: the operations of S3, each a few lines; `asked`: what requests say in their headers.
//! - `keys`, `access`, `server`, `silence`: who may ask, and the connections.
#![forbid(unsafe_code)]

mod about;
mod access;
mod asked;
mod batch;
mod buckets;
mod copy;
mod digest;
mod failure;
mod gateway;
mod get;
mod headers;
mod home;
pub mod keys;
mod level;
mod listing;
mod multipart;
mod names;
mod naming;
mod objects;
mod opened;
mod ops;
mod parts;
mod put;
mod reading;
mod server;
mod silence;
mod sweep;
#[cfg(test)]
mod tests;
mod text;
mod tls;

pub use objects::Objects;
pub use server::{Options, run};
pub use tls::tls;
