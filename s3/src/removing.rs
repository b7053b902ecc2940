//! Removing many objects by one request.

use crate::asked::unversioned;
use crate::gateway::Gateway;
use crate::permits::no_signature;
use crate::reading;
use crate::rights::Asker;
use hyper::http::Extensions;
use objects::Condition;
use s3s::dto::{Delete, DeleteObjectsInput, DeleteObjectsOutput, DeletedObject, Error};
use s3s::{S3Result, s3_error};

impl Gateway {
    /// Removes the objects that may be removed, and says why others were not.
    ///
    /// # Errors
    /// `MalformedXML`, `NoSuchBucket`; `AccessDenied` for who has no key and may remove none.
    pub async fn remove_many(&self, input: DeleteObjectsInput, asker: &Extensions) -> S3Result<DeleteObjectsOutput> {
        let DeleteObjectsInput { bucket, delete: Delete { objects: wanted, quiet }, .. } = input;
        if wanted.len() > reading::MAX_KEYS as usize {
            return Err(s3_error!(MalformedXML, "a request removes 1000 keys at most"));
        }
        let mut permits = Vec::with_capacity(wanted.len());
        for wanted in &wanted {
            permits.push(self.permit(asker, "DeleteObject", (&bucket, &wanted.key)).await);
        }
        // Who has no key and may remove none of them learns nothing of the bucket.
        let has_no_key = asker.get::<Asker>().is_some_and(|asker| asker.key.is_none());
        if has_no_key && permits.iter().all(Result::is_err) {
            return Err(no_signature());
        }
        let removed = self.beside(move |objects| {
            let directory = objects.bucket(&bucket)?.ino;
            let (mut deleted, mut errors) = (Vec::new(), Vec::new());
            for (wanted, permit) in wanted.into_iter().zip(permits) {
                let condition = match &wanted.e_tag {
                    Some(tag) => Condition::Matches(tag.value().to_owned()),
                    None => Condition::Always,
                };
                let done = permit
                    .and_then(|()| unversioned(wanted.version_id.as_ref()))
                    .and_then(|()| Ok(objects.remove(&bucket, &wanted.key, &condition)?));
                let key = Some(wanted.key);
                match done {
                    Ok(()) => deleted.push(DeletedObject { key, ..Default::default() }),
                    Err(why) => errors.push(Error {
                        code: Some(why.code().as_str().to_owned()),
                        message: why.message().map(str::to_owned),
                        key,
                        version_id: None,
                    }),
                }
            }
            if !deleted.is_empty() {
                objects.settle(directory)?;
            }
            Ok((deleted, errors))
        });
        let (deleted, errors) = removed.await?;
        let deleted = (quiet != Some(true)).then_some(deleted);
        Ok(DeleteObjectsOutput { deleted, errors: Some(errors), ..Default::default() })
    }
}
