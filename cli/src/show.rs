//! What is printed, and how: standard output that may be closed, byte counts, warnings, problems.

use crate::failure::{Failure, Outcome};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::fmt::Display;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;
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

/// Prints an error to standard error.
pub fn error(what: impl Display) {
    to_stderr(format_args!("weft: {what}"));
}

fn to_stderr(line: impl Display) {
    let captured = CAPTURED.with_borrow_mut(|captured| {
        let captured = captured.as_mut()?;
        captured.1 += &format!("{line}\n");
        Some(())
    });
    if captured.is_none() {
        // Where nobody reads errors, the exit status still tells.
        let _ = writeln!(std::io::stderr(), "{line}");
    }
}

/// Prints to standard output.
pub fn text(text: impl Display) -> Outcome {
    let captured = CAPTURED.with_borrow_mut(|captured| {
        let captured = captured.as_mut()?;
        captured.0 += &format!("{text}\n");
        Some(())
    });
    if captured.is_some() {
        return Ok(());
    }
    let mut output = std::io::stdout().lock();
    writeln!(output, "{text}").and_then(|()| output.flush()).map_err(|error| match error.kind() {
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

/// Prints a line of JSON of a type, with what else is in it.
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
    to_stderr(format_args!("weft: warning: {what}"));
}

/// So many of something, in words.
pub fn count(of: usize, what: &str) -> String {
    if of == 1 { format!("1 {what}") } else { format!("{of} {what}s") }
}

/// A length in a unit that suits it.
pub fn bytes(count: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = count as f64;
    let mut unit = "B";
    for next in units {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    if unit == "B" { format!("{count} B") } else { format!("{value:.1} {unit}") }
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

/// How fast so many bytes were.
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
    fn estimates_are_not_more_exact_than_they_can_be() {
        let shown =
            [0, 1, 99, 119, 5999, 6000, 90_000].map(|seconds| super::about(super::Duration::from_secs(seconds)));
        assert_eq!(shown, ["0 seconds", "1 second", "99 seconds", "1 minute", "99 minutes", "1 hour", "25 hours"]);
    }

    #[test]
    fn lengths_have_the_unit_that_suits_them() {
        let shown = [0, 1023, 1024, 1 << 20, 5 << 29, u64::MAX].map(super::bytes);
        assert_eq!(shown, ["0 B", "1023 B", "1.0 KiB", "1.0 MiB", "2.5 GiB", "16.0 EiB"]);
    }
}
