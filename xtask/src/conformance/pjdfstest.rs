//! pjdfstest: every test that passes in the local file system passes in the one under test.

use super::{Session, Verdict, accepted, logged};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const VERSION: &str = "0.2.2";
/// Longer than any file system needs; the suite takes seconds locally.
const SUITE_TIMEOUT: Duration = Duration::from_secs(1800);

/// What the suite says of each test.
type Results = BTreeMap<String, String>;

/// Runs the suite twice and compares.
pub fn run(session: &mut Session) {
    let verdict = compare(session).unwrap_or_else(Verdict::Skipped);
    session.report("pjdfstest", verdict);
}

fn compare(session: &Session) -> Result<Verdict, String> {
    let program = session.installed("pjdfstest", VERSION)?;
    let accepted = accepted::read(&session.root)?;
    let config = session.logs.join("pjdfstest.toml");
    fs::write(&config, configuration(session)?).map_err(|why| format!("{}: {why}", config.display()))?;
    let local = suite(session, &program, &config, "pjdfstest-reference", &session.reference, &[]);
    let mut tested = suite(session, &program, &config, "pjdfstest", &session.directory, &[]);
    // The suite ends at the first surprise outside a test; what it did not reach is run on its own.
    for name in local.keys() {
        if !tested.contains_key(name) {
            let alone = suite(session, &program, &config, "pjdfstest-alone", &session.directory, &["--exact", name]);
            tested.extend(alone.into_iter().filter(|(other, _)| other == name));
        }
    }
    let passing: Vec<&String> = local.iter().filter(|(_, result)| *result == "ok").map(|(name, _)| name).collect();
    if passing.is_empty() {
        return Err(format!("nothing passes locally, {}", session.log("pjdfstest-reference").display()));
    }
    let result = |name: &str| tested.get(name).map_or("not run", String::as_str);
    let lost: Vec<String> = passing
        .iter()
        .filter(|name| result(name) != "ok" && !accepted.contains(name))
        .map(|name| format!("{name} ({})", result(name)))
        .collect();
    let count = |results: &Results, word: &str| results.values().filter(|result| *result == word).count();
    let failed_locally = count(&local, "FAILED");
    let skipped_locally = count(&local, "skipped");
    let summary = format!(
        "{} of the {} tests that pass locally, where {failed_locally} fail and {skipped_locally} are skipped",
        passing.iter().filter(|name| result(name) == "ok").count(),
        passing.len()
    );
    for (name, _) in local.iter().filter(|(_, result)| *result == "FAILED") {
        println!("        fails locally too: {name}");
    }
    for name in accepted.iter().filter(|name| result(name) == "ok") {
        println!("        accepted difference, but it passes: {name}");
    }
    if lost.is_empty() {
        return Ok(Verdict::Ok(summary));
    }
    lost.iter().for_each(|name| println!("        {name}"));
    Ok(Verdict::Failed(format!("{summary}; {}", session.log("pjdfstest").display())))
}

/// Runs the suite in one directory. Its exit status says only what its output says better.
fn suite(session: &Session, program: &Path, config: &Path, log: &str, place: &Path, filter: &[&str]) -> Results {
    let log = session.log(log);
    let _ = fs::remove_file(&log);
    let mut command = Command::new(program);
    command.arg("-c").arg(config).arg("-p").arg(place).args(filter).env("NO_COLOR", "1");
    let _ = logged(command, &log, SUITE_TIMEOUT);
    parse(&String::from_utf8_lossy(&fs::read(&log).unwrap_or_default()))
}

fn parse(output: &str) -> Results {
    let results = output.lines().filter_map(|line| {
        let (name, result) = line.trim().split_once(char::is_whitespace)?;
        let result = result.trim();
        let is_result = ["ok", "FAILED", "skipped"].contains(&result) && name.contains("::");
        is_result.then(|| (name.to_owned(), result.to_owned()))
    });
    results.collect()
}

/// Two users without rights, and another file system if there is one. Tests that remount one
/// read-only are left out.
fn configuration(session: &Session) -> Result<String, String> {
    let users = fs::read_to_string("/etc/passwd").map_err(|why| format!("/etc/passwd: {why}"))?;
    let groups = fs::read_to_string("/etc/group").map_err(|why| format!("/etc/group: {why}"))?;
    let entries: Vec<String> =
        ["nobody", "tests", "daemon", "bin"].iter().filter_map(|u| entry(u, &users, &groups)).collect();
    let [first, second, ..] = &entries[..] else { return Err("two users of nobody, tests, daemon and bin".into()) };
    let device = |path: &Path| fs::metadata(path).map(|data| data.dev()).ok();
    let other = Path::new("/dev/shm");
    let elsewhere = [&session.directory, &session.reference].iter().all(|place| device(place) != device(other));
    let secondary = if other.is_dir() && elsewhere { "secondary_fs = \"/dev/shm\"\n" } else { "" };
    Ok(format!(
        "[features]\n{secondary}posix_fallocate = {{}}\nrename_ctime = {{}}\nstat_st_birthtime = {{}}\nutime_now = {{}}\n\
         utimensat = {{}}\n[settings]\nnaptime = 0.02\nallow_remount = false\n\
         [dummy_auth]\nentries = [{first}, {second}]\n"
    ))
}

/// A user and the name of its own group.
fn entry(user: &str, users: &str, groups: &str) -> Option<String> {
    let line = users.lines().find(|line| line.split(':').next() == Some(user))?;
    let id = line.split(':').nth(3)?;
    let group = groups.lines().find(|line| line.split(':').nth(2) == Some(id))?.split(':').next()?;
    Some(format!("[\"{user}\", \"{group}\"]"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn results_are_told_from_messages() {
        let results = super::parse("a::b   ok\n\tassertion failed\nc::d  FAILED\nSummary: 1 ok\ne::f  skipped\n");
        let results: Vec<_> = results.iter().map(|(name, result)| format!("{name} {result}")).collect();
        assert_eq!(results, ["a::b ok", "c::d FAILED", "e::f skipped"]);
    }
}
