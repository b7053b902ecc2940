//! Rebuilds missing and damaged fragments, whole, beside the old ones. It puts them in their place
//! once they are proved: each block against a survivor that was not used to make it, each new file
//! against its own checksums.

use super::encode::finish;
use super::find::Object;
use super::fragment::{Fragment, read_header, write_record};
use super::parallel::{for_each, run, thread_count};
use super::problems::Problems;
use super::recover::StripeReader;
use super::rows::zeroed;
use super::verify::{scan, worst};
use crate::format::{HEADER_BYTES, Header, RecordHeader};
use crate::target::{Directory, Lock, ReadAt, Temporary, fragment_file_name, open_regular, rename_new};
use crate::{Control, Error, Result, Shown};
use gf::checksum::crc64;
use plan::Position;
use rustix::fs::{CWD, FlockOperation, flock};
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// What a repair did.
#[derive(Debug)]
pub struct Repaired {
    /// The object's header.
    pub header: Header,
    /// The fragments that were made, by position; empty when nothing was wrong with any.
    pub made: Vec<(Position, PathBuf)>,
    /// Blocks that were checked against a survivor which was not used to make them.
    pub witnessed_blocks: u64,
    /// Blocks for which no such survivor was left.
    pub unwitnessed_blocks: u64,
    /// Damaged files that were not replaced because their new fragments lie elsewhere.
    pub left: Vec<PathBuf>,
    /// How many more fragments can be lost now.
    pub survives: Option<usize>,
    /// What was wrong before.
    pub problems: Problems,
}

/// Repairs the object. New fragments go to the directory `to`, else where the damaged ones lie,
/// else where `encode` would have put them among the searched directories.
///
/// # Errors
/// `TooDegraded` when too little is left, and what the system says; then nothing was changed. The
/// second part of the answer is what was wrong with the fragments, if the first does not have it.
pub fn repair(
    object: Object,
    to: Option<&Path>,
    threads: Option<usize>,
    control: &Control,
) -> std::result::Result<Repaired, (Error, Problems)> {
    match repair_in_place(&object, to, threads, control) {
        Ok(done) => Ok(Repaired { header: object.header, problems: object.problems.into_list(), ..done }),
        Err(error) => Err((error, object.problems.into_list())),
    }
}

fn repair_in_place(object: &Object, to: Option<&Path>, threads: Option<usize>, control: &Control) -> Result<Repaired> {
    let scan = scan(object, threads, false, control)?;
    let bad = scan.bad_positions();
    let sound = |position: Position| {
        object.fragments[position.index()].first().is_some_and(|f| f.sound) && !bad.contains(&position)
    };
    let wanted: Vec<Position> = Position::all(object.fragments.len()).filter(|&position| !sound(position)).collect();
    let mut done = Repaired {
        header: object.header.clone(),
        made: Vec::new(),
        witnessed_blocks: 0,
        unwitnessed_blocks: 0,
        left: Vec::new(),
        survives: worst(object, &scan, control)?,
        problems: Problems::default(),
    };
    if wanted.is_empty() {
        return Ok(done);
    }
    let made = create(object, &wanted, &bad, to)?;
    let (witnessed, unwitnessed) = rebuild(object, &made, threads, control)?;
    for_each(&made, |fragment| prove(object, fragment, control))?;
    control.check()?;
    // From here on, encoders and other repairs wait. What they did before shows in what lies at the
    // destinations.
    let _lock = Lock::take(made.iter().map(|fragment| &fragment.directory), control)?;
    refuse_if_replaced(object)?;
    let displaced =
        made.iter().map(|fragment| may_replace(object, fragment.position, fragment.temporary.destination()));
    let displaced = displaced.collect::<Result<Vec<_>>>()?;
    // What lies here by mistake gets its own name back.
    for (fragment, own) in made.iter().zip(&displaced) {
        if let Some(own) = own {
            let renamed = rename_new(CWD, fragment.temporary.destination(), own);
            renamed.map_err(Error::io("rename a file to", own))?;
        }
    }
    for fragment in &made {
        fragment.temporary.commit(true)?;
    }
    for fragment in &made {
        for old in &object.fragments[fragment.position.index()] {
            let kept = old.path != fragment.temporary.destination();
            // Another repair may be at work on it.
            let abandoned = || flock(&old.file, FlockOperation::NonBlockingLockExclusive).is_ok();
            if kept && !old.committed && abandoned() {
                let _ = std::fs::remove_file(&old.path);
            } else if kept && old.committed {
                done.left.push(old.path.clone());
            }
        }
    }
    done.made = made.iter().map(|f| (f.position, f.temporary.destination().to_path_buf())).collect();
    (done.witnessed_blocks, done.unwitnessed_blocks) = (witnessed, unwitnessed);
    // Each header of an object without data is all of it.
    let layout = &object.header.layout;
    done.survives = Some(if layout.stripes() == 0 { layout.blocks() - 1 } else { object.code.tolerates() });
    Ok(done)
}

/// A fragment that is being made.
struct Made {
    position: Position,
    directory: Directory,
    temporary: Temporary,
}

fn create(object: &Object, wanted: &[Position], bad: &BTreeSet<Position>, to: Option<&Path>) -> Result<Vec<Made>> {
    let make = |&position: &Position| {
        let file_name = fragment_file_name(&object.header.name, position);
        let directory = to.map_or_else(|| Ok(usual_place(object, position).clone()), Directory::open)?;
        let destination = directory.path().join(&file_name);
        refuse_to_replace_others(object, position, bad, &destination)?;
        may_replace(object, position, &destination)?;
        Ok(Made { position, temporary: directory.create(&file_name, object.header.mode)?, directory })
    };
    wanted.iter().map(make).collect()
}

/// Where the damaged fragment lies, or where `encode` would have put it, or, where that directory
/// is gone, the one with the fewest fragments of the object.
fn usual_place(object: &Object, position: Position) -> &Directory {
    let directories = &object.directories;
    let old = object.fragments[position.index()].first().and_then(|old| directories[old.directory].as_ref());
    let crowd = |number: usize| object.fragments.iter().flatten().filter(|f| f.directory == number).count();
    let open = (0..directories.len()).filter(|&number| directories[number].is_some());
    let place = old.or_else(|| directories[position.index() % directories.len()].as_ref());
    let place = place.or_else(|| open.min_by_key(|&number| crowd(number)).and_then(|n| directories[n].as_ref()));
    place.expect("an object was found in some directory")
}

/// A file that has the name of the new fragment may go if it is damaged, foreign or a copy, not if
/// it is of use.
fn refuse_to_replace_others(
    object: &Object,
    position: Position,
    bad: &BTreeSet<Position>,
    destination: &Path,
) -> Result<()> {
    let used = object.fragments.iter().flatten().find(|other| other.path == destination && other.position != position);
    let Some(other) = used else { return Ok(()) };
    let proper = fragment_file_name(&object.header.name, other.position);
    let copied = |f: &Fragment| f.path != destination && f.sound && f.path.file_name() == Some(&proper);
    if !bad.contains(&other.position) && object.fragments[other.position.index()].iter().any(copied) {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "{} has the name of position {position} but is position {}; give it the name {} first",
        Shown(destination),
        other.position,
        Shown(Path::new(&proper))
    )))
}

/// A sound fragment that is another file now shows that the object was replaced meanwhile.
fn refuse_if_replaced(object: &Object) -> Result<()> {
    for fragment in object.fragments.iter().flatten().filter(|fragment| fragment.sound && fragment.committed) {
        let identity = |found: std::fs::Metadata| (found.dev(), found.ino());
        if let (Ok(now), Ok(then)) = (std::fs::metadata(&fragment.path), fragment.file.metadata())
            && identity(now) != identity(then)
        {
            let what = "was replaced while its object was repaired; nothing was changed".into();
            return Err(Error::Conflict { path: fragment.path.clone(), what });
        }
    }
    Ok(())
}

/// Looks at what has the name of a new fragment now. Only what was found among the object's
/// fragments may go, or a fragment that is the same as the new one; the answer is the own name of a
/// fragment that lies here by mistake.
fn may_replace(object: &Object, position: Position, destination: &Path) -> Result<Option<PathBuf>> {
    let stays = |what: String| Err(Error::Conflict { path: destination.to_path_buf(), what });
    match destination.symlink_metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Ok(there) if !there.is_file() && !there.is_symlink() => {
            return stays("is not a regular file; move it away first".into());
        }
        _ => {}
    }
    let identity = std::fs::metadata(destination).map(|there| (there.dev(), there.ino())).unwrap_or_default();
    let header = open_regular(destination).and_then(|file| read_header(&file)).ok();
    if let Some(Ok(header)) = &header
        && header.object == object.header.object
        && header.position == position
    {
        return Ok(None);
    }
    if object.seen.get(&identity) != Some(&header) {
        return stays("is not a fragment that was searched, or has changed since; move it away first".into());
    }
    match header {
        Some(Err(why)) if why.is_newer() => stays(format!("was written by a newer weft, so it stays: {why}")),
        Some(Ok(header)) if header.name != object.header.name => {
            let own = destination.with_file_name(fragment_file_name(&header.name, header.position));
            match own.symlink_metadata() {
                Ok(_) => stays(format!("belongs to another object, and {} is there, too; move one away", Shown(&own))),
                Err(_) => Ok(Some(own)),
            }
        }
        Some(Ok(header)) if header.created > object.header.created => stays(
            "belongs to a NEWER object of this name, so it stays; find more of its fragments or move it away".into(),
        ),
        _ => Ok(None),
    }
}

fn rebuild(object: &Object, made: &[Made], threads: Option<usize>, control: &Control) -> Result<(u64, u64)> {
    let layout = &object.header.layout;
    control.begin(layout.object_bytes());
    let [next, witnessed, unwitnessed] = [0; 3].map(AtomicU64::new);
    run(thread_count(threads, object.stripe_memory_bytes(), layout.stripes()), |stop| {
        let mut reader = StripeReader::new(object, false)?;
        loop {
            let stripe = next.fetch_add(1, Ordering::Relaxed);
            if stripe >= layout.stripes() || stop.is_set() {
                return Ok(());
            }
            control.check()?;
            reader.begin(stripe);
            let lost: Vec<usize> = made.iter().map(|f| f.position.index()).filter(|&at| !reader.read(at)).collect();
            if !lost.is_empty() {
                let how = reader.make(&lost)?;
                match reader.agrees_with_a_survivor(&lost, &how) {
                    Some(true) => _ = witnessed.fetch_add(lost.len() as u64, Ordering::Relaxed),
                    None => _ = unwitnessed.fetch_add(lost.len() as u64, Ordering::Relaxed),
                    Some(false) => return Err(disagreement(object, stripe)),
                }
            }
            for fragment in made {
                write_block(object, fragment, stripe, reader.record_mut(fragment.position.index()))?;
            }
            control.advance(layout.data_bytes(stripe));
        }
    })?;
    for_each(made, |fragment| {
        control.check()?;
        finish(&fragment.temporary, &Header { compatible: 0, position: fragment.position, ..object.header.clone() })
    })?;
    Ok((witnessed.into_inner(), unwitnessed.into_inner()))
}

fn disagreement(object: &Object, stripe: u64) -> Error {
    let what = "its blocks match their checksums but not each other, so what is lost cannot be rebuilt safely";
    Error::Corrupt { path: object.name().to_path_buf(), what: format!("stripe {stripe}: {what}; nothing was changed") }
}

fn write_block(object: &Object, fragment: &Made, stripe: u64, record: &mut [u8]) -> Result<()> {
    let layout = &object.header.layout;
    let block = &record[record.len() - layout.block_bytes(stripe)..];
    let checksums = block.chunks(layout.granule_bytes()).map(crc64).collect();
    let (id, data_bytes) = (object.header.object, layout.data_bytes(stripe));
    let header = RecordHeader::new(id, layout, fragment.position, stripe, data_bytes, checksums);
    write_record(&fragment.temporary, layout.record_offset(stripe), &header, record)
}

/// Reads a new fragment back, as any reader would.
fn prove(object: &Object, made: &Made, control: &Control) -> Result<()> {
    let layout = &object.header.layout;
    let path = made.temporary.path().to_path_buf();
    let corrupt = |what: String| Error::Corrupt { path: made.temporary.destination().to_path_buf(), what };
    let (target, stored) = (made.directory.target(), made.temporary.target_file());
    let mut bytes = vec![0; HEADER_BYTES];
    let read = target.read_at(stored, 0, &mut bytes).map_err(Error::io("read", &path))?;
    let same = |header: Header| header.position == made.position && header.object == object.header.object;
    if !Header::decode(&bytes[..read]).is_ok_and(same) {
        return Err(corrupt("the new fragment does not read back as it was written".into()));
    }
    let (file, position) = (made.temporary.file().clone(), made.position);
    let fragment = Fragment { path, file, stored, position, directory: 0, headed: true, sound: true, committed: false };
    let mut record = zeroed(layout.record_bytes(0))?;
    for stripe in 0..layout.stripes() {
        control.check()?;
        let record = &mut record[..layout.record_bytes(stripe)];
        fragment
            .read_block(target, object.header.object, layout, stripe, record)
            .map_err(|problem| corrupt(format!("the new fragment does not read back: {problem}")))?;
    }
    Ok(())
}
