//! Errors of the operations on objects as those of `object_store`.

use object_store::path::{self, Path};
use objects::{Code, Condition, Error};

/// The name of the store in messages.
pub const STORE: &str = "Weft";

/// The error of an operation on an object.
pub fn of(why: Error, location: &Path) -> object_store::Error {
    use object_store::Error as E;
    let (code, source, path) = (why.code(), Box::new(why), location.to_string());
    match code {
        Code::NoSuchKey | Code::NoSuchBucket | Code::NoSuchUpload => E::NotFound { path, source },
        Code::PreconditionFailed => E::Precondition { path, source },
        Code::AccessDenied => E::PermissionDenied { path, source },
        _ => E::Generic { store: STORE, source },
    }
}

/// The error of a write that had this condition.
pub fn of_write(why: Error, location: &Path, condition: &Condition) -> object_store::Error {
    use object_store::Error as E;
    match (condition, why.code()) {
        (Condition::Absent, Code::PreconditionFailed) => {
            E::AlreadyExists { path: location.to_string(), source: Box::new(why) }
        }
        // What does not exist has another ETag, too.
        (Condition::Matches(_), Code::NoSuchKey) => {
            E::Precondition { path: location.to_string(), source: Box::new(why) }
        }
        _ => of(why, location),
    }
}

/// An error that is about no operation on an object.
pub fn generic(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> object_store::Error {
    object_store::Error::Generic { store: STORE, source: why.into() }
}

/// An error about something that is not done.
pub fn unsupported(what: impl Into<String>) -> object_store::Error {
    object_store::Error::NotSupported { source: what.into().into() }
}

/// The key of a path.
///
/// # Errors
/// `InvalidPath` for the root, which is no object.
pub fn key(location: &Path) -> object_store::Result<String> {
    match location.as_ref() {
        "" => Err(path::Error::EmptySegment { path: String::new() }.into()),
        key => Ok(key.to_owned()),
    }
}
