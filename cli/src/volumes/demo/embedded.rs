//! The part of `weft demo` that is about volumes on this machine's disks: create, mount, copy real
//! files in, lose two disks under it, read, replace, verify.

use super::scene::{Load, Scene};
use crate::demo::timing::{speed, timed};
use crate::failure::{Failure, Outcome};
use crate::show;
use serde_json::{Value, json};
use std::path::Path;

/// The disks that are lost: as many as the code survives.
const LOST: [usize; 2] = [1, 4];
const DISKS: usize = 6;

/// Copies files into a volume in `place` and tells what became of them.
pub fn tell(place: &Path, load: Load<'_>, say: &impl Fn(String) -> Outcome) -> Result<Value, Failure> {
    let mut scene = Scene::new(place, "volume-demo", "films")?;
    let disks: Vec<String> = (1..=DISKS).map(|number| format!("disk{number}")).collect();
    let mut create = vec!["volume", "create", "films", "--code", "rs:4+2"];
    create.extend(disks.iter().map(String::as_str));
    say(format!("\n$ weft {}\n{}", create.join(" "), scene.weft(&create)?.trim_end()))?;
    scene.mount(say)?;
    let (bytes, count, way) = (load.bytes(), load.tree_files(), scene.way());
    let (copied, ()) = timed(|| scene.copy_in(load))?;
    say(format!("{} and a tree of {count} files copied in {way}: {}.", show::bytes(bytes), speed(bytes, copied)))?;
    for lost in LOST {
        let removed = std::fs::remove_dir_all(scene.place.join(&disks[lost]));
        removed.map_err(|why| Failure::Other(format!("cannot remove a disk: {why}")))?;
    }
    say(format!("{} and {} are removed, with all that is on them.", disks[LOST[0]], disks[LOST[1]]))?;
    scene.remount()?;
    let (read, same) = timed(|| scene.compare(load))?;
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
    say(format!("$ weft volume verify films\n{}", scene.weft(&["volume", "verify", "films"])?.trim_end()))?;
    let mounted = scene.mounted;
    scene.unmount()?;
    Ok(json!({
        "bytes": bytes, "files": count + load.files.len(), "mounted": mounted, "identical": true,
        "seconds": { "copy": copied.as_secs_f64(), "read": read.as_secs_f64(), "replace": repaired.as_secs_f64() },
    }))
}
