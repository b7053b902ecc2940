//! Decodes an object into a file or a stream: reads the data blocks, or for each that is not there
//! another block.

use super::find::Object;
use super::parallel::{Turn, run, thread_count};
use super::problems::Problems;
use super::recover::StripeReader;
use super::survival::readable;
use crate::format::Header;
use crate::target::{Directory, Temporary, stem};
use crate::{Control, Error, Result, Shown};
use std::ffi::{OsStr, OsString};
use std::fs::{File, FileTimes, Permissions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where the data goes.
#[derive(Debug)]
pub enum Destination<'a> {
    /// A file that gets the original's mode and times; `replace` says whether one that exists may
    /// go.
    File {
        /// Where.
        path: &'a Path,
        /// Whether a file that exists may go.
        replace: bool,
    },
    /// A stream, written in order. It may have got a part of the data when an error is found.
    Stream(&'a File),
}

/// How an object is decoded.
#[derive(Debug)]
pub struct DecodeOptions<'a> {
    /// Where the data goes.
    pub destination: Destination<'a>,
    /// How many threads; one for each core otherwise.
    pub threads: Option<usize>,
}

/// Decodes the object.
///
/// # Errors
/// `TooDegraded` when too little is left of a stripe; then, as after any other error, no file is
/// left. The second part of the answer is what was wrong with the fragments, in either case.
pub fn decode(object: Object, options: &DecodeOptions<'_>, control: &Control) -> (Result<Header>, Problems) {
    let result = decode_around(&object, options, control);
    (result.map(|()| object.header), object.problems.into_list())
}

fn decode_around(object: &Object, options: &DecodeOptions<'_>, control: &Control) -> Result<()> {
    control.begin(object.header.layout.object_bytes());
    let threads = thread_count(options.threads, object.stripe_memory_bytes(), object.header.layout.stripes());
    match options.destination {
        Destination::File { path, replace } => {
            let temporary = create(path, replace)?;
            enough(object)?;
            each_stripe(object, threads, control, |reader, stripe, _| {
                let offset = stripe * object.header.layout.stripe_bytes() as u64;
                temporary.write(offset, &reader.data_pieces())
            })?;
            set_attributes(&temporary, &object.header)?;
            temporary.sync()?;
            control.check()?;
            temporary.commit(replace)
        }
        Destination::Stream(stream) => {
            enough(object)?;
            let turn = Turn::default();
            each_stripe(object, threads, control, |reader, stripe, stop| {
                turn.take(stripe, stop, || {
                    let (pieces, mut stream) = (reader.data_pieces(), stream);
                    let written = pieces.into_iter().try_for_each(|piece| stream.write_all(piece));
                    written.map_err(Error::io("write to", "standard output".as_ref()))
                })
            })
        }
    }
}

/// Checks that enough fragments are there, before anything is read.
fn enough(object: &Object) -> Result<()> {
    let plan = readable(&*object.code, &object.header.layout, &object.present());
    plan.map_err(|why| Error::TooDegraded { what: Shown(object.name()).to_string(), why })
}

fn each_stripe(
    object: &Object,
    threads: usize,
    control: &Control,
    write: impl Fn(&StripeReader<'_>, u64, &super::parallel::Stop) -> Result<()> + Sync,
) -> Result<()> {
    let next = AtomicU64::new(0);
    let layout = &object.header.layout;
    run(threads, |stop| {
        let mut reader = StripeReader::new(object, true)?;
        loop {
            let stripe = next.fetch_add(1, Ordering::Relaxed);
            if stripe >= layout.stripes() || stop.is_set() {
                return Ok(());
            }
            control.check()?;
            reader.begin(stripe);
            reader.data()?;
            write(&reader, stripe, stop)?;
            control.advance(layout.data_bytes(stripe));
        }
    })
}

/// Creates the output beside its destination, under a temporary name.
fn create(path: &Path, replace: bool) -> Result<Temporary> {
    let Some(file_name) = path.file_name().filter(|_| !path.as_os_str().as_bytes().ends_with(b"/")) else {
        return Err(Error::Invalid(format!("{} is not the name of a file", Shown(path))));
    };
    match path.symlink_metadata() {
        Ok(found) if found.is_dir() => {
            return Err(Error::Invalid(format!("{} is a directory; name a file in it", Shown(path))));
        }
        Ok(found) if !found.is_file() && !found.is_symlink() => {
            return Err(Error::Invalid(format!("{} exists and is not a regular file", Shown(path))));
        }
        Ok(_) if !replace => return Err(Error::exists(path)),
        Ok(_) | Err(_) => {}
    }
    let directory = Directory::open(path.parent().unwrap_or(Path::new("")))?;
    // The temporary name is longer than the final one, which may be as long as names can be.
    Temporary::create(&directory, &short(file_name), file_name, 0o600)
}

fn short(file_name: &OsStr) -> OsString {
    OsStr::from_bytes(&stem(file_name.as_bytes())).to_os_string()
}

fn set_attributes(temporary: &Temporary, header: &Header) -> Result<()> {
    let file = temporary.file();
    // Without the bits that would let others act as the user who decodes.
    let mode = Permissions::from_mode(header.mode & 0o777);
    file.set_permissions(mode).map_err(Error::io("set the mode of", temporary.destination()))?;
    if let (Some(modified), Some(accessed)) = (header.modified.system_time(), header.accessed.system_time()) {
        let times = FileTimes::new().set_modified(modified).set_accessed(accessed);
        file.set_times(times).map_err(Error::io("set the times of", temporary.destination()))?;
    }
    Ok(())
}
