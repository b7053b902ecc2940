//! How far an archive job is: a line on a terminal, or lines of JSON.

use crate::show;
use archive::message::Problem;
use archive::report::Facts;
use archive::roles::{Show, line};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::collections::VecDeque;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// The time over which the rate is taken.
const RATE_WINDOW: Duration = Duration::from_secs(15);

/// Shows how far a job is.
pub struct Progress {
    bar: Option<ProgressBar>,
    json: bool,
    seen: VecDeque<(Instant, Amount)>,
}

/// Files and bytes that need no more work. Bytes of a large file count part by part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Amount {
    files: u64,
    bytes: u64,
}

impl Amount {
    fn done(facts: &Facts) -> Self {
        let worked = facts.throughput.total().max(facts.bytes);
        Self { files: facts.files + facts.unchanged_files, bytes: worked + facts.unchanged_bytes }
    }

    fn found(facts: &Facts) -> Self {
        let done = Self::done(facts);
        Self { files: facts.found_files.max(done.files), bytes: facts.found_bytes.max(done.bytes) }
    }
}

impl Progress {
    /// Shows progress on a terminal, with this word, or as JSON.
    ///
    /// # Panics
    /// Never: the template is one of this program.
    pub fn new(what: &'static str, json: bool) -> Self {
        let style = ProgressStyle::with_template("{msg} {prefix}").expect("a template of this program");
        let terminal = std::io::stderr().is_terminal() && !json;
        let bar = terminal.then(|| ProgressBar::new(0).with_style(style).with_message(what));
        Self { bar, json, seen: VecDeque::new() }
    }

    /// The recent bytes a second, and the time that is left; None while that is not known.
    fn pace(&mut self, facts: &Facts, now: Instant) -> (f64, Option<Duration>) {
        let done = Amount::done(facts);
        self.seen.push_back((now, done));
        while self.seen.len() > 2 && self.seen.front().is_some_and(|(when, _)| now.duration_since(*when) > RATE_WINDOW)
        {
            self.seen.pop_front();
        }
        let Some(&(begun, before)) = self.seen.front() else { return (0.0, None) };
        let seconds = now.duration_since(begun).as_secs_f64();
        if seconds <= 0.0 {
            return (0.0, None);
        }
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        let (bytes, files) = (rate(done.bytes, before.bytes), rate(done.files, before.files));
        let left = |all: u64, done: u64, rate: f64| match all.saturating_sub(done) {
            0 => Some(0.0),
            left => (rate > 0.0).then(|| left as f64 / rate),
        };
        let found = Amount::found(facts);
        let by_bytes = left(found.bytes, done.bytes, bytes);
        // A large file is not done before its last part is: its bytes say how far it is.
        let by_files = left(found.files, done.files, files).or(Some(0.0));
        let left = by_bytes.zip(by_files).filter(|_| facts.explored).map(|(bytes, files)| bytes.max(files));
        (bytes, left.map(|left| Duration::from_secs_f64(left.min(1e9))))
    }
}

/// How far a job is, in words.
fn words(facts: &Facts, bytes_per_second: f64, left: Option<Duration>) -> String {
    let (done, found) = (Amount::done(facts), Amount::found(facts));
    let so_far = if facts.explored { "" } else { " found so far" };
    let left = left.map_or_else(String::new, |left| format!(", about {} left", show::about(left)));
    format!(
        "{} of {}, {} of {}{so_far}, {}/s{left}",
        done.files,
        show::count(found.files as usize, "file"),
        show::bytes(done.bytes),
        show::bytes(found.bytes),
        show::bytes(bytes_per_second as u64)
    )
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Show for Progress {
    fn problem(&mut self, problem: &Problem) {
        let text = line(problem);
        if self.json {
            let path = show::name(&problem.path);
            let _ = show::json_line("problem", json!({ "path": path, "what": problem.what }));
        }
        match &self.bar {
            Some(bar) => bar.suspend(|| show::warning(text)),
            None => show::warning(text),
        }
    }

    fn progress(&mut self, facts: &Facts) {
        let (rate, left) = self.pace(facts, Instant::now());
        if self.json {
            let Facts { files, bytes, others, unchanged_files, unchanged_bytes, .. } = facts;
            let _ = show::json_line(
                "progress",
                json!({
                    "files": files, "bytes": bytes, "others": others,
                    "unchanged_files": unchanged_files, "unchanged_bytes": unchanged_bytes,
                    "errors": facts.errors.count(), "worked_bytes": facts.throughput.total(),
                    "found_files": facts.found_files, "found_bytes": facts.found_bytes, "explored": facts.explored,
                    "bytes_per_second": rate, "seconds_left": left.map(|left| left.as_secs_f64()),
                }),
            );
        }
        if let Some(bar) = &self.bar {
            bar.set_prefix(words(facts, rate, left));
            bar.tick();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_that_is_left_is_known_when_all_was_found() {
        let mut progress = Progress::new("archiving", true);
        let begun = Instant::now();
        let at = |seconds: u64, worked: u64, explored: bool| {
            let mut facts = Facts { found_files: 1, found_bytes: 1000 << 20, explored, ..Facts::default() };
            facts.throughput.add(0.5, worked << 20);
            (facts, begun + Duration::from_secs(seconds))
        };
        let (facts, now) = at(0, 0, false);
        assert_eq!(progress.pace(&facts, now).1, None);
        let (facts, now) = at(1, 100, false);
        assert_eq!(progress.pace(&facts, now), (f64::from(100 << 20), None));
        assert_eq!(words(&facts, 1e6, None), "0 of 1 file, 100.0 MiB of 1000.0 MiB found so far, 976.6 KiB/s");
        // One large file: its parts are what counts.
        let (facts, now) = at(2, 200, true);
        let (rate, left) = progress.pace(&facts, now);
        assert_eq!((rate, left), (f64::from(100 << 20), Some(Duration::from_secs(8))));
        let shown = words(&facts, rate, left);
        assert_eq!(shown, "0 of 1 file, 200.0 MiB of 1000.0 MiB, 100.0 MiB/s, about 8 seconds left");
    }
}
