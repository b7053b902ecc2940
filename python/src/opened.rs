//! The volumes that this process has open. One that is opened again, as by an unpickled `Volume`,
//! is the same: a directory can be open only once, and a client of a cluster needs one session.

use crate::failure::{Failure, Result};
use fs::{FileSystem, OpenOptions, lock};
use pyo3::prelude::*;
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// How a volume is asked for.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Its directory, as an absolute path, or its `weft://` address.
    pub place: PathBuf,
    /// The certificate to show to servers, `DIR/NAME`.
    pub identity: Option<PathBuf>,
    /// Whether nothing is to be changed.
    pub read_only: bool,
}

/// An open volume, until its last user has left.
pub struct Opened {
    /// None when it is closed.
    fs: Mutex<Option<Arc<FileSystem>>>,
    place: PathBuf,
    read_only: bool,
    /// How many `Volume`s of Python use it.
    volumes: AtomicUsize,
    /// How many files are open. They keep it open when the last `Volume` is forgotten, not when it
    /// is closed.
    files: AtomicUsize,
    /// What it had to say, which no call returned.
    warnings: Arc<Mutex<Vec<String>>>,
}

/// Warnings that are kept until somebody asks for them.
const MAX_WARNINGS: usize = 100;

/// All that are open.
static ALL: Mutex<Vec<Arc<Opened>>> = Mutex::new(Vec::new());
/// The process that opened the first one. A child that was forked from it has none of its threads,
/// and perhaps locks that will never be free. 0: none was opened.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Fails in a child of the process that opened a volume.
pub fn is_not_forked() -> Result<()> {
    let own = std::process::id();
    match PROCESS.load(Ordering::Relaxed) {
        first if first == 0 || first == own => Ok(()),
        _ => Err(Failure::Forked),
    }
}

/// Opens a volume, or counts one more `Volume` that has it. Without the interpreter: it waits.
///
/// # Errors
/// Those of [`cluster::open`], and in a forked child.
pub fn open(wanted: &Wanted) -> Result<Arc<Opened>> {
    is_not_forked()?;
    PROCESS.store(std::process::id(), Ordering::Relaxed);
    let mut all = lock(&ALL);
    if let Some(identity) = &wanted.identity {
        show_identity(identity)?;
    }
    let is_wanted = |open: &&Arc<Opened>| open.place == wanted.place && open.read_only == wanted.read_only;
    if let Some(open) = all.iter().find(is_wanted) {
        open.volumes.fetch_add(1, Ordering::SeqCst);
        return Ok(open.clone());
    }
    let warnings = Arc::new(Mutex::new(Vec::new()));
    let kept = warnings.clone();
    let warn = move |what: &str| {
        let mut kept = lock(&kept);
        if kept.len() < MAX_WARNINGS {
            kept.push(what.to_owned());
        }
    };
    let places = Arc::new(cluster::ClusterPlaces::default());
    let options =
        OpenOptions { read_only: wanted.read_only, warn: Some(Box::new(warn)), places, ..OpenOptions::default() };
    let fs = Mutex::new(Some(cluster::open(&wanted.place, options)?));
    let (volumes, files) = (AtomicUsize::new(1), AtomicUsize::new(0));
    let Wanted { place, read_only, .. } = wanted.clone();
    let opened = Arc::new(Opened { fs, place, read_only, volumes, files, warnings });
    all.push(opened.clone());
    Ok(opened)
}

/// Makes this process show an identity to servers. All connections show the same one.
fn show_identity(identity: &Path) -> Result<()> {
    static SHOWN: OnceLock<PathBuf> = OnceLock::new();
    match SHOWN.get() {
        Some(shown) if shown == identity => Ok(()),
        Some(_) => Err(Failure::Errno(Errno::INVAL, "this process shows another identity to servers already")),
        None => {
            cluster::use_identity(&cluster::Identity::at(identity))?;
            let _ = SHOWN.set(identity.to_owned());
            Ok(())
        }
    }
}

/// Does what may wait as an object of Python is dropped: without the interpreter, if it is there.
pub fn in_drop(work: impl FnOnce() + Send) {
    let mut work = Some(work);
    let mut done = || work.take().into_iter().for_each(|work| work());
    if Python::try_attach(|py| py.detach(&mut done)).is_none() {
        done();
    }
}

impl Opened {
    /// The file system. Not in a forked child.
    ///
    /// # Errors
    /// When it is closed, or belongs to the parent of this process.
    pub fn fs(&self) -> Result<Arc<FileSystem>> {
        is_not_forked()?;
        lock(&self.fs).clone().ok_or(Failure::Closed("volume"))
    }

    /// Takes what it had to say.
    pub fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.warnings))
    }

    /// Counts one `Volume` less. The last one that is closed commits everything and closes it;
    /// files that are open then cannot be used any more. One that is forgotten leaves it to those.
    /// In a forked child nothing happens.
    ///
    /// # Errors
    /// When something could not be committed.
    pub fn leave(&self, closes: bool) -> Result<()> {
        if is_not_forked().is_err() {
            return Ok(());
        }
        let was_last = self.volumes.fetch_sub(1, Ordering::SeqCst) == 1;
        if was_last && (closes || self.files.load(Ordering::SeqCst) == 0) { self.end(closes) } else { Ok(()) }
    }

    /// Counts one more open file.
    pub fn opens_file(&self) {
        self.files.fetch_add(1, Ordering::SeqCst);
    }

    /// Counts one less. The last one closes what no `Volume` has any more.
    ///
    /// # Errors
    /// When something could not be committed.
    pub fn closes_file(&self) -> Result<()> {
        let was_last = self.files.fetch_sub(1, Ordering::SeqCst) == 1;
        if was_last && self.volumes.load(Ordering::SeqCst) == 0 { self.end(false) } else { Ok(()) }
    }

    /// Closes it, unless somebody came to use it meanwhile.
    fn end(&self, despite_files: bool) -> Result<()> {
        let mut all = lock(&ALL);
        let has_files = !despite_files && self.files.load(Ordering::SeqCst) > 0;
        if has_files || self.volumes.load(Ordering::SeqCst) > 0 {
            return Ok(());
        }
        all.retain(|open| !std::ptr::eq(&**open, self));
        // Still locked: one that opens the same directory now must find it closed.
        self.close()
    }

    fn close(&self) -> Result<()> {
        let Some(fs) = lock(&self.fs).take() else { return Ok(()) };
        Ok(fs.close_volume()?)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if is_not_forked().is_err() {
            // To close it would wait for threads that this process does not have, and write to
            // targets that the parent has open.
            std::mem::forget(self.fs.get_mut().unwrap_or_else(PoisonError::into_inner).take());
        }
    }
}

/// Commits and closes every volume of this process. It runs when the interpreter ends.
#[pyfunction]
pub fn close_all(py: Python<'_>) -> PyResult<()> {
    py.detach(|| {
        if is_not_forked().is_err() {
            return Ok(());
        }
        let all = std::mem::take(&mut *lock(&ALL));
        all.iter().map(|open| open.close()).fold(Ok(()), Result::and)
    })
    .map_err(PyErr::from)
}
