//! The start of a metadata server, which may come before that of its stores: the machines of a
//! cluster are switched on together.

use super::patiently;
use super::serve::Signals;
use crate::failure::Failure;
use crate::show;
use cluster::runtime;
use fs::{FileSystem, OpenOptions};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Before it is tried again.
const PAUSE: Duration = Duration::from_secs(1);
/// So long it goes on only with so many stores that what they have is the newest; then with those
/// that are enough to open the volume.
const INSISTS: Duration = Duration::from_secs(30);
/// What it waits for is said again when that changes, no more often than this.
const TELL: Duration = Duration::from_secs(30);
/// A signal ends an attempt that takes longer than this.
const ENDS: Duration = Duration::from_secs(1);

/// Opens the volume that is to be served. While too few of its stores answer it tries again, until
/// the patience is over. None when a signal comes before that.
///
/// # Errors
/// When the stores do not come in time; at once when waiting does not help: it is no volume, is
/// open elsewhere, is of a newer format, or the stores refuse.
pub fn open_when_there(
    directory: &Path,
    patience: Duration,
    signals: &Signals,
) -> Result<Option<Arc<FileSystem>>, Failure> {
    let begun = Instant::now();
    let mut told: Option<(Instant, String)> = None;
    loop {
        let insists = begun.elapsed() < INSISTS.min(patience);
        let Some(opened) = runtime().block_on(attempt(directory, insists, signals)) else { return Ok(None) };
        let why = match opened {
            Err(Failure::Volume(fs::Error::Unavailable(why))) => why,
            opened => return opened.map(Some),
        };
        let left = patience.saturating_sub(begun.elapsed());
        if left.is_zero() {
            let waited = show::count(patience.as_secs() as usize, "second");
            let waited = if patience.is_zero() { String::new() } else { format!("; it was waited for {waited}") };
            return Err(Failure::Volume(fs::Error::Unavailable(format!("{why}{waited}"))));
        }
        if told.as_ref().is_none_or(|(when, what)| *what != why && when.elapsed() >= TELL) {
            let left = show::count(left.as_secs().max(1) as usize, "second");
            show::warning(format_args!("waits for the stores, for up to {left}: {why}"));
            told = Some((Instant::now(), why));
        }
        if runtime().block_on(async { timeout(PAUSE.min(left), signals.copy().wait()).await.is_ok() }) {
            return Ok(None);
        }
    }
}

/// Tries once; None when a signal came, and the attempt takes long, or fails.
async fn attempt(directory: &Path, insists: bool, signals: &Signals) -> Option<Result<Arc<FileSystem>, Failure>> {
    let (sender, mut opened) = oneshot::channel();
    let place = directory.to_path_buf();
    // It waits for what does not answer, and a signal does not.
    std::thread::spawn(move || {
        let options = || OpenOptions { serve: true, insists, ..super::options(false) };
        let _ = sender.send(patiently(&place, || FileSystem::open_volume(&place, options())));
    });
    let defect = |_| Err(Failure::Other("a defect while the volume was opened; it is said above".into()));
    tokio::select! {
        biased;
        opened = &mut opened => Some(opened.unwrap_or_else(defect)),
        () = signals.copy().wait() => match timeout(ENDS, opened).await {
            Ok(Ok(Ok(opened))) => Some(Ok(opened)),
            _ => None,
        },
    }
}
