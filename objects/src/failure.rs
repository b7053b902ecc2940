//! Why an operation on objects failed. The kinds have the names that S3 gives them.

use fs::object_name::Refused;
use rustix::io::Errno;
use std::borrow::Cow;
use std::fmt;

/// What kind of failure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The volume may not be changed.
    AccessDenied,
    /// The bytes have another checksum than the client says.
    BadDigest,
    /// There are no such parts.
    InvalidPart,
    /// Parts are in no order.
    InvalidPartOrder,
    /// No key, or one that cannot be.
    InvalidArgument,
    /// Something that is no object is in the way.
    InvalidRequest,
    /// There are more tags than an object may have, or one is too long.
    InvalidTag,
    /// A part of the key between slashes is too long.
    KeyTooLong,
    /// A completion lists no parts.
    MalformedXML,
    /// What is kept of an object is too long.
    MetadataTooLarge,
    /// There is no such bucket.
    NoSuchBucket,
    /// The key has no object.
    NoSuchKey,
    /// There is no such upload.
    NoSuchUpload,
    /// Others change the same names, again and again.
    OperationAborted,
    /// What had to hold does not.
    PreconditionFailed,
    /// Servers or targets do not answer.
    ServiceUnavailable,
    /// The volume is full.
    StorageFull,
    /// Anything else.
    InternalError,
}

/// A failure.
#[derive(Clone, Debug)]
pub struct Error {
    code: Code,
    message: Option<Cow<'static, str>>,
}

/// A result of an operation on objects.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An [`Error`] of a kind, with a message like that of `format!`.
macro_rules! error {
    ($code:ident) => { $crate::failure::Error::new($crate::failure::Code::$code) };
    ($code:ident, $($message:tt)+) => {
        $crate::failure::Error::with_message($crate::failure::Code::$code, format!($($message)+))
    };
}
pub(crate) use error;

impl Error {
    /// One without words of its own.
    pub fn new(code: Code) -> Self {
        Self { code, message: None }
    }

    /// One that says more.
    pub fn with_message(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: Some(message.into()) }
    }

    /// Its kind.
    pub fn code(&self) -> Code {
        self.code
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.message {
            Some(message) => write!(f, "{:?}: {message}", self.code),
            None => write!(f, "{:?}", self.code),
        }
    }
}

impl std::error::Error for Error {}

/// For the gateway: the same, as S3 answers it.
#[cfg(feature = "s3s")]
impl From<Error> for s3s::S3Error {
    fn from(error: Error) -> Self {
        use s3s::S3ErrorCode as S;
        let code = match error.code {
            Code::AccessDenied => S::AccessDenied,
            Code::BadDigest => S::BadDigest,
            Code::InvalidPart => S::InvalidPart,
            Code::InvalidPartOrder => S::InvalidPartOrder,
            Code::InvalidArgument => S::InvalidArgument,
            Code::InvalidRequest => S::InvalidRequest,
            Code::InvalidTag => S::InvalidTag,
            Code::KeyTooLong => S::KeyTooLongError,
            Code::MalformedXML => S::MalformedXML,
            Code::MetadataTooLarge => S::MetadataTooLarge,
            Code::NoSuchBucket => S::NoSuchBucket,
            Code::NoSuchKey => S::NoSuchKey,
            Code::NoSuchUpload => S::NoSuchUpload,
            Code::OperationAborted => S::OperationAborted,
            Code::PreconditionFailed => S::PreconditionFailed,
            Code::ServiceUnavailable => S::ServiceUnavailable,
            Code::StorageFull => S::Custom("StorageFull".into()),
            Code::InternalError => S::InternalError,
        };
        let mut answer = match error.message {
            Some(message) => Self::with_message(code, message),
            None => Self::new(code),
        };
        if error.code == Code::StorageFull {
            answer.set_status_code(hyper::StatusCode::INSUFFICIENT_STORAGE);
        }
        answer
    }
}

/// The failure for an error that no operation expects. It is logged: who asked cannot help it.
pub fn failed(error: &fs::Error) -> Error {
    use fs::Error as F;
    tracing::warn!("an operation on objects failed: {error}");
    let code = match error {
        full if is(full, Errno::NOSPC) => Code::StorageFull,
        F::ReadOnly => Code::AccessDenied,
        F::Unavailable(_) | F::TooFew(_) => Code::ServiceUnavailable,
        _ => Code::InternalError,
    };
    Error::with_message(code, error.to_string())
}

/// The failure for a part of a key that has no name.
pub fn no_name(refused: Refused) -> Error {
    match refused {
        Refused::TooLong => error!(KeyTooLong, "a part of the key between slashes is over 255 bytes"),
        Refused::Zero => error!(InvalidArgument, "a key has no byte 0"),
    }
}

/// Whether an error is of this errno.
pub fn is(error: &fs::Error, errno: Errno) -> bool {
    error.errno() == errno.raw_os_error()
}
