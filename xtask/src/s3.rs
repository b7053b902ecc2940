//! `cargo xtask s3`: an S3 client on a gateway, and gateways that are killed while clients write.

use crate::NOT_HERE;
use crate::peers::run;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The client, as PyPI has it. A newer one signs and checks in other ways, which is to be noticed
/// on purpose.
const CLIENT: &str = "boto3==1.44.8";
/// The programs of the crate's tests.
const PROGRAMS: [&str; 2] = ["boto.py", "kill.py"];
/// As little as the benchmark can do, so that it goes on to work.
const TINY: [&str; 9] = ["--rounds", "1", "--large", "1", "--small", "20", "--etag", "md5", "blake3"];

/// Gets the client, if it is not there; or says why it cannot, as what is not possible here.
pub fn prepare(root: &Path) -> Result<PathBuf, String> {
    python(&root.join("target/s3"))
        .map_err(|why| format!("{NOT_HERE}: boto3 for Python: {}", why.lines().last().unwrap_or_default()))
}

/// Runs the client's tests with a release build of `weft`.
pub fn check(root: &Path, weft: &Path) -> Result<(), String> {
    let python = prepare(root)?;
    let tests = PROGRAMS.map(|program| (root.join("s3/tests").join(program), &[][..]));
    for (path, arguments) in tests.into_iter().chain([(root.join("bench/s3.py"), &TINY[..])]) {
        let program = path.strip_prefix(root).unwrap_or(&path).display();
        eprintln!("== {program}");
        let mut command = Command::new(&python);
        command.arg(&path).arg(weft).args(arguments).env("PYTHONDONTWRITEBYTECODE", "1");
        if !command.status().map_err(|why| format!("python: {why}"))?.success() {
            return Err(format!("{program} failed"));
        }
    }
    Ok(())
}

/// A Python that has the client: the system's, or one in the folder, which is made if it must be.
fn python(folder: &Path) -> Result<PathBuf, String> {
    let works = |python: &Path| run(Command::new(python).args(["-c", "import boto3, awscrt"]));
    let own = folder.join("bin/python");
    for python in [Path::new("python3"), &own] {
        if works(python).is_ok() {
            return Ok(python.to_owned());
        }
    }
    run(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
    run(Command::new(&own).args(["-m", "pip", "-q", "install", CLIENT, "awscrt"]))?;
    works(&own).map(|()| own)
}
