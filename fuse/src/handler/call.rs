//! Calls of the file system, and their errors in the log.

use crate::Log;
use crate::files::Files;
use fs::{Ino, Warnings, lock, shown};
use fuser::Errno;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How long a line of the log waits for the path of its file: what failed may be the metadata.
const PATH_TAKES: Duration = Duration::from_secs(1);

/// The operation for which the kernel looks again when it gets ESTALE, that the file is gone. For
/// others, the program would get that error.
pub(super) const OPENING: &str = "opening";

/// Calls a file system.
pub(super) struct Caller<F> {
    files: Arc<F>,
    reports: Arc<Reports>,
}

impl<F> Clone for Caller<F> {
    fn clone(&self) -> Self {
        Self { files: self.files.clone(), reports: self.reports.clone() }
    }
}

impl<F: Files> Caller<F> {
    pub(super) fn new(files: Arc<F>, log: Log) -> Self {
        Self { files, reports: Arc::new(Reports { log, recent: Warnings::default() }) }
    }

    pub(super) fn files(&self) -> &F {
        &self.files
    }

    /// Logs that an operation failed.
    pub(super) fn report(&self, what: &'static str, ino: Ino, why: &str) {
        self.reports.report(what, why, Instant::now(), || self.name(ino));
    }

    /// A file as the log names it: with its path, if that is known in time.
    fn name(&self, ino: Ino) -> String {
        let (send, found) = channel();
        let files = self.files.clone();
        let ask = move || _ = send.send(catch_unwind(AssertUnwindSafe(|| files.path_of(ino))).ok().flatten());
        let asked = std::thread::Builder::new().name("weft-path".into()).spawn(ask);
        let path = asked.ok().and_then(|_| found.recv_timeout(PATH_TAKES).ok().flatten());
        path.map_or_else(|| format!("inode {ino}"), |path| format!("/{} (inode {ino})", shown(&path)))
    }

    /// Calls it on behalf of an operation on a file. Errors become numbers; those that a program
    /// cannot make sense of (EIO) are logged. So are defects, which must not end the thread that
    /// serves a request: the mount would hang.
    pub(super) fn call<T>(
        &self,
        what: &'static str,
        ino: Ino,
        call: impl FnOnce(&F) -> fs::Result<T>,
    ) -> Result<T, Errno> {
        match catch_unwind(AssertUnwindSafe(|| call(&self.files))) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => {
                let errno = match error.errno() {
                    libc::ESTALE if what != OPENING => libc::EIO,
                    errno => errno,
                };
                if errno == libc::EIO {
                    self.report(what, ino, &error.to_string());
                }
                Err(Errno::from_i32(errno))
            }
            Err(_) => {
                self.report(what, ino, "a defect in Weft, see the message about a panic; please report it");
                Err(Errno::EIO)
            }
        }
    }
}

/// Writes of the kernel's cache that were refused, by file. The kernel may have no program left to
/// tell: the mapping is gone, or the program did not ask.
#[derive(Debug, Default)]
pub(crate) struct Refused(Mutex<HashMap<Ino, u64>>);

/// The most files that are remembered; of more, it is enough to know that there were some.
const REFUSED_FILES: usize = 1 << 16;

impl Refused {
    fn files(&self) -> MutexGuard<'_, HashMap<Ino, u64>> {
        lock(&self.0)
    }

    /// One more write to a file.
    pub(super) fn add(&self, ino: Ino) {
        let mut files = self.files();
        if files.len() < REFUSED_FILES || files.contains_key(&ino) {
            *files.entry(ino).or_default() += 1;
        }
    }

    /// Forgets files that are gone: data that was not written to them is not missed.
    pub(super) fn retain(&self, there: impl Fn(Ino) -> bool) {
        let mut files = self.files();
        files.retain(|&ino, _| there(ino));
    }

    /// How many there were.
    pub(crate) fn count(&self) -> u64 {
        self.files().values().sum()
    }
}

/// Logs failures, each kind of operation with each reason once in a while.
struct Reports {
    log: Log,
    recent: Warnings,
}

impl Reports {
    fn report(&self, what: &str, why: &str, now: Instant, name: impl FnOnce() -> String) {
        if let Some(more) = self.recent.pass(format!("{what}: {why}"), None, now) {
            self.log.line(&format!("{what} {} failed: {why}{more}", name()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_logged_once_for_each_reason() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let kept = lines.clone();
        let log = Log::new(move |line| kept.lock().unwrap().push(line.to_owned()));
        let reports = Reports { log, recent: Warnings::default() };
        let (now, later) = (Instant::now(), Instant::now() + Duration::from_secs(60));
        for ino in 1..5 {
            reports.report("reading", "no target answers", now, || format!("file {ino}"));
            reports.report("writing", "no target answers", now, || format!("file {ino}"));
        }
        reports.report("reading", "it is lost", now, || "file 8".into());
        reports.report("reading", "no target answers", later, || "file 9".into());
        let lines = lines.lock().unwrap();
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[2], "reading file 8 failed: it is lost");
        assert_eq!(lines[3], "reading file 9 failed: no target answers (and 3 times before)");
    }
}
