//! What several operations do alike.

use crate::about::ATTRIBUTE;
use crate::gateway::Gateway;
use crate::home::is_missing;
use crate::multipart::{self, MAX_PARTS};
use crate::objects::answer;
use crate::put::Target;
use crate::{headers, sweep};
use s3s::{S3Result, s3_error};

impl Gateway {
    /// Where a part of an upload goes.
    ///
    /// # Errors
    /// `NoSuchUpload`, `InvalidArgument`.
    pub async fn part(&self, bucket: String, key: String, id: String, number: i32) -> S3Result<Target> {
        if !(1..=MAX_PARTS).contains(&number) {
            return Err(s3_error!(InvalidArgument, "a part has a number from 1 to 10000"));
        }
        self.beside(move |objects| {
            let (parent, _) = multipart::find(objects, &bucket, &key, &id)?;
            Ok(Target::File { parent, name: multipart::part_name(objects, number) })
        })
        .await
    }

    /// Sets the tags of an object.
    ///
    /// # Errors
    /// `NoSuchKey`, `InvalidTag`.
    pub async fn set_tags(&self, bucket: String, key: String, given: Vec<(String, String)>) -> S3Result<()> {
        let tags = headers::tags(given)?;
        self.beside(move |objects| {
            let (found, mut about) = objects.get(&bucket, &key)?;
            about.tags = tags;
            let about = about.of(found.file.size, found.file.modified);
            match objects.fs.set_attribute(found.file.ino, ATTRIBUTE, &about.encode(), None) {
                Ok(()) => objects.settle(found.parent),
                Err(error) if is_missing(&error) => Err(s3_error!(NoSuchKey)),
                Err(error) => Err(answer(error)),
            }
        })
        .await
    }

    /// Removes what is left of uploads, without anybody waiting for it.
    pub fn sweep_soon(&self) {
        let (objects, sweeping) = (self.objects.clone(), self.sweeping.clone());
        drop(tokio::task::spawn_blocking(move || {
            // What another one has passed by, and what fails, is left to the next.
            if let Ok(_one_at_a_time) = sweeping.try_lock() {
                let _ = sweep::sweep(&objects, false, None);
            }
        }));
    }
}
