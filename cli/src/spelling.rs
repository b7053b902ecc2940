//! Command lines in today's spelling. Before there were groups, `weft volume create` was `weft
//! create`: scripts may go on saying so. And options that only some commands have may stand in
//! front of the command.

use crate::config;
use clap::Command;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// Commands that are in a group now.
const MOVED: [(&str, [&str; 2]); 6] = [
    ("create", ["volume", "create"]),
    ("reopen", ["volume", "open"]),
    ("fsck", ["volume", "fsck"]),
    ("encode", ["file", "encode"]),
    ("decode", ["file", "decode"]),
    ("inspect", ["file", "inspect"]),
];
/// Commands that were for volumes and for files: with `--from` they are for files.
const DIVIDED: [&str; 2] = ["verify", "repair"];
/// Options with a value that may stand in front of a command.
const LEADING_OPTIONS: [&str; 2] = [config::FLAG, "--identity"];

/// What a command line means in the tree of commands.
pub fn today(tree: &Command, given: Vec<OsString>) -> Vec<OsString> {
    let mut words = given.into_iter().peekable();
    let (mut all, mut path, mut options): (Vec<_>, Vec<OsString>, Vec<_>) =
        (words.next().into_iter().collect(), vec![], vec![]);
    let mut place = tree;
    while let Some(word) = words.peek() {
        if let Some(inside) = place.find_subcommand(word) {
            place = inside;
            path.extend(words.next());
        } else if is_one_of(&LEADING_OPTIONS, word) {
            options.extend(words.next().into_iter().chain(words.next()));
        } else if has_value(&LEADING_OPTIONS, word) {
            options.extend(words.next());
        } else if word == "--json" || path.is_empty() && word == "help" {
            all.extend(words.next());
        } else {
            break;
        }
    }
    let mut rest: Vec<OsString> = words.collect();
    if path.is_empty()
        && let Some(group) = rest.first().and_then(|word| moved(word, &rest))
    {
        path = group.map(OsString::from).to_vec();
        rest.remove(0);
    } else if path.len() == 1 && path[0] == "cluster" && is_directory(&rest, !options.is_empty()) {
        path.push("dev".into());
    }
    all.into_iter().chain(path).chain(options).chain(rest).collect()
}

/// Where a command is that was at the top.
fn moved(word: &OsStr, line: &[OsString]) -> Option<[&'static str; 2]> {
    if let Some(&name) = DIVIDED.iter().find(|name| word == **name) {
        let mut options = line.iter().take_while(|word| *word != "--");
        let of_file = options.any(|word| word == "--from" || has_value(&["--from"], word));
        return Some([if of_file { "file" } else { "volume" }, name]);
    }
    MOVED.into_iter().find_map(|(name, path)| (word == name).then_some(path))
}

/// Whether `weft cluster` was given a directory, or what it had to do, instead of a command.
fn is_directory(rest: &[OsString], configured: bool) -> bool {
    let configured = configured || std::env::var_os(config::VARIABLE).is_some_and(|file| !file.is_empty());
    rest.first().map_or(configured, |word| !is_one_of(&["help", "-h", "--help"], word))
}

fn is_one_of(names: &[&str], word: &OsStr) -> bool {
    names.iter().any(|name| word == *name)
}

/// Whether a word is one of the options, with its value behind an equals sign.
fn has_value(names: &[&str], word: &OsStr) -> bool {
    names.iter().any(|name| word.as_bytes().strip_prefix(name.as_bytes()).is_some_and(|rest| rest.starts_with(b"=")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meant(line: &str) -> String {
        let given = line.split(' ').map(OsString::from).collect();
        today(&crate::commands(), given).join(OsStr::new(" ")).into_string().unwrap()
    }

    #[test]
    fn each_old_spelling_means_the_new_one() {
        for (old, new) in [
            ("weft create v a b --code rs:1+1", "weft volume create v a b --code rs:1+1"),
            ("weft reopen v a", "weft volume open v a"),
            ("weft fsck --rebuild v", "weft volume fsck --rebuild v"),
            ("weft verify v --new", "weft volume verify v --new"),
            ("weft verify --manifest v:/a b", "weft volume verify --manifest v:/a b"),
            ("weft verify f --from a", "weft file verify f --from a"),
            ("weft verify --from=a", "weft file verify --from=a"),
            ("weft verify -- --from", "weft volume verify -- --from"),
            ("weft repair v", "weft volume repair v"),
            ("weft repair f --to b --from a", "weft file repair f --to b --from a"),
            ("weft encode f --to a", "weft file encode f --to a"),
            ("weft decode f --from a --out b", "weft file decode f --from a --out b"),
            ("weft inspect f", "weft file inspect f"),
            ("weft cluster d --stores 7", "weft cluster dev d --stores 7"),
            ("weft cluster --stores 7 d", "weft cluster dev --stores 7 d"),
            ("weft cluster --config f", "weft cluster dev --config f"),
            ("weft help verify", "weft help volume verify"),
            ("weft create --help", "weft volume create --help"),
        ] {
            assert_eq!(meant(old), new, "{old}");
            assert_eq!(meant(new), new, "{new}");
        }
    }

    #[test]
    fn options_in_front_go_to_their_command() {
        for (given, is) in [
            ("weft --json --identity i create v a", "weft --json volume create --identity i v a"),
            ("weft --identity=i serve --config c store a", "weft serve store --identity=i --config c a"),
            ("weft --config c cluster d", "weft cluster dev --config c d"),
            ("weft cluster --json init d", "weft --json cluster init d"),
            ("weft ls v:/create", "weft ls v:/create"),
            ("weft cluster init d", "weft cluster init d"),
            ("weft cluster --help", "weft cluster --help"),
            ("weft cluster", "weft cluster"),
            ("weft -V", "weft -V"),
            ("weft --identity", "weft --identity"),
            ("weft", "weft"),
            ("weft frobnicate create", "weft frobnicate create"),
        ] {
            assert_eq!(meant(given), is, "{given}");
        }
    }
}
