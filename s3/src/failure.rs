//! Errors of the file system as errors of S3.

pub use objects::failure::is;
use s3s::S3Error;

/// The answer for an error that no operation expects (`objects::failure::failed`).
pub fn failed(error: &fs::Error) -> S3Error {
    objects::failure::failed(error).into()
}

/// The same, of an error that nobody else needs.
pub fn answer(error: fs::Error) -> S3Error {
    failed(&error)
}
