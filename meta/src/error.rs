//! What can go wrong with names and attributes, by what the caller can do about it.

use crate::kv::KvError;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;

/// An error of this crate. The first ones are those of POSIX, in its words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Error {
    /// No such file or directory.
    NotFound,
    /// There is a file of that name.
    Exists,
    /// Not a directory.
    NotDirectory,
    /// Is a directory.
    IsDirectory,
    /// The directory has entries.
    NotEmpty,
    /// An argument that has no meaning here.
    Invalid(Cow<'static, str>),
    /// A name of more than 255 bytes, or a link of more than 4095.
    NameTooLong,
    /// More names than a file can have.
    TooManyLinks,
    /// A file larger than a file can be.
    TooLarge,
    /// No such extended attribute.
    NoAttribute,
    /// Not permitted for that kind of file.
    NotPermitted,
    /// There is no room for the metadata.
    NoSpace,
    /// The metadata cannot be written or read.
    Unavailable(String),
    /// The metadata is not what it should be.
    Corrupt(String),
    /// More locks than a client can have.
    TooManyLocks,
}

impl From<KvError> for Error {
    fn from(error: KvError) -> Self {
        match error {
            KvError::NoSpace => Self::NoSpace,
            KvError::Corrupt(what) => Self::Corrupt(what),
            other => Self::Unavailable(other.to_string()),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotFound => "no such file or directory",
            Self::Exists => "there is a file of that name",
            Self::NotDirectory => "not a directory",
            Self::IsDirectory => "is a directory",
            Self::NotEmpty => "the directory is not empty",
            Self::NameTooLong => "the name is too long",
            Self::TooManyLinks => "the file has too many names",
            Self::TooManyLocks => "this client has too many locks",
            Self::TooLarge => "the file would be too large",
            Self::NoAttribute => "no such attribute",
            Self::NotPermitted => "not permitted for this kind of file",
            Self::NoSpace => "no space is left for metadata",
            Self::Invalid(what) => what,
            Self::Unavailable(why) | Self::Corrupt(why) => why,
        })
    }
}

impl std::error::Error for Error {}
