//! One fragment file that is open for reading, and the only way to get a block out of it: verified.

use super::problems::{Problem, ProblemKind};
use crate::format::{FormatError, HEADER_BYTES, Header, Layout, ObjectId, RecordHeader};
use crate::target::{FileName, ReadAt, Target, TargetFile, Temporary, open_regular, read_at};
use crate::{Error, Result};
use plan::Position;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A fragment of an object.
#[derive(Debug)]
pub struct Fragment {
    pub(super) path: PathBuf,
    /// The file, for its attributes and its lock.
    pub(super) file: Arc<File>,
    /// What the target of its directory calls it.
    pub(super) stored: TargetFile,
    /// Its position in the stripes.
    pub(super) position: Position,
    /// Which of the searched directories it lies in.
    pub(super) directory: usize,
    /// Whether its header is sound.
    pub(super) headed: bool,
    /// Whether its header, name and length are as they should be; its records may be good either
    /// way.
    pub(super) sound: bool,
    /// Whether it has its final name.
    pub(super) committed: bool,
}

impl Fragment {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the record of a stripe into `record`, which has its length, and verifies it: the block
    /// is at its end.
    ///
    /// # Errors
    /// The problem, when there is any difference from what was stored; `record` must not be used
    /// then.
    pub(super) fn read_block(
        &self,
        target: &dyn Target,
        object: ObjectId,
        layout: &Layout,
        stripe: u64,
        record: &mut [u8],
    ) -> std::result::Result<(), Problem> {
        let offset = layout.record_offset(stripe);
        let problem = |kind, at: u64, what: String| {
            Err(Problem::new(kind, self.path.clone(), self.position, what).at(stripe, offset + at))
        };
        let want = record.len();
        let read = match target.read_at(self.stored, offset, record) {
            Ok(read) => read,
            Err(error) => return problem(ProblemKind::Unreadable, 0, format!("it cannot be read: {error}")),
        };
        if read < want {
            return problem(ProblemKind::Truncated, read as u64, format!("the file ends {} bytes early", want - read));
        }
        let (header, block) = record.split_at(want - layout.block_bytes(stripe));
        let record = match RecordHeader::decode(header) {
            Ok(record) => record,
            Err(error) => return problem(ProblemKind::Record, 0, format!("the record header is damaged: {error}")),
        };
        let wanted = RecordHeader::new(object, layout, self.position, stripe, layout.data_bytes(stripe), Vec::new());
        if (RecordHeader { checksums: Vec::new(), ..record.clone() }) != wanted {
            let what = if record.object != object {
                format!("the record is of object {}", record.object)
            } else {
                format!("the record is of stripe {}, position {}", record.stripe, record.position)
            };
            return problem(ProblemKind::Record, 0, what);
        }
        match record.first_bad_granule(block) {
            None => Ok(()),
            Some((at, _)) => {
                let what = "the block does not match its checksum".to_owned();
                problem(ProblemKind::Block, (header.len() + at) as u64, what)
            }
        }
    }
}

/// Writes the record of a block, which is at the end of `record`; its header goes before it.
pub(super) fn write_record(to: &Temporary, offset: u64, header: &RecordHeader, record: &mut [u8]) -> Result<()> {
    let block_at = record.len() - header.block_bytes;
    header.encode(&mut record[..block_at]);
    to.write(offset, &[record])
}

/// As many records are looked at for one that says what a file without a header is.
const MAX_RECORDS: u64 = 100_000;

/// A file that may be a fragment, as far as its header tells.
#[derive(Debug)]
pub(super) struct FragmentCandidate {
    pub path: PathBuf,
    pub file: Arc<File>,
    pub directory: usize,
    pub file_name: FileName,
    pub file_bytes: u64,
    pub header: std::result::Result<Header, FormatError>,
}

impl FragmentCandidate {
    /// Opens the file and reads its header.
    pub fn open(path: PathBuf, directory: usize, file_name: FileName) -> Result<Self> {
        let failed = |error| Error::io("read", &path)(error);
        let file = open_regular(&path).map_err(failed)?;
        let file_bytes = file.metadata().map_err(failed)?.len();
        let header = read_header(&file).map_err(failed)?;
        Ok(Self { path, file: Arc::new(file), directory, file_name, file_bytes, header })
    }

    /// The position that the first sound record of that object gives, for a file whose header is
    /// damaged.
    pub fn position_by_records(&self, object: ObjectId, layout: &Layout) -> Option<Position> {
        let mut bytes = Vec::new();
        let stripes = 0..layout.stripes().min(MAX_RECORDS);
        stripes.take_while(|&stripe| layout.record_offset(stripe) < self.file_bytes).find_map(|stripe| {
            bytes.resize(layout.record_header_bytes(layout.block_bytes(stripe)), 0);
            let read = read_at(&self.file, layout.record_offset(stripe), &mut [&mut bytes]).ok()?;
            let record = RecordHeader::decode(&bytes[..read]).ok()?;
            let ours = record.object == object && record.stripe == stripe && record.position.index() < layout.blocks();
            ours.then_some(record.position)
        })
    }

    /// Which file it is, by whatever name it is found again.
    pub fn identity(&self) -> Option<(u64, u64)> {
        use std::os::unix::fs::MetadataExt;
        self.file.metadata().ok().map(|found| (found.dev(), found.ino()))
    }
}

/// Reads and decodes the header of a chunk file.
pub(super) fn read_header(file: &File) -> std::io::Result<std::result::Result<Header, FormatError>> {
    let mut bytes = vec![0; HEADER_BYTES];
    let read = read_at(file, 0, &mut [&mut bytes])?;
    Ok(Header::decode(&bytes[..read]))
}
