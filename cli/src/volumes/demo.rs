//! The part of `weft demo` that is about volumes: create, mount, copy real files in, lose two disks under it, read, replace, verify. It runs the
//! same commands as a user would.

use crate::demo::{speed, timed};
use crate::failure::{Failure, Outcome};
use crate::show;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use volume::Shown;

/// The disks that are lost: as many as the code survives.
const LOST: [usize; 2] = [1, 4];
const DISKS: usize = 6;

/// A volume in a temporary directory. What is still mounted is unmounted when this goes.
struct Scene<'a> {
    place: &'a Path,
    mounted: bool,
}

impl Drop for Scene<'_> {
    fn drop(&mut self) {
        if self.mounted {
            let _ = self.weft(&["unmount", "--lazy", "mountpoint"]);
        }
    }
}

/// Copies `files` and the tree `tree` into a volume in `place` and tells what became of them.
pub fn tell(place: &Path, files: &[&Path], tree: &Path, say: &impl Fn(String) -> Outcome) -> Result<Value, Failure> {
    let io = |what: &str, why: std::io::Error| Failure::Other(format!("cannot {what}: {why}"));
    let place = place.join("volume-demo");
    std::fs::create_dir_all(place.join("mountpoint")).map_err(|why| io("make a directory", why))?;
    let mut scene = Scene { place: &place, mounted: false };
    let disks: Vec<String> = (1..=DISKS).map(|number| format!("disk{number}")).collect();
    let mut create = vec!["create", "films", "--code", "rs:4+2"];
    create.extend(disks.iter().map(String::as_str));
    say(format!("\n$ weft {}\n{}", create.join(" "), scene.weft(&create)?.trim_end()))?;
    match scene.weft(&["mount", "films", "mountpoint"]) {
        Ok(said) => {
            scene.mounted = true;
            say(format!("$ weft mount films mountpoint\n{}", said.trim_end()))?;
        }
        Err(why) => say(format!("It cannot be mounted here ({why}); files are copied with weft cp instead."))?,
    }
    let bytes: u64 = files.iter().filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum();
    let (copied, ()) = timed(|| scene.copy_in(files, tree))?;
    let count = count_files(tree);
    let how = if scene.mounted { "through the mount, with fsync" } else { "with weft cp" };
    say(format!("{} and a tree of {count} files copied in {how}: {}.", show::bytes(bytes), speed(bytes, copied)))?;
    for lost in LOST {
        std::fs::remove_dir_all(place.join(&disks[lost])).map_err(|why| io("remove a disk", why))?;
    }
    say(format!("{} and {} are removed, with all that is on them.", disks[LOST[0]], disks[LOST[1]]))?;
    // Mounted anew, so that nothing comes from memory.
    if scene.mounted {
        scene.weft(&["unmount", "mountpoint"])?;
        scene.mounted = false;
        scene.weft(&["mount", "films", "mountpoint"])?;
        scene.mounted = true;
    }
    let (read, same) = timed(|| scene.compare(files, tree))?;
    if !same {
        return Err(Failure::Other("what was read is not what was written; this must never happen".into()));
    }
    say(format!("Everything is read back and equal to the originals, byte for byte: {}.", speed(bytes, read)))?;
    let (repaired, ()) = timed(|| {
        for lost in LOST {
            let said = scene.weft(&["target", "replace", "films", &disks[lost], &format!("new-{}", disks[lost])])?;
            say(format!("$ weft target replace films {0} new-{0}\n{1}", disks[lost], said.trim_end()))?;
        }
        Ok(())
    })?;
    say(format!("$ weft verify films\n{}", scene.weft(&["verify", "films"])?.trim_end()))?;
    if scene.mounted {
        scene.weft(&["unmount", "mountpoint"])?;
        scene.mounted = false;
    }
    let seconds = |time: Duration| time.as_secs_f64();
    Ok(json!({
        "bytes": bytes, "files": count + files.len(), "mounted": how.contains("mount"), "identical": true,
        "seconds": { "copy": seconds(copied), "read": seconds(read), "replace": seconds(repaired) },
    }))
}

impl Scene<'_> {
    /// Runs a command of this program in the place; returns what it printed.
    fn weft(&self, arguments: &[&str]) -> Result<String, Failure> {
        let program = std::env::current_exe().map_err(|why| Failure::Other(why.to_string()))?;
        let done = Command::new(program).args(arguments).current_dir(self.place).output();
        let done = done.map_err(|why| Failure::Other(format!("cannot run weft: {why}")))?;
        if done.status.success() {
            return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        Err(Failure::Other(said.lines().last().unwrap_or("weft failed").trim_start_matches("weft: ").into()))
    }

    fn copy_in(&self, files: &[&Path], tree: &Path) -> Outcome {
        if !self.mounted {
            let given: Vec<String> = files.iter().map(|file| file.to_string_lossy().into_owned()).collect();
            let tree = tree.to_string_lossy().into_owned();
            let mut arguments = vec!["cp", "-r"];
            arguments.extend(given.iter().map(String::as_str));
            arguments.extend([&tree[..], "films:/"]);
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
    fn compare(&self, files: &[&Path], tree: &Path) -> Result<bool, Failure> {
        let failed = |why: std::io::Error| Failure::Other(format!("cannot read: {why}"));
        let read = if self.mounted {
            self.place.join("mountpoint")
        } else {
            let out = self.place.join("out");
            std::fs::create_dir_all(&out).map_err(failed)?;
            for file in files.iter().copied().chain([tree]) {
                let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
                self.weft(&["cp", "-r", &format!("films:/{name}"), &format!("out/{name}")])?;
            }
            out
        };
        for file in files {
            if !crate::demo::same(file, &read.join(file.file_name().unwrap_or_default())).map_err(failed)? {
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
        let same = if path.is_dir() { same_tree(&path, &other)? } else { crate::demo::same(&path, &other)? };
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
