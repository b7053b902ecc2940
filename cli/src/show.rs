//! What is printed, and how: standard output that may be closed, byte counts, warnings, problems.

use crate::failure::{Failure, Outcome};
pub use plan::words::{bytes, count, date};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use volume::object::Problems;

thread_local! {
    /// Where this thread's output and errors go instead, while it carries out a command for another
    /// process.
    static CAPTURED: RefCell<Option<(String, String)>> = const { RefCell::new(None) };
}

/// Does something and returns what it printed: its output and its errors.
pub fn captured<T>(work: impl FnOnce() -> T) -> (T, String, String) {
    CAPTURED.set(Some(Default::default()));
    let result = work();
    let (output, errors) = CAPTURED.take().unwrap_or_default();
    (result, output, errors)
}

/// Whether standard error is a log.
static LOGS: AtomicBool = AtomicBool::new(false);

/// From now on, standard error is a log: each line begins with the time and the level.
pub fn begin_log() {
    LOGS.store(true, Ordering::Relaxed);
}

/// Prints an error to standard error.
pub fn error(what: impl Display) {
    tell(Level::Error, what);
}

/// Reports a failure to the user, or as JSON to a program that asked for that, and returns the exit
/// status.
pub fn failure(why: &Failure, as_json: bool) -> u8 {
    if why.has_message() {
        // If standard error is closed, the exit status still tells.
        error(why);
        if as_json {
            let _ = json_line("error", json!({ "kind": why.kind(), "message": why.to_string() }));
        }
    }
    why.status()
}

#[derive(Clone, Copy)]
enum Level {
    Error,
    Warning,
}

/// What begins a line of a log. The journal of systemd has times of its own.
fn log_line(level: Level, now: Duration, in_journal: bool, what: &impl Display) -> String {
    let level = match level {
        Level::Error => "ERROR",
        Level::Warning => "WARN",
    };
    if in_journal {
        return format!("{level} {what}");
    }
    format!("{}.{:03}Z {level} {what}", date(now.as_secs() as i64).replace(' ', "T"), now.subsec_millis())
}

fn tell(level: Level, what: impl Display) {
    let is_captured = CAPTURED.with_borrow(Option::is_some);
    if LOGS.load(Ordering::Relaxed) && !is_captured {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        return to_stderr(log_line(level, now, std::env::var_os("JOURNAL_STREAM").is_some(), &what));
    }
    let is_coloured = !is_captured && has_colour(std::io::stderr().is_terminal());
    match level {
        Level::Error => to_stderr(format_args!("{} {what}", painted("weft:", RED, is_coloured))),
        Level::Warning => to_stderr(format_args!("weft: {} {what}", painted("warning:", YELLOW, is_coloured))),
    }
}

const RED: u8 = 31;
const YELLOW: u8 = 33;

/// Whether an output has colours: a terminal that can show them, unless the user wants none
/// (<https://no-color.org>).
fn has_colour(is_terminal: bool) -> bool {
    let set = |name| std::env::var_os(name).filter(|value: &std::ffi::OsString| !value.is_empty());
    is_terminal && set("NO_COLOR").is_none() && set("TERM").is_some_and(|terminal| terminal != "dumb")
}

/// A word in bold and in a colour.
fn painted(word: &str, colour: u8, is_coloured: bool) -> String {
    if is_coloured { format!("\x1b[1;{colour}m{word}\x1b[0m") } else { word.into() }
}

/// Marks words of standard output that the user must see, on a terminal that can show colours.
pub fn marked(line: &str) -> String {
    let is_captured = CAPTURED.with_borrow(Option::is_some);
    if is_captured || !has_colour(std::io::stdout().is_terminal()) {
        return line.into();
    }
    mark(line)
}

fn mark(line: &str) -> String {
    const ALARM_WORDS: [&str; 7] =
        ["needs attention", "LESS REDUNDANCY", "NEARLY FULL", "PROBLEM", "TROUBLE", "LOST", "BAD"];
    ALARM_WORDS.iter().fold(line.to_owned(), |line, word| line.replace(word, &painted(word, RED, true)))
}

fn to_stderr(line: impl Display) {
    let captured = CAPTURED.with_borrow_mut(|captured| {
        let captured = captured.as_mut()?;
        captured.1 += &format!("{line}\n");
        Some(())
    });
    if captured.is_none() {
        // If standard error is closed, the exit status still tells.
        let _ = writeln!(std::io::stderr(), "{line}");
    }
}

/// Prints to standard output, in one write: who reads lines gets whole documents.
pub fn text(text: impl Display) -> Outcome {
    let text = format!("{text}\n");
    let captured = CAPTURED.with_borrow_mut(|captured| {
        let captured = captured.as_mut()?;
        captured.0 += &text;
        Some(())
    });
    if captured.is_some() {
        return Ok(());
    }
    let mut output = std::io::stdout().lock();
    output.write_all(text.as_bytes()).and_then(|()| output.flush()).map_err(|error| match error.kind() {
        std::io::ErrorKind::BrokenPipe => Failure::OutputClosed,
        _ => Failure::Other(format!("cannot write to standard output: {error}")),
    })
}

/// Prints the one JSON document of a command.
pub fn json(document: &Value) -> Outcome {
    text(format_args!("{:#}", with_names(document.clone())))
}

/// Prints one of several lines of JSON: `{"type": T, T: ..}`.
pub fn json_line(kind: &str, what: Value) -> Outcome {
    json_line_of(kind, json!({ kind: what }))
}

/// Prints a line of JSON of a type, with its other fields.
pub fn json_line_of(kind: &str, mut line: Value) -> Outcome {
    line["type"] = kind.into();
    text(with_names(line))
}

/// The key of the bytes of a name that is not UTF-8, until `with_names` gives it its own.
const BYTES: &str = "\0bytes";
/// What the key of such bytes ends with.
const HEXADECIMAL: &str = "_hex";

/// A name for JSON. Of one that is not UTF-8, the document also gets the bytes in hexadecimal,
/// under its key with `_hex` behind.
pub fn name(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => json!({ BYTES: bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>() }),
    }
}

/// Such a name as text, with replacement characters, and its bytes.
fn split_name(value: &Value) -> Option<(Value, Value)> {
    let hexadecimal = value.get(BYTES)?.as_str()?;
    let digits = (0..hexadecimal.len()).step_by(2).filter_map(|at| hexadecimal.get(at..at + 2));
    let bytes: Vec<u8> = digits.filter_map(|digits| u8::from_str_radix(digits, 16).ok()).collect();
    Some((String::from_utf8_lossy(&bytes).into(), hexadecimal.into()))
}

/// Gives each name that is not UTF-8 its two keys. Beside a list of names is one of bytes, with
/// null for the others.
fn with_names(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let mut all = serde_json::Map::new();
            for (key, member) in members {
                if let Some((text, bytes)) = split_name(&member) {
                    all.insert(format!("{key}{HEXADECIMAL}"), bytes);
                    all.insert(key, text);
                } else if member.as_array().is_some_and(|items| items.iter().any(|item| split_name(item).is_some())) {
                    let items = member.as_array().into_iter().flatten();
                    let split = items.map(|item| split_name(item).unwrap_or((item.clone(), Value::Null)));
                    let (texts, bytes): (Vec<Value>, Vec<Value>) = split.unzip();
                    all.insert(format!("{key}{HEXADECIMAL}"), bytes.into());
                    all.insert(key, texts.into());
                } else {
                    all.insert(key, with_names(member));
                }
            }
            all.into()
        }
        Value::Array(items) => items.into_iter().map(with_names).collect(),
        value => value,
    }
}

/// Prints a warning, which does not stop the work.
pub fn warning(what: impl Display) {
    tell(Level::Warning, what);
}

/// A time in a unit that suits it.
pub fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 0.1 { format!("{:.1} ms", seconds * 1e3) } else { format!("{seconds:.2} s") }
}

/// How long something has been so, roughly.
pub fn age(time: Duration) -> String {
    match time.as_secs() {
        seconds @ ..120 => format!("{seconds} s"),
        seconds @ ..7_200 => format!("{} min", seconds / 60),
        seconds @ ..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

/// A time that is only estimated.
pub fn about(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds < 100 => count(seconds as usize, "second"),
        seconds if seconds < 100 * 60 => count(seconds as usize / 60, "minute"),
        seconds => count(seconds as usize / 3600, "hour"),
    }
}

/// The rate of `count` bytes in a time, in words.
pub fn rate(count: u64, time: Duration) -> String {
    format!("{:.0} MiB/s", mebibytes_per_second(count, time))
}

/// The same as a number.
pub fn mebibytes_per_second(count: u64, time: Duration) -> f64 {
    count as f64 / f64::from(1 << 20) / time.as_secs_f64().max(1e-9)
}

/// A path for JSON, as a name.
pub fn path(path: &Path) -> Value {
    name(path.as_os_str().as_bytes())
}

/// Problems for JSON.
pub fn problems(problems: &Problems) -> Value {
    let each = problems.listed.iter().map(|problem| {
        json!({
            "kind": problem.kind.word(),
            "path": problem.path.as_deref().map(path),
            "position": problem.position,
            "stripe": problem.place.map(|(stripe, _)| stripe),
            "offset": problem.place.map(|(_, offset)| offset),
            "stripes": problem.stripes,
            "what": problem.what,
        })
    });
    json!({ "listed": each.collect::<Vec<_>>(), "unlisted": problems.unlisted })
}

/// Names each problem on standard error.
pub fn warn_of(problems: &Problems) {
    problems.listed.iter().for_each(warning);
    if problems.unlisted > 0 {
        warning(format_args!("and {} more", count(problems.unlisted as usize, "problem")));
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_that_are_not_utf8_are_there_in_hexadecimal() {
        let document = serde_json::json!({
            "name": super::name(b"plain"), "path": super::name(b"a\xffb"),
            "below": [{ "path": super::name(b"\xfe") }], "all": [super::name(b"x"), super::name(b"\x80")],
        });
        let wanted = serde_json::json!({
            "name": "plain", "path": "a\u{fffd}b", "path_hex": "61ff62",
            "below": [{ "path": "\u{fffd}", "path_hex": "fe" }],
            "all": ["x", "\u{fffd}"], "all_hex": [null, "80"],
        });
        assert_eq!(super::with_names(document), wanted);
    }

    #[test]
    fn a_line_of_a_log_has_time_and_level() {
        use super::{Duration, Level, log_line};
        let now = Duration::from_millis(1_709_208_000_045);
        let line = |level, in_journal| log_line(level, now, in_journal, &"target /d3 fails");
        assert_eq!(line(Level::Warning, false), "2024-02-29T12:00:00.045Z WARN target /d3 fails");
        assert_eq!(line(Level::Error, true), "ERROR target /d3 fails");
    }

    #[test]
    fn what_somebody_must_see_is_red() {
        assert_eq!(super::mark("films: healthy"), "films: healthy");
        assert_eq!(super::mark("  PROBLEM   /d2: gone"), "  \x1b[1;31mPROBLEM\x1b[0m   /d2: gone");
        assert_eq!(super::marked("PROBLEM"), "PROBLEM", "the output of a test is captured or no terminal");
    }

    #[test]
    fn estimates_are_not_more_exact_than_they_can_be() {
        let shown =
            [0, 1, 99, 119, 5999, 6000, 90_000].map(|seconds| super::about(super::Duration::from_secs(seconds)));
        assert_eq!(shown, ["0 seconds", "1 second", "99 seconds", "1 minute", "99 minutes", "1 hour", "25 hours"]);
    }
}
