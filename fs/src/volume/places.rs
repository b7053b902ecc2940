//! The places of targets: directories of this machine, or other places that an implementation can
//! reach.

use super::gauge::Gauge;
use crate::{Error, Result};
use plan::Domain;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use volume::target::{Disk, Target};

/// The longest wait for a target.
pub(crate) const TARGET_TIMEOUT: Duration = Duration::from_secs(15);

/// Finds targets by the places that labels name.
pub trait Places: fmt::Debug + Send + Sync {
    /// Creates an empty target at a place that has none.
    ///
    /// # Errors
    /// When there is one already, or it cannot be created.
    fn format(&self, place: &Path) -> Result<Arc<dyn Target>>;

    /// Opens the target at a place, with an exclusive lock where that is possible.
    ///
    /// # Errors
    /// If there is no target, or another process has it.
    fn open(&self, place: &Path) -> Result<Arc<dyn Target>>;

    /// The place in the form that labels use: it means the same wherever it is read.
    ///
    /// # Errors
    /// When it cannot be represented.
    fn full(&self, place: &Path) -> Result<PathBuf>;

    /// The failure domain of a target at a place, where the place knows it.
    ///
    /// # Errors
    /// When the server of the place does not answer.
    fn domain(&self, _place: &Path) -> Result<Option<Domain>> {
        Ok(None)
    }

    /// The name of the server that a target is on; None for a directory, which counts as a server
    /// of its own.
    fn server(&self, _place: &Path) -> Option<String> {
        None
    }

    /// The targets of a volume that is open here for writing are in these domains, now and until
    /// told otherwise.
    fn arrange(&self, _members: &[(PathBuf, Domain)]) {}

    /// Where what the server of a target reported last of how busy it is can be read, now and as
    /// long as the gauge is kept. None where nobody reports: then what this process itself asked of
    /// the target is all that is known. It waits for nothing.
    fn gauge(&self, _place: &Path) -> Option<Gauge> {
        None
    }
}

/// Directories of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Directories;

impl Directories {
    /// Opens a target to serve it to others, whose claims survive this process.
    ///
    /// # Errors
    /// As [`Places::open`].
    pub fn serve(&self, place: &Path) -> Result<Arc<dyn Target>> {
        let disk = lock(place)?;
        disk.serve()?;
        Ok(Arc::new(disk))
    }
}

/// Opens a directory and locks it for this process.
fn lock(place: &Path) -> Result<Disk> {
    let disk = Disk::open(place)?;
    // Threads of a volume that this process just closed may hold it for a moment.
    for _ in 0..100 {
        match disk.lock() {
            Err(volume::Error::Conflict { .. }) => std::thread::sleep(Duration::from_millis(20)),
            locked => return locked.map(|()| disk).map_err(Error::from),
        }
    }
    disk.lock()?;
    Ok(disk)
}

impl Places for Directories {
    fn format(&self, place: &Path) -> Result<Arc<dyn Target>> {
        Ok(Arc::new(Disk::format(place)?))
    }

    fn open(&self, place: &Path) -> Result<Arc<dyn Target>> {
        Ok(Arc::new(lock(place)?))
    }

    fn full(&self, place: &Path) -> Result<PathBuf> {
        if place.to_str().is_none() {
            let shown = volume::Shown(place);
            return Err(Error::Invalid(format!("{shown}: the path of a target or volume must be UTF-8")));
        }
        std::path::absolute(place).map_err(|why| Error::Invalid(format!("{}: {why}", volume::Shown(place))))
    }
}
