//! Errors of the file system as errors of S3.

use crate::names::Refused;
use rustix::io::Errno;
use s3s::{S3Error, S3ErrorCode};

/// The answer for an error that no operation expects. It is logged: the client alone cannot help
/// it.
pub fn failed(error: &fs::Error) -> S3Error {
    use fs::Error as F;
    tracing::warn!("an S3 request failed: {error}");
    if is(error, Errno::NOSPC) {
        let mut full = S3Error::with_message(S3ErrorCode::Custom("StorageFull".into()), error.to_string());
        full.set_status_code(hyper::StatusCode::INSUFFICIENT_STORAGE);
        return full;
    }
    let code = match error {
        F::ReadOnly => S3ErrorCode::AccessDenied,
        F::Unavailable(_) | F::TooFew(_) => S3ErrorCode::ServiceUnavailable,
        _ => S3ErrorCode::InternalError,
    };
    S3Error::with_message(code, error.to_string())
}

/// The answer for a part of a key that has no name.
pub fn no_name(refused: Refused) -> S3Error {
    match refused {
        Refused::TooLong => {
            S3Error::with_message(S3ErrorCode::KeyTooLongError, "a part of the key between slashes is over 255 bytes")
        }
        Refused::Zero => S3Error::with_message(S3ErrorCode::InvalidArgument, "a key has no byte 0"),
    }
}

/// Whether an error is of this errno.
pub fn is(error: &fs::Error, errno: Errno) -> bool {
    error.errno() == errno.raw_os_error()
}
