//! The leader's task: which job it is, and how it ends.

use crate::command::{Arguments, Task};
use crate::lead::{Done, archive_all};
use crate::read::{restore_all, verify_all};
use crate::router::{Mail, Router};
use cli::archiving::{Failure, Outcome, Report, end};
use std::sync::Arc;

/// Leads a job and tells how it ended, to the user and to all other processes.
///
/// # Errors
/// When it did not do everything.
pub fn lead(router: &Arc<Router>, mail: &Mail, arguments: &Arguments, host: &str) -> Outcome {
    let (report, force) = match arguments.task() {
        Task::Archive(archive) => (archive.report.as_deref(), archive.force),
        Task::Restore(restore) => (restore.report.as_deref(), restore.force),
        Task::Verify(_) => (None, false),
    };
    // A report that cannot be written is refused before there is work to lose.
    let report = Report::new(report, force)?;
    let (facts, broken) = work(router, mail, arguments, host)?;
    end(&facts, broken, &report, arguments.json)
}

/// Does the job, whichever it is.
///
/// # Errors
/// When it cannot begin, or its end cannot be written.
pub fn work(router: &Arc<Router>, mail: &Mail, arguments: &Arguments, host: &str) -> Result<Done, Failure> {
    match arguments.task() {
        Task::Archive(archive) => archive_all(router, mail, arguments, archive, host),
        Task::Restore(restore) => restore_all(router, mail, arguments, restore, host),
        Task::Verify(verify) => verify_all(router, mail, arguments, verify, host),
    }
}
