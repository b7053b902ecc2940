//! The errors of files and volumes, and the errno of each.

use rustix::io::Errno;
use std::fmt;

/// An error of this crate.
#[derive(Debug)]
pub enum Error {
    /// From names, attributes and metadata.
    Meta(meta::Error),
    /// From stored data.
    Volume(volume::Error),
    /// The volume was opened for reading only.
    ReadOnly,
    /// The file was removed while it was open elsewhere.
    Stale,
    /// A seek found neither data nor a hole.
    NoData,
    /// The operation is not possible for this kind of file or on this volume; the text says which
    /// one.
    Unsupported(&'static str),
    /// An argument is not valid; the text says what is allowed.
    Invalid(String),
    /// Another process has the volume open, or something is in the way; the text says who or what,
    /// and what to do.
    Conflict(String),
    /// The thing that the caller named does not exist.
    NotFound(String),
    /// Something that is needed does not answer now, and may do so later.
    Unavailable(String),
    /// So few targets of the volume are there that others may have a newer state; the text says
    /// which are missing.
    TooFew(String),
}

/// Written data that was not synced is lost.
pub(crate) fn lost() -> Error {
    Error::Meta(meta::Error::Unavailable(
        "what was written and not synced is lost, or may be: the session with the metadata server ended, another \
         server took over, or another client went on without it"
            .into(),
    ))
}

impl Error {
    /// Whether the error means that there is no space.
    pub(crate) fn is_no_space(&self) -> bool {
        self.errno() == Errno::NOSPC.raw_os_error()
    }

    /// The errno that a system call returns.
    pub fn errno(&self) -> i32 {
        use meta::Error as M;
        use volume::Error as V;
        let errno = match self {
            Self::Meta(M::NotFound) | Self::NotFound(_) => Errno::NOENT,
            Self::Meta(M::Exists) => Errno::EXIST,
            Self::Meta(M::NotDirectory) => Errno::NOTDIR,
            Self::Meta(M::IsDirectory) => Errno::ISDIR,
            Self::Meta(M::NotEmpty) => Errno::NOTEMPTY,
            Self::Meta(M::Invalid(_)) | Self::Invalid(_) | Self::Volume(V::Invalid(_)) => Errno::INVAL,
            Self::Meta(M::NameTooLong) => Errno::NAMETOOLONG,
            Self::Meta(M::TooManyLinks) => Errno::MLINK,
            Self::Meta(M::TooManyLocks) => Errno::NOLCK,
            Self::Meta(M::TooLarge) => Errno::FBIG,
            Self::Meta(M::NoAttribute) => Errno::NODATA,
            Self::Meta(M::NotPermitted) => Errno::PERM,
            Self::Meta(M::NoSpace) | Self::Volume(V::NoSpace(_)) => Errno::NOSPC,
            Self::ReadOnly => Errno::ROFS,
            Self::Stale => Errno::STALE,
            Self::NoData => Errno::NXIO,
            Self::Unsupported(_) => Errno::OPNOTSUPP,
            Self::Conflict(_) | Self::Volume(V::Conflict { .. }) | Self::Meta(M::Held(_)) => Errno::BUSY,
            Self::Meta(_) | Self::Volume(_) | Self::Unavailable(_) | Self::TooFew(_) => Errno::IO,
        };
        errno.raw_os_error()
    }
}

impl From<meta::Error> for Error {
    fn from(error: meta::Error) -> Self {
        Self::Meta(error)
    }
}

impl From<meta::kv::KvError> for Error {
    fn from(error: meta::kv::KvError) -> Self {
        Self::Meta(error.into())
    }
}

impl From<volume::Error> for Error {
    fn from(error: volume::Error) -> Self {
        Self::Volume(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Meta(error) => error.fmt(f),
            Self::Volume(error) => error.fmt(f),
            Self::ReadOnly => f.write_str("the volume is open for reading only"),
            Self::Stale => f.write_str("the file was removed"),
            Self::NoData => f.write_str("there is neither data nor a hole"),
            Self::Unsupported(what) => f.write_str(what),
            Self::Invalid(what)
            | Self::Conflict(what)
            | Self::NotFound(what)
            | Self::Unavailable(what)
            | Self::TooFew(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Error {}
