//! What `weft-mpi` needs of the system: an MPI library, its launcher, and libclang.

use crate::peers::{install, run};
use std::path::Path;
use std::process::Command;

const PACKAGES: [&str; 3] = ["libopenmpi-dev", "openmpi-bin", "libclang-dev"];

/// Whether `weft-mpi` can be built and run here, after an attempt to install what it needs; or why
/// not, in a line.
pub fn ready() -> Result<(), String> {
    missing().or_else(|why| install(&PACKAGES).map_err(|also| format!("{why}; {also}")).and_then(|()| missing()))
}

fn missing() -> Result<(), String> {
    run(Command::new("mpicc").arg("--version"))?;
    run(Command::new("mpirun").arg("--version"))?;
    if std::env::var_os("LIBCLANG_PATH").is_some() || has_libclang() {
        return Ok(());
    }
    Err("libclang is not installed; LIBCLANG_PATH says where it is, if it is".into())
}

/// Looks where distributions have it.
fn has_libclang() -> bool {
    let entries = |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let libraries = ["/usr/lib", "/usr/lib64", "/usr/local/lib"].into_iter().map(Path::new);
    let is_one = |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libclang"));
    libraries.into_iter().flat_map(entries).any(|path| {
        // Debian has them in a directory per version of LLVM or per kind of machine.
        is_one(&path)
            || path.is_dir() && entries(&path).any(|below| is_one(&below))
            || path.join("lib").is_dir() && entries(&path.join("lib")).any(|below| is_one(&below))
    })
}
