//! `weft recover`: files from the chunks and fragments that are left, and nothing else.

use crate::failure::{Failure, Outcome};
use crate::{interrupt, progress, show};
use clap::Args;
use fs::{FoundObject, FoundVolume, Private, Recovered, Survey};
use plan::Position;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use volume::format::{ObjectId, VolumeId};
use volume::object::{DecodeOptions, Destination, decode, find};
use volume::target::{fragment_file_name, make_private};
use volume::{Control, Shown, shown};

/// Recover files from the chunks and fragments that are left of a volume or of encoded files
#[derive(Args)]
#[command(after_help = "Examples:
  weft recover --from /disk[1-6]
  weft recover --from /disk[1-6] --to /rescue
  weft recover --from /mnt/found --volume 5f1c \
      --to /rescue

Chunks may lie anywhere below the directories, under any names: a chunk says by its header what it is, or by its \
extended attributes, or by its name. No volume directory, label or metadata is needed, and nothing is changed but \
the directory of --to. Of the k+m chunks of a set, any k suffice, and damaged blocks count as missing.

Files get the names that they had at their last write; one whose name is unknown is lost+found/inode-N. Files that \
were removed since then may come back, and a file that was cut short may be longer. What is only in the metadata \
does not come back: files of up to 2 KiB, empty files and directories, links, extended attributes, and small data \
that is not in a stripe yet. If any of the metadata is left, weft volume open brings back more.

A file of which something is lost gets a name that ends in .incomplete. The command names all losses that it can \
see and then exits with status 1. A hole in a file looks the same as data in a chunk set of which no chunk was found: \
where the numbers of sets have gaps, a file with a hole counts as incomplete. Of the sets after the last one that was \
found nothing is known. Without --to it says what is there.

The directory of --to and all in it are for this user only (mode 0700): what was private stays so. Files keep their \
own modes.")]
pub struct Arguments {
    /// Where the chunks or fragments are: these directories and all below them
    #[arg(long, required = true, num_args = 1.., value_name = "DIR")]
    from: Vec<PathBuf>,
    /// The directory to write to: a new or an empty one
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    /// The volume, if there are chunks of several: its 32 digits, or the first of them
    #[arg(long, value_name = "ID")]
    volume: Option<String>,
}

pub fn run(arguments: &Arguments, as_json: bool) -> Outcome {
    let control = interrupt::control(arguments.to.is_none());
    if let Some(to) = &arguments.to {
        prepare(to)?;
    }
    let found = fs::survey(&arguments.from, arguments.to.as_deref(), &control)?;
    if found.volumes.is_empty() && found.objects.is_empty() {
        found.problems.iter().for_each(show::warning);
        return Err(Failure::Other("there are no chunks and no fragments".into()));
    }
    if found.has_metadata && !as_json {
        show::warning("there are journals or snapshots, too: weft volume open may bring back more than this");
    }
    let Some(to) = &arguments.to else { return list(&found, as_json) };
    let chosen = choose(&found, arguments.volume.as_deref())?;
    let mut done = Recovered::default();
    if let Some((id, volume)) = chosen {
        done = progress::shown("recovering", &control, || volume.recover(id, to, &found.problems, &control))?;
    } else {
        found.problems.iter().for_each(|problem| done.lost(problem.clone()));
    }
    if !found.objects.is_empty() {
        let private = Private::make(to).map_err(volume::Error::io("make a directory in", to))?;
        for ((name, id), object) in &found.objects {
            recover_object(name, *id, object, (to, private.path()), &control, &mut done)?;
        }
    }
    if as_json {
        show::json(&as_value(&done, chosen.map(|(id, _)| id)))?
    } else {
        print(&done)?
    }
    if done.is_whole() { Ok(()) } else { Err(Failure::Found) }
}

/// Makes the directory to write to. Nobody else may look into it: the modes of the directories that
/// the files were in are not known.
fn prepare(to: &Path) -> Outcome {
    make_private(to).map_err(volume::Error::io("make the directory", to))?;
    let mut entries = std::fs::read_dir(to).map_err(volume::Error::io("list", to))?;
    match entries.next() {
        None => Ok(()),
        Some(_) => Err(Failure::Other(format!("{} is not empty; give an empty directory", Shown(to)))),
    }
}

/// The volume whose id begins with these digits, or the only one.
fn choose<'a>(
    found: &'a Survey,
    wanted: Option<&str>,
) -> std::result::Result<Option<(VolumeId, &'a FoundVolume)>, Failure> {
    let fits = |id: &VolumeId| wanted.is_none_or(|wanted| digits(*id).starts_with(&wanted.to_lowercase()));
    let chosen: Vec<_> = found.volumes.iter().filter(|(id, _)| fits(id)).collect();
    match (&*chosen, wanted) {
        ([], Some(wanted)) => Err(Failure::Usage(format!("there is no chunk of a volume {wanted}"))),
        ([] | [_], _) => Ok(chosen.first().map(|(id, volume)| (**id, *volume))),
        _ => {
            let ids: Vec<String> = chosen.iter().map(|(id, _)| digits(**id)).collect();
            Err(Failure::Usage(format!(
                "there are chunks of several volumes; choose one by --volume: {}",
                ids.join(", ")
            )))
        }
    }
}

fn digits(id: VolumeId) -> String {
    id.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Directories with links to the fragments of an object, under the names that a search for them
/// expects, and to nothing else: other objects may have the same name. They are removed when this
/// is dropped.
struct Links(Vec<PathBuf>);

impl Drop for Links {
    fn drop(&mut self) {
        // There is nobody to report to, and they do no harm.
        self.0.iter().for_each(|directory| _ = std::fs::remove_dir_all(directory));
    }
}

impl Links {
    /// Two fragments of the same position need two directories.
    fn make(name: &[u8], fragments: &[(Position, PathBuf)], private: &Path) -> std::io::Result<Self> {
        let mut links = Self(Vec::new());
        for (position, path) in fragments {
            let file_name = fragment_file_name(name, *position);
            let is_free = |directory: &&PathBuf| directory.join(&file_name).symlink_metadata().is_err();
            let directory = match links.0.iter().find(is_free) {
                Some(directory) => directory.clone(),
                None => {
                    let directory = private.join(format!("links-{}", links.0.len()));
                    std::fs::create_dir(&directory)?;
                    links.0.push(directory.clone());
                    directory
                }
            };
            std::os::unix::fs::symlink(path.canonicalize()?, directory.join(&file_name))?;
        }
        Ok(links)
    }
}

/// The name, or the name with a number, that nothing in the directory has.
fn free(to: &Path, name: &OsStr) -> PathBuf {
    let numbered = |number: u32| {
        let mut path = to.join(name).into_os_string();
        path.push(format!(".{number}"));
        PathBuf::from(path)
    };
    let is_free = |path: &PathBuf| path.symlink_metadata().is_err();
    std::iter::once(to.join(name)).chain((1..).map(numbered)).find(is_free).unwrap_or_default()
}

fn recover_object(
    name: &[u8],
    id: ObjectId,
    found: &FoundObject,
    (to, private): (&Path, &Path),
    control: &Control,
    done: &mut Recovered,
) -> Outcome {
    let (directories, _links) = match Links::make(name, &found.fragments, private) {
        Ok(links) => (links.0.clone(), Some(links)),
        // Not every file system has links. Then only what has the name of a fragment is found.
        Err(_) => (found.directories().into_iter().map(PathBuf::from).collect(), None),
    };
    let object = match find(Some(OsStr::from_bytes(name)), &directories) {
        Ok(object) => object,
        Err(why) => {
            done.lost(format!("{}: {why}", shown(name)));
            return Ok(());
        }
    };
    if object.header.object != id {
        done.lost(format!("{}: another object of this name is in its way, so {id} is not recovered", shown(name)));
        return Ok(());
    }
    let path = free(to, object.name().as_os_str());
    let is_numbered = path != to.join(object.name());
    let bytes = object.header.layout.object_bytes();
    let options = DecodeOptions { destination: Destination::File { path: &path, replace: false }, threads: None };
    let (result, mut problems) = progress::shown("recovering", control, || decode(object, &options, control));
    for path in problems.listed.iter_mut().filter_map(|problem| problem.path.as_mut()) {
        if let Ok(real) = path.read_link() {
            *path = real;
        }
    }
    show::warn_of(&problems);
    match result {
        Ok(_) => {
            (done.files, done.bytes) = (done.files + 1, done.bytes + bytes);
            if is_numbered {
                done.note(format!("{}: something else has this name; object {id} is {}", shown(name), Shown(&path)));
            }
        }
        Err(volume::Error::Interrupted) => return Err(volume::Error::Interrupted.into()),
        Err(why) => done.lost(format!("{}: {why}", shown(name))),
    }
    Ok(())
}

fn list(found: &Survey, as_json: bool) -> Outcome {
    if as_json {
        let volume = |(id, volume): (&VolumeId, &FoundVolume)| {
            json!({
                "id": digits(*id),
                "code": volume.code(),
                "chunk_sets": volume.sets(),
                "chunks": volume.chunks,
                "without_header": volume.headless,
                "described": volume.sealed,
            })
        };
        return show::json(&json!({
            "volumes": found.volumes.iter().map(volume).collect::<Vec<_>>(),
            "objects": found.objects.keys().map(|(name, _)| show::name(name)).collect::<Vec<_>>(),
            "has_metadata": found.has_metadata,
            "problems": found.problems,
        }));
    }
    for (id, volume) in &found.volumes {
        let headless = match volume.headless {
            0 => String::new(),
            some => format!(", {some} without a sound header"),
        };
        show::text(format_args!(
            "volume {}, {}: {} of {}{headless}, {} described when sealed",
            digits(*id),
            volume.code(),
            show::count(volume.chunks, "chunk"),
            show::count(volume.sets(), "chunk set"),
            volume.sealed
        ))?;
    }
    for ((name, _), object) in &found.objects {
        let count = directory_count(object.directories().len());
        show::text(format_args!("{}: fragments in {count}", shown(name)))?;
    }
    found.problems.iter().for_each(show::warning);
    Ok(())
}

fn directory_count(count: usize) -> String {
    if count == 1 { "1 directory".into() } else { format!("{count} directories") }
}

fn as_value(done: &Recovered, volume: Option<VolumeId>) -> Value {
    json!({
        "volume": volume.map(digits),
        "files": done.files,
        "bytes": done.bytes,
        "unnamed": done.unnamed,
        "incomplete": done.incomplete.iter().map(|name| show::name(name)).collect::<Vec<_>>(),
        "problems": done.problems,
        "unlisted_problems": done.unlisted,
        "notes": done.notes,
    })
}

fn print(done: &Recovered) -> Outcome {
    done.notes.iter().try_for_each(show::text)?;
    done.problems.iter().try_for_each(show::text)?;
    if done.unlisted > 0 {
        show::text(format_args!("and {} more", show::count(done.unlisted, "problem")))?;
    }
    show::text(format_args!(
        "{} with {}, {} incomplete; {} without a name are in lost+found{}",
        show::count(done.files, "file"),
        show::bytes(done.bytes),
        done.incomplete.len(),
        done.unnamed,
        if done.is_whole() { "" } else { "; NOT ALL could be recovered" }
    ))
}
