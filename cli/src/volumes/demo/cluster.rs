//! The part of `weft demo` that is about a cluster: every server is a process, and two of them are
//! killed while files are copied in.

use super::scene::{Load, Scene};
use crate::demo::timing::{speed, timed};
use crate::failure::{Failure, Outcome};
use crate::show;
use crate::volumes::processes::{free_port, serve};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// Two more than the code has blocks, so that the chunks of the killed ones can be rebuilt on
/// others.
const STORES: usize = 8;
/// The stores that are killed: as many as the code survives.
const KILLED: [usize; 2] = [1, 4];
/// They are killed this long after the copying began.
const MEANWHILE: Duration = Duration::from_millis(300);

/// Copies files into a cluster of processes in `place`, kills two of them meanwhile, and tells what
/// became of the files.
pub fn tell(place: &Path, load: Load<'_>, say: &impl Fn(String) -> Outcome) -> Result<Value, Failure> {
    let address = format!("weft://127.0.0.1:{}/films", free_port()?);
    let mut scene = Scene::new(place, "cluster-demo", &address)?;
    let (mut stores, mut targets) = (Vec::new(), Vec::new());
    for number in 1..=STORES {
        let (disk, listen) = (format!("disk{number}"), format!("127.0.0.1:{}", free_port()?));
        std::fs::create_dir(scene.place.join(&disk)).map_err(|why| Failure::Other(format!("{disk}: {why}")))?;
        stores.push(serve(&scene.place, &["serve", "store", &disk, "--listen", &listen])?);
        targets.push(format!("store://{listen}/{disk}"));
    }
    say(format!("\n{STORES} storage servers run, each a process: $ weft serve store disk1 --listen ... and so on."))?;
    let mut create = vec!["volume", "create", "films", "--code", "rs:4+2"];
    create.extend(targets.iter().map(String::as_str));
    scene.weft(&create)?;
    let listen = address.trim_start_matches("weft://").trim_end_matches("/films");
    let _meta = serve(&scene.place, &["serve", "meta", "films", "--listen", listen, "--down-out", "2"])?;
    say(format!("$ weft volume create films --code rs:4+2 store://...\n$ weft serve meta films --listen {listen}"))?;
    scene.mount(say)?;
    let (bytes, count, way) = (load.bytes(), load.tree_files(), scene.way());
    let (copied, ()) = timed(|| {
        std::thread::scope(|scope| {
            let copying = scope.spawn(|| scene.copy_in(load));
            std::thread::sleep(MEANWHILE);
            for killed in KILLED {
                stores[killed].kill();
            }
            copying.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })?;
    say(format!(
        "{} and a tree of {count} files copied in {way}: {}. Meanwhile two storage servers were killed (SIGKILL); \
         nobody heard of it.",
        show::bytes(bytes),
        speed(bytes, copied)
    ))?;
    scene.remount()?;
    let (read, same) = timed(|| scene.compare(load))?;
    if !same {
        return Err(Failure::Other("what was read is not what was written; this must never happen".into()));
    }
    say(format!("Everything is read back and equal to the originals, byte for byte: {}.", speed(bytes, read)))?;
    // The server does it by itself after a while; the command does it now.
    let (repaired, said) = timed(|| scene.weft(&["volume", "repair", &address]))?;
    say(format!("$ weft volume repair {address}\n{}", said.trim_end()))?;
    say(format!("$ weft volume verify {address}\n{}", scene.weft(&["volume", "verify", &address])?.trim_end()))?;
    let mounted = scene.mounted;
    scene.unmount()?;
    Ok(json!({
        "bytes": bytes, "files": count + load.files.len(), "mounted": mounted, "identical": true,
        "seconds": { "copy": copied.as_secs_f64(), "read": read.as_secs_f64(), "repair": repaired.as_secs_f64() },
    }))
}
