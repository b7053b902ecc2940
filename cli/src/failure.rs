//! How a command ends when it does not succeed: one line on standard error and an exit status.

use crate::interrupt::INTERRUPTED;
use std::fmt;
use std::path::PathBuf;

/// Why a command did not succeed.
#[derive(Debug)]
pub enum Failure {
    /// The arguments do not make sense: exit status 2.
    Usage(String),
    /// The work failed: exit status 1, or 130 when it was interrupted.
    Work(volume::Error),
    /// The work on a volume failed: exit status 1, or 130 when it was interrupted.
    Volume(fs::Error),
    /// Too few targets of the volume are there; others may have a newer state: exit status 3.
    TooFew(String),
    /// Another process has the volume open, which may carry the command out: exit status 1.
    Busy(PathBuf, String),
    /// The command printed what it found, and it is not good: exit status 1.
    Found,
    /// The reader of the output has closed it: exit status 1, without a message.
    OutputClosed,
    /// Anything else: exit status 1.
    Other(String),
}

/// Results of commands.
pub type Outcome = Result<(), Failure>;

impl From<volume::Error> for Failure {
    fn from(error: volume::Error) -> Self {
        match &error {
            volume::Error::Io { source, .. } if source.kind() == std::io::ErrorKind::BrokenPipe => Self::OutputClosed,
            _ => Self::Work(error),
        }
    }
}

impl From<fs::Error> for Failure {
    fn from(error: fs::Error) -> Self {
        match error {
            fs::Error::Volume(error) => error.into(),
            fs::Error::TooFew(what) => Self::TooFew(what),
            error => Self::Volume(error),
        }
    }
}

impl From<ec::InvalidCode> for Failure {
    fn from(error: ec::InvalidCode) -> Self {
        Self::Usage(error.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(what) | Self::Other(what) | Self::Busy(_, what) | Self::TooFew(what) => f.write_str(what),
            Self::Volume(error) => error.fmt(f),
            Self::Work(error) => error.fmt(f),
            Self::Found | Self::OutputClosed => Ok(()),
        }?;
        self.hint().map_or(Ok(()), |hint| write!(f, "; {hint}"))
    }
}

impl Failure {
    /// What to do next. The libraries know no commands.
    fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Volume(fs::Error::NotFound(what)) if what.ends_with(" is not a volume") => {
                Some("make one with weft volume create, or find a lost one's targets with weft volume open")
            }
            Self::TooFew(what) if what.contains("were given") => {
                Some("give more of them, or see weft volume open --help about --accept-loss")
            }
            Self::TooFew(_) => Some("--possibly-old shows what there is"),
            Self::Work(volume::Error::Invalid(what)) if what.ends_with(" exists and is not a regular file") => {
                Some("--out - writes to standard output")
            }
            Self::Work(volume::Error::Conflict { what, .. }) if what == "exists" => Some("give --force to replace it"),
            Self::Volume(fs::Error::Invalid(what)) if what.ends_with(" is not the address of a member") => {
                Some("--operator NAME makes an operator")
            }
            _ => None,
        }
    }

    /// The kind of failure, for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Usage(_) => "usage",
            Self::Work(error) => error.kind(),
            Self::Volume(fs::Error::NotFound(_)) => "not-found",
            Self::Volume(fs::Error::Unavailable(_)) => "unavailable",
            Self::Busy(..) => "busy",
            Self::TooFew(_) => "too-few-targets",
            Self::Found | Self::OutputClosed | Self::Other(_) | Self::Volume(_) => "failed",
        }
    }

    /// Whether there is something to say that was not printed yet.
    pub fn has_message(&self) -> bool {
        !matches!(self, Self::Found | Self::OutputClosed)
    }

    /// The exit status.
    pub fn status(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::TooFew(_) => 3,
            Self::Work(volume::Error::Interrupted) => INTERRUPTED,
            _ => 1,
        }
    }
}
