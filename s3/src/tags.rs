//! Tags of objects.

use crate::failure::answer;
use crate::gateway::Gateway;
use objects::ATTEMPTS;
use objects::about::ATTRIBUTE;
use objects::home::is_missing;
use s3s::{S3Result, s3_error};

impl Gateway {
    /// Sets the tags of an object.
    ///
    /// # Errors
    /// `NoSuchKey`, `InvalidTag`.
    pub async fn set_tags(&self, bucket: String, key: String, given: Vec<(String, String)>) -> S3Result<()> {
        let tags = objects::about::tags(given)?;
        self.beside(move |objects| {
            for _ in 0..ATTEMPTS {
                let (found, mut about) = objects.get(&bucket, &key)?;
                about.tags.clone_from(&tags);
                let about = about.of(found.file.size, found.file.modified);
                match objects.fs.set_attribute(found.file.ino, ATTRIBUTE, &about.encode(), None) {
                    Ok(()) => return Ok(objects.settle(found.parent)?),
                    // Another one replaced it meanwhile.
                    Err(error) if is_missing(&error) => {}
                    Err(error) => return Err(answer(error)),
                }
            }
            Err(s3_error!(OperationAborted, "others change the same key"))
        })
        .await
    }
}
