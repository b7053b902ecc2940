//! Objects from the bytes of other objects. The stripes are shared: a copy, and the completion of a
//! multipart upload, change metadata only, whatever the size.

use crate::about::{ATTRIBUTE, About};
use crate::failure::{Result, error, failed, is};
use crate::home::is_missing;
use crate::place::{Condition, Objects, now, whole};
use fs::{Attributes, Ino, SetAttributes, SetTime};
use rustix::io::Errno;
use std::ops::Range;

/// A range of a file.
pub type Source = (Ino, Range<u64>);

/// Where the joined bytes go.
pub enum To<'a> {
    /// An object.
    Object {
        /// Its bucket.
        bucket: &'a str,
        /// Its key.
        key: &'a str,
        /// What must hold.
        condition: &'a Condition,
    },
    /// A file of this directory and name.
    File(Ino, Vec<u8>),
}

/// Makes a file of ranges of others, one behind the other, and gives it its name when it is whole.
/// It is durable then. `of` are the files that `about` is of, as they were.
///
/// # Errors
/// `NoSuchKey` when a source is gone or shorter by now; `OperationAborted` when a file of `of` was
/// changed; those of [`Objects::name`].
pub fn join(objects: &Objects, sources: &[Source], of: &[Attributes], about: &About, to: To<'_>) -> Result<u64> {
    let fs = &objects.fs;
    let fail = |error: fs::Error| failed(&error);
    let temporary = objects.unique();
    let home = objects.home.temporary;
    let ino = fs.new_inos(1).map_err(fail)?;
    fs.put_files(&[whole(ino, home, temporary.clone(), About::default(), 0, now())]).map_err(fail)?;
    let filled = || -> Result<u64> {
        let size = fs.join(sources, ino).map_err(|error| {
            let changed = is(&error, Errno::INVAL) || is(&error, Errno::STALE) || is_missing(&error);
            if changed { error!(NoSuchKey, "the source changed meanwhile") } else { failed(&error) }
        })?;
        for before in of {
            let after = fs.attributes(before.ino).map_err(fail)?;
            if (after.size, after.modified) != (before.size, before.modified) {
                return Err(error!(OperationAborted, "the source was changed while it was copied"));
            }
        }
        let at = now();
        let times = SetAttributes { modified: Some(SetTime::To(at)), ..SetAttributes::default() };
        fs.set_attributes(ino, times).map_err(fail)?;
        let kept = about.clone().of(size, at).encode();
        fs.set_attribute(ino, ATTRIBUTE, &kept, None).map_err(fail)?;
        fs.sync(ino).map_err(fail)?;
        Ok(size)
    };
    let size = filled().inspect_err(|_| _ = fs.unlink(home, &temporary))?;
    match to {
        To::Object { bucket, key, condition } => objects.name(&temporary, bucket, key, condition)?,
        To::File(parent, name) => {
            fs.rename((home, &temporary), (parent, &name), fs::RenameMode::NoReplace).map_err(fail)?;
            objects.settle(parent)?;
        }
    }
    Ok(size)
}
