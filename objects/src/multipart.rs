//! Multipart uploads. An upload is a directory with one file for each part; its attribute says what
//! it becomes. Completion shares the stripes of the parts and copies nothing.

use crate::about::{ATTRIBUTE, About};
use crate::copy::{To, join};
use crate::etag;
use crate::failure::{Code, Error, Result, error, failed, is};
use crate::home::is_missing;
use crate::place::{Condition, Objects, answer, now, whole};
use crate::text::hex;
use fs::{Attributes, FileKind, Ino, RenameMode};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The most parts of an upload.
pub const MAX_PARTS: i32 = 10_000;
/// How many entries of a directory are asked for at a time.
const STEP: usize = 1000;

/// A checksum that a client wants of the whole object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChecksumOfWhole {
    /// The algorithm: crc32.
    pub algorithm: String,
    /// It is of the checksums of the parts, not of the bytes.
    pub composite: bool,
}

/// What an upload becomes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Upload {
    /// The bucket.
    pub bucket: String,
    /// The key.
    pub key: String,
    /// What is kept of the object.
    pub about: About,
    /// When it began, in seconds since 1970.
    pub begun: i64,
    /// The checksum that was asked for. Older gateways ask for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<ChecksumOfWhole>,
}

/// A part that is there.
#[derive(Clone, Debug)]
pub struct Part {
    /// Its file.
    pub file: Attributes,
    /// The name of that.
    pub name: Vec<u8>,
}

/// Begins an upload, and returns its id.
pub fn begin(
    objects: &Objects,
    bucket: &str,
    key: &str,
    about: About,
    checksum: Option<ChecksumOfWhole>,
) -> Result<String> {
    objects.bucket(bucket)?;
    for part in fs::object_name::parts(key) {
        fs::object_name::name(part).map_err(crate::failure::no_name)?;
    }
    let at = now();
    let mut random = [0; 12];
    fastrand::fill(&mut random);
    // The ids of a key are in the order of their beginnings.
    let id = format!("{:012x}{}", at.seconds, hex(&random));
    let upload = Upload { bucket: bucket.into(), key: key.into(), about, begun: at.seconds, checksum };
    let stored = serde_json::to_vec(&upload).map_err(|_| error!(InternalError))?;
    let ino = objects.fs.new_inos(1).map_err(answer)?;
    let mut directory = whole(ino, objects.home.uploads, id.clone().into_bytes(), About::default(), 0, at);
    directory.new = crate::home::new(FileKind::Directory, 0o700);
    directory.attributes = vec![(ATTRIBUTE.to_vec(), stored)];
    objects.fs.put_files(&[directory]).map_err(answer)?;
    objects.settle(objects.home.uploads)?;
    Ok(id)
}

/// The directory of an upload of this key, and what it becomes.
///
/// # Errors
/// `NoSuchUpload`.
pub fn find(objects: &Objects, bucket: &str, key: &str, id: &str) -> Result<(Ino, Upload)> {
    objects.bucket(bucket)?;
    let is_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let found = if is_id { objects.fs.lookup(objects.home.uploads, id.as_bytes()) } else { return Err(gone()) };
    let directory = match found {
        Ok(found) => found.ino,
        Err(error) if is_missing(&error) => return Err(gone()),
        Err(error) => return Err(failed(&error)),
    };
    match upload(objects, directory)? {
        Some(upload) if upload.bucket == bucket && upload.key == key => Ok((directory, upload)),
        _ => Err(gone()),
    }
}

fn gone() -> Error {
    error!(NoSuchUpload)
}

fn upload(objects: &Objects, directory: Ino) -> Result<Option<Upload>> {
    match objects.fs.attribute(directory, ATTRIBUTE) {
        Ok(stored) => Ok(serde_json::from_slice(&stored).ok()),
        Err(error) if is(&error, Errno::NODATA) || is_missing(&error) => Ok(None),
        Err(error) => Err(failed(&error)),
    }
}

/// All entries of a directory.
pub fn entries(objects: &Objects, directory: Ino) -> fs::Result<Vec<(Vec<u8>, Attributes)>> {
    let (mut all, mut cookie) = (Vec::new(), 0);
    loop {
        let listed = objects.fs.list(directory, cookie, STEP)?;
        let Some(last) = listed.last() else { return Ok(all) };
        cookie = last.cookie;
        all.extend(listed.into_iter().map(|entry| (entry.name, entry.attributes)));
    }
}

/// A name for a part, which no other one has. Of several uploads of one part, the last counts.
pub fn part_name(objects: &Objects, number: i32) -> Vec<u8> {
    [format!("{number:05}-").into_bytes(), objects.unique()].concat()
}

/// The parts of an upload by number. Of several uploads of one part, it is the newest.
pub fn parts(objects: &Objects, directory: Ino) -> Result<BTreeMap<i32, Part>> {
    let newest = |(number, mut parts): (i32, Vec<Part>)| Some((number, parts.pop()?));
    Ok(all_parts(objects, directory)?.into_iter().filter_map(newest).collect())
}

/// All uploads of parts by number, the newest last. Which one that is depends on the clocks of
/// gateways.
fn all_parts(objects: &Objects, directory: Ino) -> Result<BTreeMap<i32, Vec<Part>>> {
    let mut parts = BTreeMap::<i32, Vec<Part>>::new();
    for (name, file) in entries(objects, directory).map_err(answer)? {
        let number = name.get(..5).and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
        let Some(number) = number.filter(|_| file.kind == FileKind::File) else { continue };
        parts.entry(number).or_default().push(Part { file, name });
    }
    let age = |part: &Part| (part.file.modified.seconds, part.file.modified.nanoseconds, part.name.clone());
    parts.values_mut().for_each(|same| same.sort_by_cached_key(age));
    Ok(parts)
}

/// The uploads of a bucket, in order of keys and then of their beginnings: id and what each
/// becomes.
pub fn uploads(objects: &Objects, bucket: &str) -> Result<Vec<(String, Upload)>> {
    objects.bucket(bucket)?;
    let mut all = Vec::new();
    for (name, file) in entries(objects, objects.home.uploads).map_err(answer)? {
        let Ok(id) = String::from_utf8(name) else { continue };
        if let Some(upload) = upload(objects, file.ino)?.filter(|upload| upload.bucket == bucket) {
            all.push((id, upload));
        }
    }
    all.sort_by(|a, b| (&a.1.key, &a.0).cmp(&(&b.1.key, &b.0)));
    Ok(all)
}

/// Makes the object of the parts that the client lists, by number and ETag. It becomes visible in
/// one transaction, with all its bytes. `sums` compares what the client says with the upload and
/// what is kept of the parts that are listed, and returns the checksums of the object. Returns what
/// is kept of it. A request that is repeated, as its first answer was lost, gets that answer.
///
/// # Errors
/// `InvalidPart`, `InvalidPartOrder`, `PreconditionFailed`, `NoSuchUpload`, those of `sums`.
pub fn complete(
    objects: &Objects,
    (bucket, key, id): (&str, &str, &str),
    wanted: &[(i32, String)],
    condition: &Condition,
    sums: impl FnOnce(&Upload, &[About]) -> Result<BTreeMap<String, String>>,
) -> Result<About> {
    let done = complete_once(objects, (bucket, key, id), wanted, condition, sums);
    let is_repeated = |why: &Error| matches!(why.code(), Code::NoSuchUpload);
    let before = || {
        let etag = etag::of_parts(wanted.iter().map(|(_, etag)| etag.as_str()))?;
        let about = objects.about(&objects.find(bucket, key).ok()??.file).ok()?;
        (about.etag == etag).then_some(about)
    };
    done.or_else(|why| if is_repeated(&why) { before().ok_or(why) } else { Err(why) })
}

fn complete_once(
    objects: &Objects,
    (bucket, key, id): (&str, &str, &str),
    wanted: &[(i32, String)],
    condition: &Condition,
    sums: impl FnOnce(&Upload, &[About]) -> Result<BTreeMap<String, String>>,
) -> Result<About> {
    let (directory, upload) = find(objects, bucket, key, id)?;
    if wanted.is_empty() {
        return Err(error!(MalformedXML, "a completion lists one part at least"));
    }
    if wanted.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
        return Err(error!(InvalidPartOrder));
    }
    objects.check(condition, objects.find(bucket, key)?.as_ref())?;
    let there = all_parts(objects, directory)?;
    let (mut sources, mut parts) = (Vec::with_capacity(wanted.len()), Vec::with_capacity(wanted.len()));
    for (number, etag) in wanted {
        let same = there.get(number).ok_or_else(|| error!(InvalidPart, "part {number} is not there"))?;
        let mut found = None;
        for part in same.iter().rev() {
            let about = objects.about(&part.file)?;
            if about.etag == *etag {
                found = Some((about, part.file.ino, part.file.size));
                break;
            }
        }
        let (about, ino, size) = found.ok_or_else(|| error!(InvalidPart, "part {number} has another ETag"))?;
        sources.push((ino, 0..size));
        parts.push(About { size, ..about });
    }
    let checksums = sums(&upload, &parts)?;
    let etag = etag::of_parts(wanted.iter().map(|(_, etag)| etag.as_str())).ok_or_else(|| error!(InvalidPart))?;
    let about = About { etag, checksums, ..upload.about };
    let done = join(objects, &sources, &[], &about, To::Object { bucket, key, condition });
    let size = done.map_err(|why| match why.code() {
        // Parts go when another request completes or aborts the upload. If it is there, the key is
        // what is missing.
        Code::NoSuchKey => find(objects, bucket, key, id).err().unwrap_or(why),
        _ => why,
    })?;
    // The object is there. An upload that stays goes as one that nobody completes.
    _ = drop_upload(objects, id);
    Ok(About { size, ..about })
}

/// Gives up an upload: the sweeper removes its parts.
pub fn drop_upload(objects: &Objects, id: &str) -> Result<()> {
    let (uploads, trash) = (objects.home.uploads, objects.home.trash);
    match objects.fs.rename((uploads, id.as_bytes()), (trash, id.as_bytes()), RenameMode::NoReplace) {
        Ok(()) => objects.settle(uploads),
        Err(error) if is_missing(&error) => Ok(()),
        Err(error) => Err(failed(&error)),
    }
}
