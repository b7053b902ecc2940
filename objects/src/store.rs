//! Bytes become objects. A small object is held in memory and joins a batch; a large one goes into
//! stripes as it comes, at most a stripe of it in memory. Either way the file is whole before it
//! has a name, and a body that breaks off leaves nothing.

use crate::about::About;
use crate::batch::{Batches, add, described};
use crate::failure::{Code, Error, Result, error, failed};
use crate::place::{ATTEMPTS, Condition, Objects, now, whole};
use bytes::Bytes;
use fs::Ino;
use std::sync::Arc;

/// Objects up to this size should join a batch, in bytes.
pub const SMALL: u64 = 1 << 20;

/// Where a body goes.
#[derive(Clone, Debug)]
pub enum Target {
    /// It is an object.
    Object {
        /// Its bucket.
        bucket: String,
        /// Its key.
        key: String,
        /// What must hold when it becomes visible.
        condition: Condition,
    },
    /// It is a file with a name of its own.
    File {
        /// Its directory.
        parent: Ino,
        /// A name that nothing has.
        name: Vec<u8>,
    },
}

/// A large body, piece by piece.
pub trait Source {
    /// What can go wrong with it.
    type Failure: From<Error>;

    /// The next piece, when it is there; None at the end.
    ///
    /// # Errors
    /// When it breaks off.
    fn next(&mut self) -> Result<Option<Bytes>, Self::Failure>;

    /// What is kept of it, with its ETag, when all pieces were taken.
    ///
    /// # Errors
    /// When they are not what was said of them.
    fn about(self) -> Result<About, Self::Failure>;
}

/// Does work that waits for disks and servers on a thread for that.
///
/// # Errors
/// Those of the work.
pub async fn beside<T: Send + 'static>(
    objects: &Arc<Objects>,
    work: impl FnOnce(&Objects) -> Result<T> + Send + 'static,
) -> Result<T> {
    let objects = objects.clone();
    let done = tokio::task::spawn_blocking(move || work(&objects)).await;
    done.unwrap_or_else(|_| Err(error!(InternalError, "a defect ended the request")))
}

/// Stores a small body with what is kept of it. It is durable when this returns.
///
/// # Errors
/// `PreconditionFailed`, `NoSuchUpload` when the directory of a file is gone, and those of
/// [`Objects::aim`].
pub async fn put_small(
    objects: &Arc<Objects>,
    batches: &Batches,
    target: Target,
    about: &About,
    data: &Bytes,
) -> Result<()> {
    let put = async |parent, name| {
        let done = batches.put(parent, name, about.clone(), data.clone()).await;
        done.map_err(|why| Error::with_message(Code::InternalError, why))
    };
    let (bucket, key, condition) = match target {
        Target::File { parent, name } => {
            let gone = || error!(NoSuchUpload, "its directory is gone");
            return put(parent, name).await?.map(drop).ok_or_else(gone);
        }
        Target::Object { bucket, key, condition } => (bucket, key, condition),
    };
    for _ in 0..ATTEMPTS {
        let asked = (bucket.clone(), key.clone(), condition.clone());
        let aim = beside(objects, move |objects| objects.aim(&asked.0, &asked.1, &asked.2)).await?;
        if aim.replaced.is_none() {
            let Some(own) = put(aim.parent, aim.name).await? else { continue };
            let asked = key.clone();
            if beside(objects, move |objects| objects.alone(aim.parent, &asked, own, None)).await? {
                return Ok(());
            }
            continue;
        }
        let temporary = objects.unique();
        put(objects.home.temporary, temporary.clone()).await?;
        return beside(objects, move |objects| objects.name(&temporary, &bucket, &key, &condition)).await;
    }
    Err(error!(OperationAborted, "others change the same key"))
}

/// Writes a large body into stripes, and gives the file its name. `length` is what is said of its
/// size, in bytes. Returns what is kept of it, and its size, when it is durable. Blocks.
///
/// # Errors
/// Those of the source, `PreconditionFailed`, `NoSuchUpload` when the directory of a file is gone,
/// and those of [`Objects::aim`].
pub fn write<S: Source>(
    objects: &Objects,
    target: &Target,
    length: Option<u64>,
    mut source: S,
) -> Result<(About, u64), S::Failure> {
    let fs = &objects.fs;
    let fail = |error: fs::Error| failed(&error);
    let (parent, name) = match target {
        Target::Object { .. } => (objects.home.temporary, objects.unique()),
        Target::File { parent, name } => (*parent, name.clone()),
    };
    let ino = fs.new_inos(1).map_err(fail)?;
    let mut load = fs.bulk_load().map_err(fail)?;
    let begun = whole(ino, parent, name.clone(), About::default(), length.unwrap_or(0), now());
    load.begin(ino, described(&begun));
    let mut size = 0;
    while let Some(piece) = source.next()? {
        add(&mut load, size, &piece).map_err(fail)?;
        size += piece.len() as u64;
    }
    let about = source.about()?;
    load.finish(whole(ino, parent, name.clone(), about.clone(), size, now()));
    let refused = load.commit().map_err(fail)?.refused;
    if !refused.is_empty() {
        return Err(error!(NoSuchUpload, "its directory is gone").into());
    }
    if let Target::Object { bucket, key, condition } = target {
        objects.name(&name, bucket, key, condition)?;
    }
    Ok((about, size))
}
