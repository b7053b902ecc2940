//! Finds values that optimised MIR hands to two calls although they own memory.
//!
//! rustc 1.95 and 1.96 can give two equal, constant-made arguments one stack slot
//! (rust-lang/rust#158830): the second call then gets what the first one freed. In optimised MIR
//! that is a local that is assigned once, is an argument of two or more calls, of one as `copy`,
//! and has a type that owns memory. Debug builds do not have the fault, so only a look at what a
//! release build compiles shows it.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Command;

/// Compilers that have the fault, as `rustc -V` begins.
const KNOWN_BAD: [&str; 2] = ["rustc 1.95.", "rustc 1.96."];
/// What a build needs so that this can look at it.
pub const FLAGS: &str = "--emit=mir,link";
/// Types that own memory or a file. An `Arc` travels in a register and is never changed in place,
/// so it is no such type.
const OWNING: [&str; 14] = [
    "Vec",
    "String",
    "BTreeMap",
    "HashMap",
    "BTreeSet",
    "HashSet",
    "Box",
    "VecDeque",
    "PathBuf",
    "OsString",
    "BytesMut",
    "BinaryHeap",
    "File",
    "OwnedFd",
];
/// Types that only refer to memory, or that drop nothing.
const BORROWING: [&str; 11] = [
    "&",
    "*",
    "std::slice",
    "{closure",
    "NonNull",
    "std::ptr",
    "fn(",
    "Option<&",
    "MaybeUninit",
    "std::mem::M",
    "ManuallyDrop",
];

/// Why the compiler in use needs no such look, or nothing if it does.
pub fn not_needed() -> Option<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = match Command::new(rustc).arg("-V").output() {
        Ok(output) => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        Err(why) => return Some(format!("rustc could not be asked for its version: {why}")),
    };
    let is_bad = KNOWN_BAD.iter().any(|known| version.starts_with(known));
    (!is_bad).then(|| format!("{version} is not known to free memory twice"))
}

/// The environment of a build that this can look at, if the compiler in use needs it.
pub fn environment() -> Option<(&'static str, &'static str)> {
    not_needed().is_none().then_some(("RUSTFLAGS", FLAGS))
}

/// Looks through the MIR of a build. Returns a description of each place, and the number of files.
///
/// # Errors
/// When a file cannot be read, or there is none.
pub fn look(folder: &Path) -> Result<(Vec<String>, usize), String> {
    let error = |why: std::io::Error| format!("{}: {why}", folder.display());
    let mut files: Vec<_> = fs::read_dir(folder)
        .map_err(error)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "mir"))
        .collect();
    files.sort();
    if files.is_empty() {
        return Err(format!("no MIR in {}: it is built with RUSTFLAGS={FLAGS}", folder.display()));
    }
    let mut found = Vec::new();
    for path in &files {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let file = File::open(path).map_err(error)?;
        let lines = BufReader::new(file).split(b'\n').map_while(Result::ok);
        let lines = lines.map(|line| String::from_utf8_lossy(&line).into_owned());
        found.extend(places(lines).into_iter().map(|place| format!("{name}: {place}")));
    }
    Ok((found, files.len()))
}

/// A function of the MIR, as far as it was read.
#[derive(Default)]
struct Function {
    signature: String,
    types: HashMap<u32, String>,
    assigned: HashMap<u32, usize>,
    /// The calls that a local is an argument of, by value.
    calls: BTreeMap<u32, Vec<String>>,
}

/// The places in the text of one crate's MIR.
fn places(lines: impl Iterator<Item = String>) -> Vec<String> {
    let mut found = Vec::new();
    let mut function = Function::default();
    for line in lines {
        if ["fn ", "const ", "static ", "promoted"].iter().any(|start| line.starts_with(start)) {
            found.extend(std::mem::take(&mut function).places());
            function.begin(&line);
        } else {
            function.line(line.trim_start());
        }
    }
    found.extend(function.places());
    found
}

impl Function {
    fn begin(&mut self, line: &str) {
        self.signature = line.chars().take(140).collect();
        let arguments = line.split(") -> ").next().unwrap_or_default();
        let starts: Vec<usize> = arguments.match_indices('_').map(|(at, _)| at).collect();
        for (at, end) in starts.iter().zip(starts[1.min(starts.len())..].iter().chain([&arguments.len()])) {
            let Some((number, rest)) = local(&arguments[*at..*end]) else { continue };
            if let Some(kind) = rest.strip_prefix(": ") {
                self.types.insert(number, kind.trim_end_matches([' ', ',']).into());
                *self.assigned.entry(number).or_default() += 1;
            }
        }
    }

    fn line(&mut self, line: &str) {
        if let Some(declared) = line.strip_prefix("let ") {
            let declared = declared.strip_prefix("mut ").unwrap_or(declared);
            if let Some((number, rest)) = local(declared)
                && let Some(kind) = rest.strip_prefix(": ")
            {
                self.types.insert(number, kind.trim_end_matches(';').into());
            }
            return;
        }
        let Some((number, rest)) = local(line) else { return };
        if !rest.starts_with(" = ") {
            return;
        }
        *self.assigned.entry(number).or_default() += 1;
        if !is_call(rest) {
            return;
        }
        let mut arguments = by_value(rest);
        arguments.sort_unstable();
        arguments.dedup();
        for argument in arguments {
            if self.types.get(&argument).is_some_and(|kind| owns(kind)) {
                self.calls.entry(argument).or_default().push(line.into());
            }
        }
    }

    fn places(self) -> Vec<String> {
        let suspicious = |(number, calls): &(u32, Vec<String>)| {
            let assigned = self.assigned.get(number).copied().unwrap_or(0);
            calls.len() > assigned.max(1) && calls.iter().any(|call| is_copied(call, *number))
        };
        let describe = |(number, calls): (u32, Vec<String>)| {
            let calls: String = calls.iter().map(|call| format!("\n        {call:.160}")).collect();
            format!("{}\n    _{number}: {}{calls}", self.signature, self.types[&number])
        };
        self.calls.clone().into_iter().filter(suspicious).map(describe).collect()
    }
}

/// Whether a statement is a call: it ends with where it goes on. A struct that is put together from
/// equal constants has a copy of each; types such as `fn() -> T` are part of it.
fn is_call(statement: &str) -> bool {
    let goes_on = statement.rfind(") -> ").map(|at| &statement[at + ") -> ".len()..]);
    goes_on.is_some_and(|place| ["[", "bb", "unwind"].iter().any(|start| place.starts_with(start)))
}

/// The local that a text begins with, and what comes after it.
fn local(text: &str) -> Option<(u32, &str)> {
    let digits = text.strip_prefix('_')?;
    let length = digits.bytes().take_while(u8::is_ascii_digit).count();
    Some((digits[..length].parse().ok()?, &digits[length..]))
}

/// Locals that a call takes whole, not a part of them.
fn by_value(call: &str) -> Vec<u32> {
    let words = ["copy ", "move "].iter().flat_map(|word| call.match_indices(word));
    let whole = words.filter_map(|(at, word)| local(&call[at + word.len()..]));
    whole.filter(|(_, rest)| rest.is_empty() || rest.starts_with([',', ')'])).map(|(number, _)| number).collect()
}

fn is_copied(call: &str, number: u32) -> bool {
    call.match_indices("copy ")
        .any(|(at, word)| local(&call[at + word.len()..]).is_some_and(|(found, _)| found == number))
}

/// Whether a value of a type owns something that must be freed once.
fn owns(kind: &str) -> bool {
    let kind = kind.trim().trim_start_matches("std::option::");
    if BORROWING.iter().any(|start| kind.starts_with(start)) || kind.contains("Iter<") {
        return false;
    }
    // What stands behind a reference is not owned.
    let mut owned = String::new();
    let mut borrowed = false;
    for character in kind.chars() {
        borrowed = (borrowed || character == '&') && !matches!(character, ',' | ')' | '>');
        owned.extend((!borrowed).then_some(character));
    }
    owned.split(|character: char| !character.is_alphanumeric() && character != '_').any(|word| OWNING.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn faults() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/faults")
    }

    #[test]
    fn a_value_that_two_calls_own_is_found() {
        let (found, files) = look(&faults()).unwrap();
        assert_eq!(files, 1);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("fn main") && found[0].contains("BTreeMap"), "{found:?}");
    }

    /// What is committed is what such a compiler writes.
    #[test]
    fn the_compiler_in_use_has_the_fault_or_is_not_looked_at() {
        if let Some(why) = not_needed() {
            eprintln!("compiling a file with the fault is skipped: {why}");
            return;
        }
        let folder = std::env::temp_dir().join(format!("weft-mir-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let status = Command::new(rustc)
            .args(["-O", "--edition", "2024", "--emit=mir", "-o"])
            .arg(folder.join("double_move.mir"))
            .arg(faults().join("double_move.rs"))
            .status();
        let found = look(&folder);
        fs::remove_dir_all(&folder).unwrap();
        assert!(status.unwrap().success());
        assert_eq!(found.unwrap().0.len(), 1);
    }

    #[test]
    fn what_is_borrowed_or_made_twice_is_no_fault() {
        let text = "fn f(_1: &Vec<u8>, _2: Vec<u8>) -> () {\n    let mut _3: std::string::String;\n    let _4: &[String];\n\
            bb0: {\n        _3 = String::new() -> [return: bb1, unwind continue];\n        _5 = g(copy _1, copy _3) -> [return: bb1];\n\
            \n        _3 = String::new() -> [return: bb1, unwind continue];\n        _6 = g(copy _1, copy _3) -> [return: bb2];\n\
            \n        _7 = h(copy _4, move _2) -> [return: bb3];\n        _8 = h(copy _4, copy (_2.0: usize)) -> bb4;\n}\n";
        assert_eq!(places(text.lines().map(str::to_owned)), Vec::<String>::new());
        let parts = "fn f() -> () {\n    let _1: std::sync::Mutex<Vec<u8>>;\n    bb0: {\n\
            \n        _2 = Ranked::<Vec<u8>, A>(copy _1, const PhantomData::<fn() -> A>);\n\
            \n        _3 = Ranked::<Vec<u8>, B>(copy _1, const PhantomData::<fn() -> B>);\n}\n";
        assert_eq!(places(parts.lines().map(str::to_owned)), Vec::<String>::new());
        let once = text.replacen("        _3 = String::new() -> [return: bb1, unwind continue];\n", "", 1);
        assert_eq!(places(once.lines().map(str::to_owned)).len(), 1);
    }
}
