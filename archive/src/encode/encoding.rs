//! What all workers of an archive job share.

use crate::limit::Limiter;
use crate::message::Stat;
use fs::FileSystem;
use plan::Ino;
use std::sync::Arc;
use volume::Control;

/// The directory of a job below the archive's own. It holds incomplete files and the list of files
/// with several names. The job removes it when it is done.
pub const HIDDEN: &[u8] = b".weft-archive";

/// What all workers of a job share.
pub struct Encoding {
    /// The volume.
    pub volume: Arc<FileSystem>,
    /// The directory of the job.
    pub hidden: Ino,
    /// Whether files that exist in the archive and differ are replaced.
    pub update: bool,
    /// Limits the rate of the job.
    pub limiter: Limiter,
    /// Stops the job.
    pub control: Arc<Control>,
}

/// The name of a file with several names in the job's directory.
pub(super) fn shared_name(stat: &Stat) -> Vec<u8> {
    format!("l-{:x}-{:x}", stat.identity.0, stat.identity.1).into_bytes()
}
