//! Whether somebody may do an operation: by the rights of the key and the policy of the bucket.

use crate::gateway::Gateway;
use crate::headers::TAGGING;
use crate::rights::{Asker, On};
use hyper::HeaderMap;
use hyper::http::Extensions;
use s3s::{S3Error, S3Result, s3_error};

/// The answer to a request without a signature.
pub fn no_signature() -> S3Error {
    s3_error!(AccessDenied, "the request is not signed")
}

impl Gateway {
    /// Whether somebody may do an operation.
    ///
    /// # Errors
    /// `AccessDenied`, also when there is a policy that cannot be read.
    pub async fn allow(&self, asker: &Asker, operation: &str, on: &On<'_>) -> S3Result<()> {
        if asker.may_always(operation) {
            return Ok(());
        }
        let settings = self.settings(on.bucket).await?;
        let unreadable = |why| s3_error!(AccessDenied, "the policy of the bucket cannot be read: {why}");
        let policy = settings.policy.as_ref().map_err(unreadable)?;
        match (asker.may(operation, on, policy.as_ref()), &asker.key) {
            (true, _) => Ok(()),
            (false, None) => Err(no_signature()),
            (false, Some(_)) => Err(s3_error!(AccessDenied, "{operation} is not allowed for this key")),
        }
    }

    /// Whether who asks may do an operation to an object, too.
    ///
    /// # Errors
    /// `AccessDenied`.
    pub async fn permit(&self, asker: &Extensions, operation: &str, (bucket, key): (&str, &str)) -> S3Result<()> {
        // Who asks is known of every request that comes by a connection.
        let Some(asker) = asker.get::<Asker>() else { return Ok(()) };
        self.allow(asker, operation, &On { bucket, object: Some(key), prefix: None }).await
    }

    /// Whether who writes an object may give it the tags that the request has, if it has some.
    ///
    /// # Errors
    /// `AccessDenied`.
    pub async fn permit_tags(&self, asker: &Extensions, headers: &HeaderMap, to: (&str, &str)) -> S3Result<()> {
        match headers.contains_key(TAGGING) {
            true => self.permit(asker, "PutObjectTagging", to).await,
            false => Ok(()),
        }
    }

    /// Whether somebody may remove an object of a bucket, for all that can be known before the
    /// request's body is: without a key, only if a policy allows something to everybody.
    ///
    /// # Errors
    /// `AccessDenied`.
    pub async fn may_remove_some(&self, asker: &Asker, bucket: &str) -> S3Result<()> {
        if asker.key.is_some() {
            return Ok(());
        }
        let settings = self.settings(bucket).await?;
        let is_public = matches!(&settings.policy, Ok(Some(policy)) if policy.is_public());
        if is_public { Ok(()) } else { Err(no_signature()) }
    }
}
