//! What the help of all commands has in common.

use crate::{commands, spelling};
use clap::Command;
use std::ffi::OsString;
use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// All commands that do something, by their words.
fn all() -> Vec<(Vec<String>, Command)> {
    fn walk(command: &Command, path: &[String], all: &mut Vec<(Vec<String>, Command)>) {
        if !command.is_subcommand_required_set() {
            all.push((path.to_vec(), command.clone()));
        }
        for inside in command.get_subcommands() {
            walk(inside, &[path, &[inside.get_name().to_owned()]].concat(), all);
        }
    }
    let mut found = Vec::new();
    walk(&commands(), &[], &mut found);
    found
}

/// The help for these words, in a terminal of that width.
fn help(words: &[String], width: usize) -> String {
    let given: Vec<String> =
        ["weft".into()].into_iter().chain(words.iter().cloned()).chain(["--help".into()]).collect();
    commands().term_width(width).try_get_matches_from(given).unwrap_err().to_string()
}

#[test]
fn every_command_has_an_example_of_itself() {
    let all = all();
    assert!(all.len() > 35, "{}", all.len());
    let has_example = |words: &[String]| {
        let help = help(words, 80);
        let line = format!("weft {}", words.join(" "));
        help.split("\nExamples:\n").nth(1).is_some_and(|examples| examples.contains(line.trim_end()))
    };
    let without: Vec<_> = all.into_iter().map(|(words, _)| words).filter(|words| !has_example(words)).collect();
    assert!(without.is_empty(), "{without:?}");
}

#[test]
fn help_is_as_wide_as_the_terminal() {
    let mut wide: Vec<String> = Vec::new();
    for width in [60, 80, 120] {
        let groups = commands().get_subcommands().map(|group| vec![group.get_name().to_owned()]).collect::<Vec<_>>();
        for words in all().into_iter().map(|(words, _)| words).chain(groups) {
            let help = help(&words, width);
            let lines = help.lines().filter(|line| line.chars().count() > width);
            wide.extend(lines.map(|line| format!("{words:?} at {width}: {line}")));
        }
    }
    assert!(wide.is_empty(), "{}", wide.join("\n"));
}

#[test]
fn no_paragraph_of_help_is_broken_by_hand() {
    let mut broken: Vec<String> = Vec::new();
    for (words, command) in all() {
        let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let mut parts = after.split("\n\n").filter(|part| !part.starts_with("  "));
        let examples = parts.next().unwrap_or_default();
        let long = |line: &&str| !line.starts_with("  ") || line.len() > 60;
        broken.extend(examples.lines().skip(1).filter(long).map(|line| format!("{words:?}: {line}")));
        let by_hand = parts.filter(|paragraph| paragraph.contains('\n') || paragraph.contains("  "));
        broken.extend(by_hand.map(|paragraph| format!("{words:?}: {paragraph}")));
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn each_option_says_what_it_is_for() {
    let mut silent: Vec<String> = Vec::new();
    for (words, command) in all() {
        for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
            let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
            if help.is_empty() || help.ends_with('.') {
                silent.push(format!("{words:?} {}: {help:?}", argument.get_id()));
            }
        }
    }
    assert!(silent.is_empty(), "{}", silent.join("\n"));
}

#[test]
fn a_command_with_an_error_is_known_again() {
    let tip = |line: &str| {
        let given = line.split(' ').map(OsString::from).collect();
        let given = spelling::today(&commands(), given);
        crate::parse(commands(), given).map(drop).map_err(|why| crate::suggest(why).to_string()).unwrap_err()
    };
    for (line, meant) in [
        ("weft creat v", "'volume create'"),
        ("weft drain v", "'target drain'"),
        ("weft moutn v", "'mount'"),
        ("weft volume fsk v", "'fsck'"),
        ("weft encdoe f", "'file encode'"),
        ("weft status v --at-rsik", "'--at-risk'"),
        ("weft archive --shedule demand a v:/", "'--schedule'"),
    ] {
        assert!(tip(line).contains(meant), "{line}: {}", tip(line));
    }
    assert!(!tip("weft zzyzx").contains("similar"));
}

/// The pages about the program: README.md and those in docs.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let listed = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<PathBuf> = listed.filter(|path| path.extension().is_some_and(|kind| kind == "md")).collect();
    pages.push(root.join("README.md"));
    pages.push(root.join("docs/monitoring/README.md"));
    pages
}

/// The commands in a page's shell blocks, whole, without redirections and the like.
fn commands_in(page: &str) -> Vec<String> {
    let (mut found, mut inside, mut line) = (Vec::new(), false, String::new());
    for part in page.lines().map(str::trim) {
        if part.starts_with("```") {
            inside = part == "```sh" || part == "```console";
            continue;
        }
        if let Some(goes_on) = part.strip_suffix('\\') {
            line += goes_on;
            continue;
        }
        line += part;
        let whole = std::mem::take(&mut line);
        let whole = whole.trim_start_matches("$ ");
        for command in whole.split(" && ").flat_map(|part| part.split("; ")) {
            let command = command.trim_start_matches("do ").trim_start_matches("sudo ");
            let ends = [" #", " &", " |", " >", " 2>"].iter().filter_map(|end| command.find(end)).min();
            let command = command[..ends.unwrap_or(command.len())].trim_end();
            if inside && command.starts_with("weft ") {
                found.push(command.to_owned());
            }
        }
    }
    found
}

#[test]
fn the_commands_of_the_pages_are_understood() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for page in pages() {
        for command in commands_in(&read_to_string(&page).unwrap()) {
            count += 1;
            let plain = command.replace(['\'', '"'], "").replace("$n", "1");
            let words = plain.split_whitespace().map(OsString::from);
            let understood = crate::parse(commands(), spelling::today(&commands(), words.collect()));
            if let Err(why) = understood {
                wrong.push(format!("{}: {command}: {}", page.display(), why.to_string().lines().next().unwrap()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 60, "{count}");
}
