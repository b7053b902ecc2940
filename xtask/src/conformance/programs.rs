//! Programs that people run: each in the file system under test, after it has worked in a local
//! one.

use super::{Session, Verdict, logged};
use crate::peers::install;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A script. Its arguments are in the environment: D is an empty directory to work in, L a local
/// one for what it compares with, ROOT the project and FILES a number of files.
struct Program {
    name: &'static str,
    /// Programs and the Debian packages they come from.
    needs: &'static [(&'static str, &'static str)],
    script: &'static str,
}

const PROGRAMS: [Program; 8] = [
    Program { name: "git", needs: &[("git", "git")], script: include_str!("git.sh") },
    Program { name: "cargo", needs: &[("cargo", "cargo")], script: include_str!("cargo.sh") },
    Program { name: "sqlite", needs: &[("python3", "python3")], script: include_str!("sqlite.sh") },
    Program { name: "tar", needs: &[("tar", "tar"), ("python3", "python3")], script: include_str!("tar.sh") },
    Program { name: "rsync", needs: &[("rsync", "rsync"), ("python3", "python3")], script: include_str!("rsync.sh") },
    Program { name: "dd", needs: &[("dd", "coreutils")], script: include_str!("dd.sh") },
    Program { name: "fio", needs: &[("fio", "fio")], script: include_str!("fio.sh") },
    Program { name: "stress-ng", needs: &[("stress-ng", "stress-ng")], script: include_str!("stress-ng.sh") },
];

const PROGRAM_TIMEOUT: Duration = Duration::from_secs(3600);

/// Every program.
pub fn names() -> impl Iterator<Item = &'static str> {
    PROGRAMS.iter().map(|program| program.name)
}

fn named(names: &[&str]) -> impl Iterator<Item = &'static Program> {
    PROGRAMS.iter().filter(|program| names.contains(&program.name))
}

/// Runs the programs with these names.
pub fn run(session: &mut Session, names: &[&str]) {
    for program in named(names) {
        let verdict = try_one(session, program).unwrap_or_else(Verdict::Skipped);
        session.report(program.name, verdict);
    }
}

/// What these programs need and is not on this machine, each with the Debian package that it comes
/// from.
pub fn missing(names: &[&str]) -> Vec<(&'static str, &'static str)> {
    let mut missing: Vec<_> = named(names).flat_map(|program| program.needs).copied().collect();
    missing.sort_unstable();
    missing.dedup();
    missing.retain(|(tool, _)| !is_here(tool));
    missing
}

fn is_here(tool: &str) -> bool {
    let mut which = Command::new("sh");
    which.args(["-c", "command -v \"$0\"", tool]).stdout(Stdio::null()).status().is_ok_and(|status| status.success())
}

fn try_one(session: &Session, program: &Program) -> Result<Verdict, String> {
    for (tool, package) in program.needs {
        if !is_here(tool) {
            install(&[package]).map_err(|why| format!("{tool} is not here: {why}"))?;
        }
    }
    once(session, program, &session.reference, "-reference").map_err(|why| format!("fails locally too: {why}"))?;
    Ok(match once(session, program, &session.directory, "") {
        Ok(()) => Verdict::Ok(String::new()),
        Err(why) => Verdict::Failed(why),
    })
}

fn once(session: &Session, program: &Program, place: &Path, suffix: &str) -> Result<(), String> {
    let log = session.log(&format!("{}{suffix}", program.name));
    let _ = fs::remove_file(&log);
    let work = place.join(program.name);
    let local = session.reference.join(format!("{}-local", program.name));
    for folder in [&work, &local] {
        fs::create_dir(folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    }
    let mut shell = Command::new("sh");
    shell.args(["-eux", "-c", program.script]).current_dir(&local);
    shell.env("D", &work).env("L", &local).env("ROOT", &session.root).env("FILES", session.files.to_string());
    let done = logged(shell, &log, PROGRAM_TIMEOUT);
    for folder in [&work, &local] {
        let removed = fs::remove_dir_all(folder).map_err(|why| format!("removing {}: {why}", folder.display()));
        if done.is_ok() {
            removed?;
        }
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_here_or_missing() {
        assert!(is_here("sh") && !is_here("no-program-has-this-name"));
        assert!(missing(&names().collect::<Vec<_>>()).iter().all(|(tool, _)| !is_here(tool)));
    }
}
