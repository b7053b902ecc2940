//! Encodes a file into fragments: each thread reads the next stripe into its own rows, codes and
//! checksums it while it is in cache, and writes its blocks. Headers come last, then everything is
//! made durable, then it gets its names.

use super::fragment::{read_header, write_record};
use super::parallel::{for_each, run, thread_count};
use super::rows::Rows;
use super::source::{Source, Stripe};
use crate::format::{FormatError, HEADER_BYTES, Header, Layout, MIN_BLOCK_BYTES, ObjectId, RecordHeader, Timestamp};
use crate::target::{
    Directory, FileName, Lock, Temporary, begin_write_back, fragment_file_name, open_regular, read_at, stem,
};
use crate::{Control, Error, Result};
use ec::Code;
use plan::{Position, SetId};
use rustix::fs::{FlockOperation, flock};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What one checksum covers: short enough that a bad sector costs little, long enough that
/// checksums cost nothing.
const GRANULE_BYTES: usize = 64 << 10;
/// Each fragment's writeback starts after this many bytes, so that little is left for the final
/// sync.
const WRITEBACK_BYTES: u64 = 8 << 20;

/// How a file is encoded.
#[derive(Debug)]
pub struct EncodeOptions<'a> {
    /// The code.
    pub code: Arc<dyn Code>,
    /// The object's name: 1 to 255 bytes without `/` and NUL.
    pub name: &'a [u8],
    /// Where the fragments go, in turn: position p into directory p modulo their number.
    pub directories: &'a [Directory],
    /// Whether fragments of this name may be replaced.
    pub force: bool,
    /// The length of the blocks of all stripes but the last, a multiple of the code's unit.
    pub block_bytes: Option<usize>,
    /// How many threads; one for each core otherwise.
    pub threads: Option<usize>,
}

/// What was encoded.
#[derive(Debug)]
pub struct Encoded {
    /// The header of position 0.
    pub header: Header,
    /// The fragments by position.
    pub fragments: Vec<PathBuf>,
}

/// The block length if the caller gives none: a stripe of one or two MiB of data, which stays in
/// the second-level cache, in blocks that are long enough for a disk.
pub fn default_block_bytes(code: &dyn Code) -> usize {
    let target = (1usize << 20) >> code.shape().k.ilog2();
    target.clamp(32 << 10, 1 << 20).next_multiple_of(code.unit())
}

/// Encodes `source` into one fragment per position.
///
/// # Errors
/// `Invalid` for an argument, `Conflict` for fragments that exist, and what the system says.
/// Whatever fails, no fragment and no temporary file of it is left, unless replacing had begun:
/// then all new fragments are left, complete, and `repair` gives them their names.
pub fn encode(source: &Source, options: &EncodeOptions<'_>, control: &Control) -> Result<Encoded> {
    let layout = layout(options, source.known_bytes().unwrap_or(0))?;
    let directories = options.directories;
    if directories.is_empty() {
        return Err(Error::Invalid("no directory was given".into()));
    }
    crate::allow_many_open_files();
    let fragments = create(options, &layout, directories, source.attributes().0)?;
    let object = ObjectId(random()?);
    control.begin(source.known_bytes().unwrap_or(0));
    let code = &*options.code;
    let memory = (layout.k() + code.coded().len()) * layout.full_record_bytes();
    let stripes = source.known_bytes().map_or(u64::MAX, |_| layout.stripes());
    run(thread_count(options.threads, memory, stripes), |stop| {
        let mut writer = StripeWriter::new(code, object, layout, &fragments)?;
        while !stop.is_set()
            && let Some(stripe) = source.next(&layout, &mut writer.rows, control)?
        {
            control.check()?;
            writer.write(stripe)?;
            control.advance(stripe.data_bytes);
        }
        Ok(())
    })?;
    let invalid = |error| Error::Invalid(format!("the data cannot be encoded: {error}"));
    let layout = layout.with_object_bytes(source.finish()?).map_err(invalid)?;
    let (mode, modified, accessed) = source.attributes();
    let (code, name) = (code.spec().to_string(), options.name.to_vec());
    let created = Timestamp::now();
    let header = Header {
        compatible: 0,
        object,
        chunk_set: SetId(0),
        position: Position(0),
        code,
        layout,
        name,
        mode,
        modified,
        accessed,
        created,
    };
    for_each(&Position::all(fragments.len()).zip(fragments.iter()).collect::<Vec<_>>(), |&(position, fragment)| {
        control.check()?;
        finish(fragment, &Header { position, ..header.clone() })
    })?;
    control.check()?;
    // From here on, other encoders and repairs wait: files of two objects must not get their names
    // in turns.
    let _lock = Lock::take(directories, control)?;
    refuse_what_is_in_the_way(options, &layout, directories)?;
    let header = after_all_others(header, &fragments, directories)?;
    commit(&fragments, options.force)?;
    remove_abandoned(directories, options.name);
    let own = Position::all(header.layout.blocks()).map(|position| place(options, directories, position));
    let own = own.map(|(directory, file_name)| (directory.identity(), file_name)).collect();
    if options.force {
        remove_replaced(directories, &header, &own);
    }
    Ok(Encoded { header, fragments: fragments.iter().map(|f| f.destination().to_path_buf()).collect() })
}

fn layout(options: &EncodeOptions<'_>, object_bytes: u64) -> Result<Layout> {
    if !crate::format::valid_name(options.name) {
        return Err(Error::Invalid("a name has 1 to 255 bytes, without / and NUL, and is not . or ..".into()));
    }
    let (code, unit) = (&*options.code, options.code.unit());
    let block_bytes = options.block_bytes.unwrap_or_else(|| default_block_bytes(code));
    if block_bytes == 0 || !block_bytes.is_multiple_of(unit) {
        let near = (block_bytes / unit * unit).max(MIN_BLOCK_BYTES.next_multiple_of(unit));
        return Err(Error::Invalid(format!(
            "blocks of {block_bytes} bytes do not fit {}: a multiple of {unit} is needed, for example {near}",
            code.spec()
        )));
    }
    // Blocks of many granules get longer ones, so that the record header stays within its limit.
    let granule_bytes = GRANULE_BYTES.max((block_bytes >> 14).next_power_of_two());
    let shape = code.shape();
    Layout::new((shape.k, shape.m), unit, block_bytes, granule_bytes, object_bytes)
        .map_err(|error| Error::Invalid(format!("blocks of {block_bytes} bytes: {error}; choose another length")))
}

fn random() -> Result<[u8; 16]> {
    let mut id = [0; 16];
    let got = rustix::rand::getrandom(&mut id[..], rustix::rand::GetRandomFlags::empty());
    got.map_err(Error::io("get random numbers from", "the system".as_ref()))?;
    Ok(id)
}

/// Where the fragment of a position goes.
fn place<'a>(
    options: &EncodeOptions<'_>,
    directories: &'a [Directory],
    position: Position,
) -> (&'a Directory, OsString) {
    (&directories[position.index() % directories.len()], fragment_file_name(options.name, position))
}

/// Looks for fragments of this name, wherever they lie in these directories, and for what no file
/// can replace.
fn refuse_what_is_in_the_way(options: &EncodeOptions<'_>, layout: &Layout, directories: &[Directory]) -> Result<()> {
    for position in Position::all(layout.blocks()) {
        let (directory, file_name) = place(options, directories, position);
        if directory.contains(&file_name)? && !options.force {
            return Err(Error::exists(&directory.path().join(file_name)));
        }
    }
    if options.force {
        return Ok(());
    }
    let committed = |(_, parsed): &Named| parsed.written_by.is_none();
    for (path, _) in named(directories, options.name)?.into_iter().filter(committed) {
        // A file that resembles one of ours only by its name belongs to another program.
        if header_of(&path).is_none_or(|header| header.name == options.name) {
            return Err(Error::exists(&path));
        }
    }
    Ok(())
}

/// A file and what its name says.
type Named = (PathBuf, FileName);

/// The files that are called as fragments of that object.
fn named(directories: &[Directory], name: &[u8]) -> Result<Vec<Named>> {
    let stem = stem(name);
    let mut found = Vec::new();
    for directory in directories {
        let files = directory.chunk_files()?.into_iter().filter(|(_, parsed)| parsed.stem == stem);
        found.extend(files.map(|(entry, parsed)| (directory.path().join(entry), parsed)));
    }
    Ok(found)
}

fn header_of(path: &Path) -> Option<Header> {
    open_regular(path).and_then(|file| read_header(&file)).ok()?.ok()
}

fn create(
    options: &EncodeOptions<'_>,
    layout: &Layout,
    directories: &[Directory],
    mode: u32,
) -> Result<Vec<Temporary>> {
    refuse_what_is_in_the_way(options, layout, directories)?;
    let make = |position| {
        let (directory, file_name) = place(options, directories, position);
        directory.create(&file_name, mode)
    };
    Position::all(layout.blocks()).map(make).collect()
}

/// Makes the object newer than all others of its name, also where the clock was ahead when those
/// were encoded.
fn after_all_others(header: Header, fragments: &[Temporary], directories: &[Directory]) -> Result<Header> {
    let others = named(directories, &header.name)?.into_iter().filter_map(|(path, _)| header_of(&path));
    let others = others.filter(|other| other.name == header.name && other.object != header.object);
    match others.map(|other| other.created).max() {
        Some(newest) if newest >= header.created => {
            let header = Header { created: newest.next(), ..header };
            for_each(
                &Position::all(fragments.len()).zip(fragments.iter()).collect::<Vec<_>>(),
                |&(position, fragment)| finish(fragment, &Header { position, ..header.clone() }),
            )?;
            Ok(header)
        }
        _ => Ok(header),
    }
}

/// Codes and writes stripes, one after the other.
struct StripeWriter<'a> {
    code: &'a dyn Code,
    object: ObjectId,
    layout: Layout,
    fragments: &'a [Temporary],
    rows: Rows,
}

impl<'a> StripeWriter<'a> {
    fn new(code: &'a dyn Code, object: ObjectId, layout: Layout, fragments: &'a [Temporary]) -> Result<Self> {
        let block_bytes = layout.full_block_bytes();
        let header_bytes = layout.record_header_bytes(block_bytes);
        let rows = Rows::new(layout.k() + code.coded().len(), header_bytes, block_bytes)?;
        Ok(Self { code, object, layout, fragments, rows })
    }

    /// Codes the data in the first k rows and writes all stored blocks.
    fn write(&mut self, stripe: Stripe) -> Result<()> {
        let (layout, k, n) = (&self.layout, self.layout.k(), self.fragments.len());
        let block_bytes = layout.block_bytes_for(stripe.data_bytes);
        let coded = self.code.coded();
        let (data, mut parity) = self.rows.split(block_bytes, 0..k, k..k + coded.len());
        let mut checksums = ec::partition::encode_checksummed(self.code, &data, &mut parity, layout.granule_bytes());
        let offset = layout.record_offset(stripe.number);
        let header_bytes = layout.record_header_bytes(block_bytes);
        // Each stripe begins with another fragment, so that the threads seldom meet at the same
        // file.
        for position in (0..n).map(|step| (step + stripe.number as usize) % n) {
            let sums = std::mem::take(&mut checksums[position]);
            let header =
                RecordHeader::new(self.object, layout, Position::at(position), stripe.number, stripe.data_bytes, sums);
            let row = if coded.contains(&position) { k + position - coded.start } else { position };
            let fragment = &self.fragments[position];
            let record = self.rows.record_mut(row, header_bytes, block_bytes);
            write_record(fragment, offset, &header, record)?;
            start_writeback(fragment, offset, record.len() as u64);
        }
        Ok(())
    }
}

/// Starts the writing of what piled up in memory whenever a record passes a multiple of
/// `WRITEBACK_BYTES`.
fn start_writeback(fragment: &Temporary, offset: u64, length: u64) {
    let end = (offset + length) / WRITEBACK_BYTES * WRITEBACK_BYTES;
    if end > offset {
        begin_write_back(fragment.file(), end - WRITEBACK_BYTES..end);
    }
}

/// Writes the header, which makes the file a fragment, and waits until all of it is durable.
pub(super) fn finish(fragment: &Temporary, header: &Header) -> Result<()> {
    fragment.write(0, &[&header.encode()[..]])?;
    fragment.sync()
}

fn commit(fragments: &[Temporary], force: bool) -> Result<()> {
    for (done, fragment) in fragments.iter().enumerate() {
        if let Err(error) = fragment.commit(force) {
            if force && done > 0 {
                // Old fragments are gone already, so the new ones must not go, too.
                fragments.iter().for_each(Temporary::keep);
            } else {
                fragments[..done].iter().for_each(Temporary::withdraw);
            }
            return Err(error);
        }
    }
    Ok(())
}

/// Removes fragments of the replaced object that have no counterpart in the new one: it had more,
/// or lay otherwise. What has one of the new object's `own` names stays, whatever it says.
fn remove_replaced(directories: &[Directory], new: &Header, own: &BTreeSet<((u64, u64), OsString)>) {
    let stem = stem(&new.name);
    for directory in directories {
        for (entry, parsed) in directory.chunk_files().unwrap_or_default() {
            let path = directory.path().join(&entry);
            if parsed.stem == stem
                && parsed.written_by.is_none()
                && !own.contains(&(directory.identity(), entry))
                && let Some(old) = header_of(&path)
                && (old.name == new.name && old.object != new.object && old.created < new.created)
            {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

/// Removes what killed encoders of the same name left behind, now that a whole object of this name
/// is there.
fn remove_abandoned(directories: &[Directory], name: &[u8]) {
    for (path, parsed) in named(directories, name).unwrap_or_default() {
        if parsed.written_by.is_some()
            && let Ok(file) = open_regular(&path)
            && is_unfinished(&file, name)
            && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// What a disk writes as a whole, in bytes.
const SECTOR: usize = 512;

/// Whether the file is what an encoder of that name may leave: one without a header yet, with that
/// name's, or with one that a power loss took a part of.
fn is_unfinished(file: &File, name: &[u8]) -> bool {
    let mut start = [0; HEADER_BYTES];
    let Ok(read) = read_at(file, 0, &mut [&mut start]) else { return false };
    match Header::decode(&start) {
        Ok(header) => header.name == name,
        Err(FormatError::Checksum) => true,
        Err(_) => start[..read.min(SECTOR)].iter().all(|&byte| byte == 0),
    }
}
