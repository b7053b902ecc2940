//! `cargo xtask python`: the wheel of `python/`, installed in a Python of its own, and its tests.
//!
//! The library is what cargo built beside the program `weft`: maturin would compile everything
//! below it again, with other features. From maturin come the metadata, so the wheel is the one
//! that it makes.

use crate::NOT_HERE;
use crate::peers::run;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Makes the wheel.
const TOOLS: [&str; 2] = ["maturin==1.16.0", "wheel==0.48.0"];
/// What the tests use, as PyPI has it.
const CLIENTS: [&str; 7] = [
    "pytest==9.2.0",
    "fsspec==2026.9.0",
    "numpy==2.4.6",
    "pandas==3.0.6",
    "pyarrow==26.0.1",
    "zarr==3.1.6",
    "xarray==2026.9.0",
];
/// The oldest Python, as pyproject.toml has it.
const OLDEST: &str = "import sys, venv; assert sys.version_info >= (3, 11), f'Python {sys.version}: 3.11 is needed'";

/// Gets what the tests need, if it is not there; or says why it cannot, as what is not possible
/// here.
pub fn prepare(root: &Path) -> Result<PathBuf, String> {
    let last = |why: String| format!("{NOT_HERE}: {}", why.lines().last().unwrap_or_default());
    run(Command::new("python3").args(["-c", OLDEST])).map_err(last)?;
    python(&root.join("target/python")).map_err(|why| last(format!("packages for Python: {why}")))
}

/// Runs the tests with a release build of `weft` and of the library, which lies beside it.
pub fn check(root: &Path, weft: &Path) -> Result<(), String> {
    let python = prepare(root)?;
    let folder = root.join("target/python");
    let wheel = wheel(root, &folder, &weft.with_file_name("lib_weft.so"))?;
    run(Command::new(&python).args(["-m", "pip", "-q", "install", "--no-deps", "--force-reinstall"]).arg(wheel))?;
    eprintln!("== pytest");
    let mut tests = Command::new(&python);
    tests.args(["-m", "pytest"]).current_dir(root.join("python/tests"));
    tests.env("WEFT", weft).env("PYTHONDONTWRITEBYTECODE", "1").env_remove("WEFT_IDENTITY");
    let status = tests.status().map_err(|why| format!("python: {why}"))?;
    if status.success() { Ok(()) } else { Err("tests of the Python package failed".into()) }
}

/// A Python that has the tools and the clients, in the folder. It is made if it must be.
fn python(folder: &Path) -> Result<PathBuf, String> {
    let own = folder.join("bin/python");
    let wanted = [&TOOLS[..], &CLIENTS[..]].concat();
    let there = "import sys; from importlib.metadata import version as v; \
        sys.exit(any(v(n) != w for n, w in (a.split('==') for a in sys.argv[1:])))";
    let works = || run(Command::new(&own).args(["-c", there]).args(&wanted));
    if works().is_err() {
        run(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
        run(Command::new(&own).args(["-m", "pip", "-q", "install"]).args(&wanted))?;
        works()?;
    }
    Ok(own)
}

/// Makes the wheel of the library, and returns its path.
fn wheel(root: &Path, folder: &Path, library: &Path) -> Result<PathBuf, String> {
    let (place, wheels) = (folder.join("wheel"), folder.join("wheels"));
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |why: std::io::Error| format!("{path}: {why}")
    };
    for folder in [&place, &wheels] {
        let _ = fs::remove_dir_all(folder);
        fs::create_dir_all(folder).map_err(failed(folder))?;
    }
    let mut metadata = Command::new(folder.join("bin/maturin"));
    metadata.args(["pep517", "write-dist-info", "--metadata-directory"]).arg(&place);
    run(metadata.current_dir(root.join("python")))?;
    let package = place.join("weft");
    fs::create_dir_all(&package).map_err(failed(&package))?;
    let own = root.join("python/weft");
    for entry in fs::read_dir(&own).map_err(failed(&own))?.flatten().filter(|entry| entry.path().is_file()) {
        fs::copy(entry.path(), package.join(entry.file_name())).map_err(failed(&entry.path()))?;
    }
    fs::copy(library, package.join("_weft.abi3.so")).map_err(failed(library))?;
    run(Command::new(folder.join("bin/python")).args(["-m", "wheel", "pack", "-d"]).arg(&wheels).arg(&place))?;
    let mut made = fs::read_dir(&wheels).map_err(failed(&wheels))?.flatten();
    made.next().map(|entry| entry.path()).ok_or_else(|| format!("{}: no wheel was made", wheels.display()))
}
