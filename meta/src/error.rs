//! The errors of names and attributes, distinguished by what the caller can do about them.

use crate::kv::KvError;
use plan::Ino;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;

/// An error of this crate. The first variants are the POSIX errors of the same names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Error {
    /// No such file or directory.
    NotFound,
    /// A file of that name exists.
    Exists,
    /// Not a directory.
    NotDirectory,
    /// Is a directory.
    IsDirectory,
    /// The directory has entries.
    NotEmpty,
    /// An invalid argument.
    Invalid(Cow<'static, str>),
    /// A name is longer than 255 bytes, or a link target longer than 4095.
    NameTooLong,
    /// The file has the largest possible number of names.
    TooManyLinks,
    /// The file would exceed the largest possible size.
    TooLarge,
    /// No such extended attribute.
    NoAttribute,
    /// Not permitted for this kind of file.
    NotPermitted,
    /// There is no space for the metadata.
    NoSpace,
    /// The metadata cannot be read or written.
    Unavailable(String),
    /// The metadata is damaged.
    Corrupt(String),
    /// The client has the largest possible number of locks.
    TooManyLocks,
    /// Another opening of the volume has taken over; the text says whose. This one has ended.
    Fenced(String),
    /// The volume is open elsewhere; the text says where.
    Held(String),
    /// Too few targets can be reached; the text says which ones are missing.
    TooFew(String),
    /// Another client uses these files without what this one has not committed of them: that must
    /// not get into the volume any more. Only a client gets this, and drops what it has of them.
    Superseded(Vec<Ino>),
}

impl From<KvError> for Error {
    fn from(error: KvError) -> Self {
        match error {
            KvError::NoSpace => Self::NoSpace,
            KvError::Corrupt(what) => Self::Corrupt(what),
            KvError::Fenced(_) => Self::Fenced(error.to_string()),
            KvError::Held(_) => Self::Held(error.to_string()),
            KvError::TooFew(which) => Self::TooFew(which),
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
            Self::Fenced(why) | Self::Held(why) | Self::TooFew(why) => why,
            Self::Superseded(_) => "another client went on without what was written here and not committed",
        })
    }
}

impl std::error::Error for Error {}
