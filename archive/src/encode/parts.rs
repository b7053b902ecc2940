//! Archives files in parts, by any workers. The parts go into one file of the job's directory; a
//! second file there notes which parts are done, with their hashes. When all parts are done, the
//! file gets its name. So an archive shows such a file complete or not at all, and a restarted job
//! does only the parts that are left.

use super::copy::Copying;
use super::encoding::shared_name;
use super::files::{bytes_of, owner_differs};
use super::hash::{Hash, Sealed, join_parts, part_hasher};
use super::{Decision, Encoder, HASH, Trouble, decide, report};
use crate::message::{Item, Large, Problem};
use crate::roles::Made;
use crate::transport::Broken;
use crate::walk::{open_directory, open_file, read_attributes, stat_of, whole};
use blake3::hazmat::HasherExt;
use fs::{Attributes, BulkFile, FileKind, New, RenameMode, SetAttributes, SetTime, Time};
use plan::Ino;
use plan::schedule::Parts;
use rustix::fd::OwnedFd;
use serde::{Deserialize, Serialize};

/// The attribute of the notes file that identifies the source of the parts.
const PARTS_ATTRIBUTE: &[u8] = b"user.weft.parts";

/// The version of the source that the parts belong to. If the source has changed, the parts are
/// useless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Of {
    size: u64,
    modified: Time,
    part_bytes: u64,
}

/// The names of a file in parts and of its notes file in the job's directory.
fn names(large: &Large) -> (Vec<u8>, Vec<u8>) {
    let hash = blake3::hash(&large.place.target_of(&large.item.name)).to_hex();
    (format!("p-{}", &hash[..32]).into_bytes(), format!("m-{}", &hash[..32]).into_bytes())
}

/// The attribute of the notes file for a part.
fn note(part: u32) -> Vec<u8> {
    format!("user.weft.part.{part}").into_bytes()
}

fn parts_of(large: &Large) -> Parts {
    Parts::new(large.item.stat.size, 1, Some(large.part_bytes))
}

const NOTHING: Made = Made { bytes: 0, good: true, opened: None };

impl Encoder<'_> {
    /// Reports a problem with a file in parts.
    fn failed(&self, large: &Large, trouble: Trouble, problems: &mut Vec<Problem>) -> Result<Made, Broken> {
        report(large.place.source_of(&large.item.name), trouble, problems)?;
        Ok(Made { good: false, ..NOTHING })
    }

    fn find(&self, parent: Ino, name: &[u8]) -> Result<Option<Attributes>, Trouble> {
        match self.volume().lookup(parent, name) {
            Ok(found) => Ok(Some(found)),
            Err(fs::Error::Meta(meta::Error::NotFound)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens the source file if it has not changed.
    fn source(&self, large: &Large) -> Result<OwnedFd, Trouble> {
        let directory = open_directory(&large.place.source)?;
        let file = open_file(&directory, &large.item.name)?;
        let (now, stat) = (stat_of(&file)?, &large.item.stat);
        let same = (now.kind, now.size, now.modified) == (stat.kind, stat.size, stat.modified);
        if same { Ok(file) } else { Err(Trouble::Changed) }
    }

    /// Finds out which parts are left, and creates the file that they go into.
    pub(super) fn open(&mut self, large: &Large, problems: &mut Vec<Problem>) -> Result<Made, Broken> {
        match self.try_open(large, problems) {
            Ok(made) => Ok(made),
            Err(trouble) => self.failed(large, trouble, problems),
        }
    }

    fn try_open(&mut self, large: &Large, problems: &mut Vec<Problem>) -> Result<Made, Trouble> {
        drop(self.source(large)?);
        let stat = &large.item.stat;
        let there = self.find(large.place.ino, &large.item.name)?;
        let decision = decide(stat, there.as_ref(), |_| true);
        let refused = match decision {
            Decision::Directory => Some("there is a directory of that name in the archive"),
            Decision::Differs if !self.job.update => {
                Some("the archive has another version of it, which only an update replaces")
            }
            Decision::Attributes if !self.job.update && there.is_some_and(|there| owner_differs(stat, &there)) => {
                Some("the archive has it with another owner or mode, which only an update changes")
            }
            _ => None,
        };
        if let Some(what) = refused {
            problems.push(Problem { path: large.place.source_of(&large.item.name), what: what.into() });
            return Ok(Made { good: false, ..NOTHING });
        }
        // The code for files in one piece handles a file whose content is stored, or that has
        // another name.
        let has_content = matches!(decision, Decision::Unchanged | Decision::Attributes);
        let has_name = stat.links > 1
            && self
                .find(self.job.hidden, &shared_name(stat))?
                .is_some_and(|known| !matches!(decide(stat, Some(&known), |_| true), Decision::Differs));
        if has_content || has_name {
            let group = crate::message::Group { place: large.place.clone(), items: vec![large.item.clone()] };
            return self.files(&[group], problems).map_err(|broken| Trouble::Volume(fs::Error::Conflict(broken.0)));
        }
        let (large, missing) = self.prepare(large)?;
        Ok(Made { opened: Some((large, missing)), ..NOTHING })
    }

    /// The file that the parts go into, and the parts that are missing.
    fn prepare(&mut self, large: &Large) -> Result<(Large, Vec<u32>), Trouble> {
        let (file, notes) = names(large);
        let stat = &large.item.stat;
        let there = (self.find(self.job.hidden, &file)?, self.find(self.job.hidden, &notes)?);
        if let (Some(file), Some(notes)) = there {
            let of = self.volume().attribute(notes.ino, PARTS_ATTRIBUTE).ok();
            let of: Option<Of> = of.and_then(|of| postcard::from_bytes(&of).ok());
            if let Some(of) = of.filter(|of| (of.size, of.modified) == (stat.size, stat.modified)) {
                let large = Large { part_bytes: of.part_bytes, ino: file.ino, ..large.clone() };
                let done = self.volume().attribute_names(notes.ino)?;
                let missing = (0..parts_of(&large).count()).filter(|&part| !done.contains(&note(part))).collect();
                return Ok((large, missing));
            }
        }
        for (name, found) in [(&file, there.0), (&notes, there.1)] {
            if found.is_some() {
                self.volume().unlink(self.job.hidden, name)?;
            }
        }
        let first = self.volume().new_inos(2)?;
        let of = Of { size: stat.size, modified: stat.modified, part_bytes: large.part_bytes };
        let of = postcard::to_stdvec(&of).map_err(|why| Trouble::Volume(fs::Error::Invalid(why.to_string())))?;
        let made = [
            self.hidden_file(first, file, vec![]),
            self.hidden_file(first.plus(1), notes, vec![(PARTS_ATTRIBUTE.to_vec(), of)]),
        ];
        if !self.volume().put_files(&made)?.is_empty() {
            return Err(Trouble::Volume(fs::Error::Conflict("another job works on the same file".into())));
        }
        let large = Large { ino: first, ..large.clone() };
        let parts = (0..parts_of(&large).count()).collect();
        Ok((large, parts))
    }

    fn hidden_file(&self, ino: Ino, name: Vec<u8>, attributes: Vec<(Vec<u8>, Vec<u8>)>) -> BulkFile {
        let time = Time::default();
        BulkFile {
            ino,
            parent: self.job.hidden,
            name,
            new: New { kind: FileKind::File, mode: 0o600, uid: 0, gid: 0, device: 0, link: Vec::new() },
            size: 0,
            accessed: time,
            modified: time,
            changed: time,
            extents: Vec::new(),
            attributes,
        }
    }

    /// Archives one part.
    pub(super) fn part(&mut self, large: &Large, part: u32, problems: &mut Vec<Problem>) -> Result<Made, Broken> {
        match self.try_part(large, part) {
            Ok(bytes) => Ok(Made { bytes, ..NOTHING }),
            Err(trouble) => self.failed(large, trouble, problems),
        }
    }

    fn try_part(&mut self, large: &Large, part: u32) -> Result<u64, Trouble> {
        let file = self.source(large)?;
        let stat = &large.item.stat;
        let range = parts_of(large).range(part);
        let notes = self.find(self.job.hidden, &names(large).1)?.ok_or(Trouble::Changed)?;
        let about = fs::manifest::File {
            path: large.place.target_of(&large.item.name),
            size: stat.size,
            mode: stat.mode,
            uid: stat.uid,
            gid: stat.gid,
            modified: stat.modified,
        };
        self.bulk_load.begin(large.ino, about);
        let mut hasher = part_hasher(range.start);
        let copying = Copying { control: &self.job.control, limiter: &self.job.limiter };
        let read = copying.copy(&file, stat, range.clone(), &mut self.bulk_load, &mut hasher);
        let read = read.inspect_err(|_| self.bulk_load.drop_last())?;
        self.bulk_load.finish_part(range);
        self.later.mark(notes.ino, note(part), hasher.finalize_non_root().to_vec());
        Ok(read)
    }

    /// Gives a file its name when all its parts are done.
    pub(super) fn close(&mut self, large: &Large, problems: &mut Vec<Problem>) -> Result<Made, Broken> {
        match self.try_close(large) {
            Ok(()) => Ok(NOTHING),
            Err(trouble) => self.failed(large, trouble, problems),
        }
    }

    /// Lets other names of a file find it. What an earlier run left there is of the file as it was.
    fn share(&self, ino: Ino, key: &[u8]) -> Result<(), Trouble> {
        let link = || match self.volume().link(ino, self.job.hidden, key) {
            Ok(_) => Ok(true),
            Err(fs::Error::Meta(meta::Error::Exists)) => Ok(false),
            Err(error) => Err(Trouble::from(error)),
        };
        if link()? || self.find(self.job.hidden, key)?.is_some_and(|known| known.ino == ino) {
            return Ok(());
        }
        self.unshare(key)?;
        link().map(drop)
    }

    /// Forgets a file with several names. Another worker may have done it.
    pub(super) fn unshare(&self, key: &[u8]) -> Result<(), Trouble> {
        match self.volume().unlink(self.job.hidden, key) {
            Ok(()) | Err(fs::Error::Meta(meta::Error::NotFound)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn try_close(&mut self, large: &Large) -> Result<(), Trouble> {
        let source = self.source(large)?;
        let (Item { name, stat }, place) = (&large.item, &large.place);
        let (file, notes) = names(large);
        let noted = self.find(self.job.hidden, &notes)?.ok_or(Trouble::Changed)?.ino;
        let mut hashes = Vec::<Hash>::new();
        for part in 0..parts_of(large).count() {
            let hash = self.volume().attribute(noted, &note(part))?;
            hashes.push(hash.try_into().map_err(|_| Trouble::Changed)?);
        }
        let hash = join_parts(&hashes, large.part_bytes, stat.size);
        let mut attributes = read_attributes(&source)?;
        attributes.push((HASH.to_vec(), Sealed { hash, modified: stat.modified }.encode()));
        // The file is created like any other, from the description of a whole file.
        let wanted = whole(place.ino, large.ino, &large.item, attributes);
        for (name, value) in &wanted.attributes {
            self.volume().set_attribute(large.ino, name, value, None)?;
        }
        let change = SetAttributes {
            mode: Some(stat.mode),
            uid: Some(stat.uid),
            gid: Some(stat.gid),
            size: Some(stat.size),
            accessed: Some(SetTime::To(stat.accessed)),
            modified: Some(SetTime::To(stat.modified)),
            changed: Some(stat.changed),
            ..SetAttributes::default()
        };
        self.volume().set_attributes(large.ino, change)?;
        if stat.links > 1 {
            self.share(large.ino, &shared_name(stat))?;
        }
        let mode = if self.job.update { RenameMode::Replace } else { RenameMode::NoReplace };
        self.volume().rename((self.job.hidden, &file), (place.ino, name), mode).map_err(|why| match why {
            fs::Error::Meta(meta::Error::Exists) => Trouble::Taken,
            why => why.into(),
        })?;
        self.volume().unlink(self.job.hidden, &notes)?;
        self.later.touch(place);
        self.tally.files += 1;
        self.tally.bytes = self.tally.bytes.saturating_add(bytes_of(stat));
        self.tally.sizes.add(stat.size);
        Ok(())
    }
}
