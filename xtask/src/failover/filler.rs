//! Empty files that nobody uses: a server that takes over has them all in its index. They are made
//! before there are servers, in this machine's directories, which is faster.

use super::Machines;
use crate::torture::world::words;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// The files of one directory, and those of one copy.
const OF_A_DIRECTORY: usize = 1000;
const OF_A_COPY: usize = 100_000;

/// Makes a volume on these disks, with so many empty files.
pub fn fill(machines: &Machines, folder: &Path, disks: &[PathBuf], files: usize) -> Result<(), String> {
    let (volume, source) = (folder.join("films"), folder.join("filler"));
    let mut create = words(&["volume", "create", "--code", super::CODE]);
    create.push(volume.clone().into());
    create.extend(disks.iter().map(Into::into));
    machines.command(create)?;
    let failed = |why: std::io::Error| format!("{}: {why}", source.display());
    for first in (0..files).step_by(OF_A_COPY) {
        let wanted = OF_A_COPY.min(files - first);
        if first == 0 || wanted < OF_A_COPY {
            make(&source, wanted).map_err(failed)?;
        }
        let mut to = volume.clone().into_os_string();
        to.push(format!(":/filler{first}"));
        let mut copy = words(&["cp", "-r"]);
        copy.extend([source.clone().into(), to]);
        machines.command(copy)?;
        println!("{} of {files} files", first + wanted);
    }
    fs::remove_dir_all(&source).and_then(|()| fs::remove_dir_all(&volume)).map_err(failed)
}

/// A tree of so many files.
fn make(tree: &Path, files: usize) -> std::io::Result<()> {
    if tree.exists() {
        fs::remove_dir_all(tree)?;
    }
    for number in 0..files {
        let directory = tree.join((number / OF_A_DIRECTORY).to_string());
        if number % OF_A_DIRECTORY == 0 {
            fs::create_dir_all(&directory)?;
        }
        File::create(directory.join(number.to_string()))?;
    }
    Ok(())
}
