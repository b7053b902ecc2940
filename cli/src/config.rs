//! Options from a file: an option that neither a flag nor the environment sets is taken from a TOML
//! file. Each of its tables is for one command. Each key is the long name of an option of that
//! command, or the name of an argument in its help. The value becomes the option's default, so
//! values and errors are the same as on the command line.

use crate::failure::Failure;
use clap::{Arg, ArgAction, Command};
use serde_json::{Map, Value};
use std::ffi::OsString;
use std::path::PathBuf;
use volume::Shown;

/// The flag, and the variable, that name the file.
pub const FLAG: &str = "--config";
pub const VARIABLE: &str = "WEFT_CONFIG";

/// The tables of a file, and the commands that they are for.
pub const TABLES: [(&str, &[&str]); 6] = [
    ("store", &["serve", "store"]),
    ("meta", &["serve", "meta"]),
    ("cluster", &["cluster", "dev"]),
    ("mount", &["mount"]),
    ("s3", &["s3"]),
    ("join", &["serve", "join"]),
];

/// The option that is outside of the tables, for all commands that have it.
const COMMON_OPTION: &str = "identity";
/// Options that a file cannot give.
const NOT_IN_FILE: [&str; 7] = ["config", "help", "version", "json", "tell", "held", "quiet"];

/// Gives a command the defaults that a file has, if the arguments or the environment name one.
///
/// # Errors
/// When the file cannot be read, or has a key that is not an option.
pub fn with_file(command: Command, arguments: &[OsString]) -> Result<Command, Failure> {
    let Some(path) = file(arguments, std::env::var_os(VARIABLE)) else { return Ok(command) };
    let unusable = |why: &dyn std::fmt::Display| Failure::Usage(format!("{}: {why}", Shown(&path)));
    let text = std::fs::read_to_string(&path).map_err(|why| unusable(&format!("cannot read it: {why}")))?;
    let document: Map<String, Value> = basic_toml::from_str(&text).map_err(|why| unusable(&why))?;
    apply(command, document).map_err(|why| unusable(&why))
}

/// The file that is named: the last flag counts, and a flag overrides the environment.
fn file(arguments: &[OsString], variable: Option<OsString>) -> Option<PathBuf> {
    let mut found = variable.filter(|value| !value.is_empty()).map(PathBuf::from);
    let mut arguments = arguments.iter().skip(1).take_while(|argument| *argument != "--");
    while let Some(argument) = arguments.next() {
        if argument == FLAG {
            found = arguments.next().map(PathBuf::from).or(found);
        } else if let Some(path) = argument.to_str().and_then(|text| text.strip_prefix(FLAG)?.strip_prefix('=')) {
            found = Some(path.into());
        }
    }
    found
}

/// Makes the values of a file the defaults of a command.
fn apply(mut command: Command, document: Map<String, Value>) -> Result<Command, String> {
    for (key, value) in document {
        if let (Some((table, path)), Value::Object(keys)) = (TABLES.iter().find(|(name, _)| *name == key), &value) {
            for (key, value) in keys {
                command = within(command, path, &mut |command| set(command, key, value, Some(table)))?;
            }
        } else if TABLES.iter().any(|(name, _)| *name == key) {
            return Err(format!("{key} is a table: [{key}], and its keys below"));
        } else if key == COMMON_OPTION {
            command = everywhere(command, &value)?;
        } else {
            command = set(command, &key, &value, None)?;
        }
    }
    Ok(command)
}

/// Sets the option outside of the tables for all commands that have it.
fn everywhere(mut command: Command, value: &Value) -> Result<Command, String> {
    if keys(&command).iter().any(|key| key == COMMON_OPTION) {
        return set(command, COMMON_OPTION, value, None);
    }
    let names: Vec<String> = command.get_subcommands().map(|inside| inside.get_name().to_owned()).collect();
    for name in names {
        command = within(command, &[&name], &mut |inside| everywhere(inside, value))?;
    }
    Ok(command)
}

/// Changes a command below another one.
fn within(
    command: Command,
    path: &[&str],
    change: &mut dyn FnMut(Command) -> Result<Command, String>,
) -> Result<Command, String> {
    let Some((first, rest)) = path.split_first() else { return change(command) };
    let mut result = Ok(());
    let changed = command.mut_subcommand(first, |below| {
        let kept = below.clone();
        within(below, rest, change).unwrap_or_else(|why| {
            result = Err(why);
            kept
        })
    });
    result.map(|()| changed)
}

/// What an option is called in a file.
fn key_of(argument: &Arg) -> String {
    argument.get_long().map_or_else(|| argument.get_id().to_string(), str::to_owned)
}

/// The keys that a command takes.
fn keys(command: &Command) -> Vec<String> {
    let all = command.get_arguments().map(key_of).filter(|key| !NOT_IN_FILE.contains(&key.as_str()));
    all.collect()
}

/// Makes a value the default of an option.
fn set(command: Command, key: &str, value: &Value, table: Option<&str>) -> Result<Command, String> {
    let place = table.map_or_else(|| "outside of the tables".into(), |table| format!("in [{table}]"));
    let known = keys(&command);
    if !known.iter().any(|known| known == key) {
        let mut near = known.clone();
        if table.is_none() {
            near.push(COMMON_OPTION.into());
            near.extend(TABLES.iter().map(|(name, _)| format!("[{name}]")));
        }
        return Err(format!("unknown key {key:?} {place}; {}", nearest(key, near)));
    }
    let Some(argument) = command.get_arguments().find(|argument| key_of(argument) == key) else { return Ok(command) };
    let id = argument.get_id().clone();
    let many = matches!(argument.get_action(), ArgAction::Append)
        || argument.get_num_args().is_some_and(|number| number.max_values() > 1);
    let values = values(value, many).ok_or_else(|| {
        let wanted = if many { "a string, or a list of strings" } else { "a string, a number, true or false" };
        format!("{key} {place} must be {wanted}")
    })?;
    check(argument, &values).map_err(|why| format!("{key} {place}: {why}"))?;
    // The parser keeps what lives as long as the program; a file is read once.
    let values: Vec<&'static str> = values.into_iter().map(|value| &*value.leak()).collect();
    Ok(command.mut_arg(id, |argument| argument.required(false).default_values(values)))
}

/// Refuses values that the option would refuse: the parser treats an invalid default as a defect of
/// the program.
fn check(argument: &Arg, values: &[String]) -> Result<(), String> {
    if matches!(argument.get_action(), ArgAction::SetTrue) {
        let is_known = values.iter().all(|value| matches!(value.as_str(), "true" | "false"));
        return if is_known { Ok(()) } else { Err("must be true or false".into()) };
    }
    let words: Vec<String> = match argument.get_long() {
        Some(long) => values.iter().map(|value| format!("--{long}={value}")).collect(),
        None => ["--".to_owned()].into_iter().chain(values.iter().cloned()).collect(),
    };
    let alone = Command::new("weft").no_binary_name(true).arg(argument.clone().required(false));
    alone.try_get_matches_from(words).map(drop).map_err(|why| {
        let why = why.to_string();
        why.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
    })
}

/// A value in the words of the command line.
fn values(value: &Value, many: bool) -> Option<Vec<String>> {
    match value {
        Value::String(text) => Some(vec![text.clone()]),
        Value::Number(number) => Some(vec![number.to_string()]),
        Value::Bool(whether) => Some(vec![whether.to_string()]),
        Value::Array(all) if many && !all.is_empty() => {
            all.iter().map(|one| values(one, false).and_then(|mut values| values.pop())).collect()
        }
        _ => None,
    }
}

/// Names the keys that may have been meant, or all keys.
fn nearest(key: &str, mut known: Vec<String>) -> String {
    known.sort_by_key(|known| (distance(key, known.trim_matches(['[', ']'])), known.clone()));
    let close = |known: &&String| distance(key, known.trim_matches(['[', ']'])) <= 1 + key.len() / 4;
    let near: Vec<&str> = known.iter().filter(close).map(String::as_str).collect();
    if near.is_empty() {
        known.sort();
        return format!("there are {}", known.join(", "));
    }
    format!("is {} meant?", near.join(" or "))
}

/// How many letters differ: added, left out or replaced.
pub fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(toml: &str, arguments: &[&str]) -> Result<clap::ArgMatches, String> {
        let document = basic_toml::from_str(toml).map_err(|why| why.to_string())?;
        let command = apply(crate::commands(), document)?;
        command.try_get_matches_from(arguments).map_err(|why| why.to_string())
    }

    /// The value of an option of a command below, as it was written.
    fn raw(matches: &clap::ArgMatches, path: &[&str], id: &str) -> Vec<String> {
        let below = path.iter().fold(matches, |matches, name| matches.subcommand_matches(name).unwrap());
        let words = below.get_raw(id).unwrap_or_default();
        words.map(|word| word.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn a_flag_overrides_the_file_which_overrides_the_default() {
        let toml = "[store]\nlisten = \"127.0.0.1:1\"\ntargets = [\"/a\", \"/b\"]\n[meta]\nlease = 9\n";
        let store = parse(toml, &["weft", "serve", "store"]).unwrap();
        assert_eq!(raw(&store, &["serve", "store"], "listen"), ["127.0.0.1:1"]);
        assert_eq!(raw(&store, &["serve", "store"], "targets"), ["/a", "/b"]);
        let flags = parse(toml, &["weft", "serve", "store", "--listen", "127.0.0.1:2", "/c"]).unwrap();
        assert_eq!(raw(&flags, &["serve", "store"], "listen"), ["127.0.0.1:2"]);
        assert_eq!(raw(&flags, &["serve", "store"], "targets"), ["/c"]);
        let meta = parse(toml, &["weft", "serve", "meta", "/v"]).unwrap();
        assert_eq!(raw(&meta, &["serve", "meta"], "lease"), ["9"]);
        assert_eq!(raw(&meta, &["serve", "meta"], "down_out"), ["300"]);
    }

    #[test]
    fn switches_and_options_for_all_commands_are_keys_too() {
        let toml = "identity = \"/etc/weft/laptop\"\n[mount]\nvolume = \"/v\"\nmountpoint = \"/mnt\"\n\
            foreground = true\noptions = [\"ro\", \"nosuid\"]\n";
        let matches = parse(toml, &["weft", "mount"]).unwrap();
        let mount = matches.subcommand_matches("mount").unwrap();
        assert!(mount.get_flag("foreground"));
        assert_eq!(raw(&matches, &["mount"], "options"), ["ro", "nosuid"]);
        assert_eq!(raw(&matches, &["mount"], "identity"), ["/etc/weft/laptop"]);
        assert!(parse("[mount]\nforeground = \"maybe\"", &["weft", "mount", "/v", "/m"]).is_err());
    }

    #[test]
    fn what_is_no_option_is_refused_with_what_may_be_meant() {
        let refused = |toml: &str| parse(toml, &["weft", "serve", "meta", "/v"]).unwrap_err();
        let why = refused("[meta]\nlisen = \"x\"");
        assert!(why.contains("\"lisen\" in [meta]") && why.contains("is listen meant?"), "{why}");
        let why = refused("[meta]\nwhatever_it_is = 1");
        assert!(why.contains("there are ") && why.contains("down-out") && why.contains("repair-limit"), "{why}");
        let why = refused("[met]\nlease = 5");
        assert!(why.contains("\"met\"") && why.contains("is [meta] meant?"), "{why}");
        assert!(refused("meta = 3").contains("is a table"));
        assert!(refused("[meta]\nlease = [1]").contains("lease in [meta] must be"));
        assert!(refused("[meta]\nlease = 1").contains("lease"), "the range is that of the flag");
        assert!(refused("[meta\n").contains("line 1"));
        // Another command's table is looked at, too.
        assert!(refused("[store]\nlease = 5").contains("in [store]"));
    }

    #[test]
    fn every_option_of_what_is_configured_has_a_variable() {
        let command = crate::commands();
        for (_, path) in TABLES {
            let below = path.iter().fold(&command, |command, name| command.find_subcommand(name).unwrap());
            for argument in below.get_arguments().filter(|a| a.get_long().is_some()) {
                let key = key_of(argument);
                let variable = argument.get_env().map(|name| name.to_string_lossy().into_owned());
                if !NOT_IN_FILE.contains(&key.as_str()) {
                    assert!(variable.is_some_and(|name| name.starts_with("WEFT_")), "{path:?} {key}");
                }
            }
        }
    }

    #[test]
    fn the_last_flag_names_the_file() {
        let of = |words: &[&str], variable: Option<&str>| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            file(&words, variable.map(OsString::from)).map(|path| path.to_string_lossy().into_owned())
        };
        assert_eq!(of(&["weft", "mount"], None), None);
        assert_eq!(of(&["weft", "mount"], Some("/e")), Some("/e".into()));
        assert_eq!(of(&["weft", "mount"], Some("")), None);
        assert_eq!(of(&["weft", "--config", "/a", "mount", "--config=/b"], Some("/e")), Some("/b".into()));
        assert_eq!(of(&["weft", "mount", "--", "--config", "/a"], None), None);
    }

    #[test]
    fn letters_that_differ_are_counted() {
        for (a, b, n) in [("", "", 0), ("a", "", 1), ("kitten", "sitting", 3), ("lisen", "listen", 1), ("ab", "ba", 2)]
        {
            assert_eq!(distance(a, b), n, "{a} {b}");
        }
    }
}
