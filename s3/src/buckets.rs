//! Buckets are directories.

use crate::failure::{answer, failed, is};
use fs::{FileKind, Ino};
use objects::Objects;
use objects::home::new;
use objects::multipart::entries;
use rustix::io::Errno;
use s3s::path::check_bucket_name;
use s3s::{S3Result, s3_error};

/// Makes a bucket. Its name follows the rules of S3, though directories of other names are buckets,
/// too.
///
/// # Errors
/// `InvalidBucketName`, `BucketAlreadyOwnedByYou`.
pub fn create(objects: &Objects, bucket: &str) -> S3Result<()> {
    if !check_bucket_name(bucket) {
        return Err(s3_error!(InvalidBucketName));
    }
    match objects.fs.make(objects.home.root, bucket.as_bytes(), &new(FileKind::Directory, 0o755)) {
        Ok(_) => Ok(objects.settle(objects.home.root)?),
        Err(error) if is(&error, Errno::EXIST) => Err(s3_error!(BucketAlreadyOwnedByYou)),
        Err(error) => Err(failed(&error)),
    }
}

/// Removes a bucket without objects. Directories without files are no objects.
///
/// # Errors
/// `NoSuchBucket`, `BucketNotEmpty`.
pub fn delete(objects: &Objects, bucket: &str) -> S3Result<()> {
    let directory = objects.bucket(bucket)?.ino;
    if !is_empty(objects, directory)? {
        return Err(s3_error!(BucketNotEmpty));
    }
    drop_empty(objects, objects.home.root, bucket.as_bytes(), directory)?;
    Ok(objects.settle(objects.home.root)?)
}

/// Whether there are only directories in a directory.
fn is_empty(objects: &Objects, directory: Ino) -> S3Result<bool> {
    for (_, file) in entries(objects, directory).map_err(answer)? {
        if file.kind != FileKind::Directory || !is_empty(objects, file.ino)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Removes a directory and those in it. One that got a file meanwhile stays.
fn drop_empty(objects: &Objects, parent: Ino, name: &[u8], directory: Ino) -> S3Result<()> {
    for (name, file) in entries(objects, directory).map_err(answer)? {
        drop_empty(objects, directory, &name, file.ino)?;
    }
    match objects.fs.remove_directory(parent, name) {
        Ok(()) => Ok(()),
        Err(error) if is(&error, Errno::NOTEMPTY) || is(&error, Errno::NOTDIR) => Err(s3_error!(BucketNotEmpty)),
        Err(error) => Err(failed(&error)),
    }
}
