//! The operations on what is set for a bucket.

use crate::gateway::Gateway;
use crate::policy::Policy;
use crate::settings::{self, CORS, LIFECYCLE, POLICY, Settings};
use crate::{cors, lifecycle};
use s3s::dto::{CORSRule, LifecycleRule};
use s3s::{S3Error, S3Result, s3_error};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;

fn bytes<T: Serialize>(rules: &T) -> S3Result<Vec<u8>> {
    serde_json::to_vec(rules).map_err(|_| s3_error!(InternalError))
}

impl Gateway {
    /// What is set for a bucket.
    pub async fn settings(&self, bucket: &str) -> S3Result<Arc<Settings>> {
        if let Some(settings) = self.known.fresh(bucket) {
            return Ok(settings);
        }
        let (known, bucket) = (self.known.clone(), bucket.to_owned());
        self.beside(move |objects| known.read(&bucket, || settings::read(objects, &bucket).map(Arc::new))).await
    }

    async fn set(&self, bucket: String, name: &'static [u8], value: Option<Vec<u8>>) -> S3Result<()> {
        let known = self.known.clone();
        self.beside(move |objects| {
            let done = settings::set(objects, &bucket, name, value.as_deref());
            known.forget(&bucket);
            done
        })
        .await
    }

    async fn stored(&self, bucket: String, name: &'static [u8]) -> S3Result<Option<Vec<u8>>> {
        self.beside(move |objects| settings::stored(objects, &bucket, name)).await
    }

    async fn rules<T: DeserializeOwned>(&self, bucket: String, name: &'static [u8], none: S3Error) -> S3Result<Vec<T>> {
        let stored = self.stored(bucket, name).await?.ok_or(none)?;
        serde_json::from_slice(&stored).map_err(|why| s3_error!(InternalError, "stored rules cannot be read: {why}"))
    }

    /// Sets a policy, or removes it.
    ///
    /// # Errors
    /// `MalformedPolicy`, `NoSuchBucket`.
    pub async fn set_policy(&self, bucket: String, policy: Option<String>) -> S3Result<()> {
        if let Some(text) = &policy {
            Policy::parse(text, &bucket).map_err(|why| s3_error!(MalformedPolicy, "{why}"))?;
        }
        self.set(bucket, POLICY, policy.map(String::into_bytes)).await
    }

    /// The policy.
    ///
    /// # Errors
    /// `NoSuchBucketPolicy`, `NoSuchBucket`.
    pub async fn policy(&self, bucket: String) -> S3Result<String> {
        let stored = self.stored(bucket, POLICY).await?;
        stored.and_then(|text| String::from_utf8(text).ok()).ok_or_else(|| s3_error!(NoSuchBucketPolicy))
    }

    /// Sets rules for pages of other sites, or removes them.
    ///
    /// # Errors
    /// `InvalidRequest`, `MalformedXML`, `NoSuchBucket`.
    pub async fn set_cors(&self, bucket: String, rules: Option<Vec<CORSRule>>) -> S3Result<()> {
        let rules = rules.map(cors::Rule::all_of).transpose()?;
        self.set(bucket, CORS, rules.as_ref().map(bytes).transpose()?).await
    }

    /// Rules for pages of other sites.
    ///
    /// # Errors
    /// `NoSuchCORSConfiguration`, `NoSuchBucket`.
    pub async fn cors(&self, bucket: String) -> S3Result<Vec<CORSRule>> {
        let rules = self.rules::<cors::Rule>(bucket, CORS, s3_error!(NoSuchCORSConfiguration)).await?;
        Ok(rules.iter().map(cors::Rule::shown).collect())
    }

    /// Sets rules of what ends by itself, or removes them.
    ///
    /// # Errors
    /// `NotImplemented`, `InvalidArgument`, `MalformedXML`, `NoSuchBucket`.
    pub async fn set_lifecycle(&self, bucket: String, rules: Option<Vec<LifecycleRule>>) -> S3Result<()> {
        let rules = rules.map(lifecycle::Rule::all_of).transpose()?;
        self.set(bucket, LIFECYCLE, rules.as_ref().map(bytes).transpose()?).await
    }

    /// Rules of what ends by itself.
    ///
    /// # Errors
    /// `NoSuchLifecycleConfiguration`, `NoSuchBucket`.
    pub async fn lifecycle(&self, bucket: String) -> S3Result<Vec<LifecycleRule>> {
        let rules = self.rules::<lifecycle::Rule>(bucket, LIFECYCLE, s3_error!(NoSuchLifecycleConfiguration)).await?;
        Ok(rules.iter().map(lifecycle::Rule::shown).collect())
    }
}
