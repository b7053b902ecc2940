//! A volume in a temporary directory, and files that go in and are read back. It runs the same
//! commands as a user would.

use crate::failure::{Failure, Outcome};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::Command;
use volume::Shown;

/// What is copied into a volume.
#[derive(Clone, Copy)]
pub struct Load<'a> {
    pub files: &'a [&'a Path],
    pub tree: &'a Path,
}

impl Load<'_> {
    /// Bytes of the files, without the tree.
    pub fn bytes(&self) -> u64 {
        self.files.iter().filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum()
    }

    /// Files in the tree.
    pub fn tree_files(&self) -> usize {
        count_files(self.tree)
    }
}

/// A volume and where it is mounted. What is still mounted is unmounted when this goes.
pub struct Scene {
    pub place: PathBuf,
    /// The volume, as commands take it.
    pub volume: String,
    pub mounted: bool,
}

impl Drop for Scene {
    fn drop(&mut self) {
        if self.mounted {
            let _ = self.weft(&["unmount", "--lazy", "mountpoint"]);
        }
    }
}

impl Scene {
    /// A place below `place`, where nothing is yet.
    pub fn new(place: &Path, name: &str, volume: &str) -> Result<Self, Failure> {
        let place = place.join(name);
        let made = std::fs::create_dir_all(place.join("mountpoint"));
        made.map_err(|why| Failure::Other(format!("cannot make a directory: {why}")))?;
        Ok(Self { place, volume: volume.into(), mounted: false })
    }

    /// Mounts the volume if that can be.
    pub fn mount(&mut self, say: &impl Fn(String) -> Outcome) -> Outcome {
        match self.weft(&["mount", &self.volume, "mountpoint"]) {
            Ok(said) => {
                self.mounted = true;
                say(format!("$ weft mount {} mountpoint\n{}", self.volume, said.trim_end()))
            }
            Err(why) => say(format!("It cannot be mounted here ({why}); files are copied with weft cp instead.")),
        }
    }

    pub fn unmount(&mut self) -> Outcome {
        if self.mounted {
            self.weft(&["unmount", "mountpoint"])?;
            self.mounted = false;
        }
        Ok(())
    }

    /// Mounts it again, so that nothing comes from memory.
    pub fn remount(&mut self) -> Outcome {
        if self.mounted {
            self.unmount()?;
            self.weft(&["mount", &self.volume, "mountpoint"])?;
            self.mounted = true;
        }
        Ok(())
    }

    /// How files go in and out.
    pub fn way(&self) -> &'static str {
        if self.mounted { "through the mount, with fsync" } else { "with weft cp" }
    }

    /// Runs a command of this program in the place; returns what it printed.
    pub fn weft(&self, arguments: &[&str]) -> Result<String, Failure> {
        let program = std::env::current_exe().map_err(|why| Failure::Other(why.to_string()))?;
        let done = Command::new(program).args(arguments).current_dir(&self.place).output();
        let done = done.map_err(|why| Failure::Other(format!("cannot run weft: {why}")))?;
        if done.status.success() {
            return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
        }
        let said =
            String::from_utf8_lossy(if done.stderr.is_empty() { &done.stdout } else { &done.stderr }).into_owned();
        Err(Failure::Other(said.lines().last().unwrap_or("weft failed").trim_start_matches("weft: ").into()))
    }

    pub fn copy_in(&self, load: Load<'_>) -> Outcome {
        let Load { files, tree } = load;
        if !self.mounted {
            let given: Vec<String> = files.iter().map(|file| file.to_string_lossy().into_owned()).collect();
            let tree = tree.to_string_lossy().into_owned();
            let mut arguments = vec!["cp", "-r"];
            arguments.extend(given.iter().map(String::as_str));
            let root = format!("{}:/", self.volume);
            arguments.extend([&tree[..], &root]);
            return self.weft(&arguments).map(drop);
        }
        let failed = |path: &Path, why: std::io::Error| Failure::Other(format!("cannot copy {}: {why}", Shown(path)));
        let mountpoint = self.place.join("mountpoint");
        for file in files {
            let to = mountpoint.join(file.file_name().unwrap_or_default());
            std::fs::copy(file, &to).map_err(|why| failed(file, why))?;
            std::fs::File::open(&to).and_then(|copy| copy.sync_all()).map_err(|why| failed(file, why))?;
        }
        copy_tree(tree, &mountpoint.join(tree.file_name().unwrap_or_default())).map_err(|why| failed(tree, why))
    }

    /// Whether everything is there and the same.
    pub fn compare(&self, load: Load<'_>) -> Result<bool, Failure> {
        let Load { files, tree } = load;
        let failed = |why: std::io::Error| Failure::Other(format!("cannot read: {why}"));
        let read = if self.mounted {
            self.place.join("mountpoint")
        } else {
            let out = self.place.join("out");
            std::fs::create_dir_all(&out).map_err(failed)?;
            for file in files.iter().copied().chain([tree]) {
                let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
                self.weft(&["cp", "-r", &format!("{}:/{name}", self.volume), &format!("out/{name}")])?;
            }
            out
        };
        for file in files {
            if !same(file, &read.join(file.file_name().unwrap_or_default())).map_err(failed)? {
                return Ok(false);
            }
        }
        same_tree(tree, &read.join(tree.file_name().unwrap_or_default())).map_err(failed)
    }
}

fn entries(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    std::fs::read_dir(directory)?.map(|entry| entry.map(|entry| entry.path())).collect()
}

fn copy_tree(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir(to)?;
    for path in entries(from)? {
        let to = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            copy_tree(&path, &to)?;
        } else {
            std::fs::copy(&path, &to)?;
        }
    }
    std::fs::File::open(to)?.sync_all()
}

fn same_tree(a: &Path, b: &Path) -> std::io::Result<bool> {
    let there = entries(a)?;
    if there.len() != entries(b)?.len() {
        return Ok(false);
    }
    for path in there {
        let other = b.join(path.file_name().unwrap_or_default());
        let same = if path.is_dir() { same_tree(&path, &other)? } else { same(&path, &other)? };
        if !same {
            return Ok(false);
        }
    }
    Ok(true)
}

fn count_files(tree: &Path) -> usize {
    let inside = entries(tree).unwrap_or_default();
    inside.iter().map(|path| if path.is_dir() { count_files(path) } else { 1 }).sum()
}

/// Whether two files have the same bytes.
pub fn same(a: &Path, b: &Path) -> std::io::Result<bool> {
    let (mut a, mut b) = (BufReader::new(File::open(a)?), BufReader::new(File::open(b)?));
    let (mut left, mut right) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        let count = a.read(&mut left)?;
        if count == 0 {
            return Ok(b.read(&mut right)? == 0);
        }
        if b.read_exact(&mut right[..count]).is_err() || left[..count] != right[..count] {
            return Ok(false);
        }
    }
}
