//! Listings, in the byte order of keys. Keys that are no paths of `object_store` (`a//b`, `a/`),
//! which S3 clients can make, are left out.

use crate::attributes::{meta, path};
use crate::failure;
use crate::opened::VolumeStore;
use crate::runtime::blocking;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use object_store::list::{PaginatedListOptions, PaginatedListResult, PaginatedListStore};
use object_store::path::{DELIMITER, Path};
use object_store::{Extensions, ListResult, ObjectMeta, Result};
use objects::listing::Question;

/// Keys that are asked for at a time.
const PAGE: usize = 1000;

/// A page.
struct Listed {
    objects: Vec<ObjectMeta>,
    prefixes: Vec<Path>,
    /// Where the next one begins, if there is one.
    next: Option<String>,
}

/// What the keys below a path begin with.
fn below(prefix: Option<&Path>) -> String {
    match prefix.map_or("", |prefix| prefix.as_ref()) {
        "" => String::new(),
        prefix => format!("{prefix}{DELIMITER}"),
    }
}

impl VolumeStore {
    fn question(&self, prefix: String, delimiter: Option<String>, after: String) -> Question {
        Question { bucket: self.bucket.to_string(), prefix, delimiter, after }
    }

    async fn page(&self, question: Question, limit: usize) -> Result<Listed> {
        let (objects, listings) = (self.volume.objects.clone(), self.volume.listings.clone());
        let about = Path::from(question.prefix.as_str());
        let listed = blocking(move || {
            let page = listings.page(&objects, &question, limit)?;
            let mut found = Vec::with_capacity(page.keys.len());
            for key in &page.keys {
                let Some(path) = path(&key.key) else { continue };
                if let Some((file, about)) = key.found(&objects, &question.bucket)? {
                    found.push(meta(path, &file, &about));
                }
            }
            let prefix = |text: &String| path(text.strip_suffix(DELIMITER).unwrap_or(text));
            let prefixes = page.prefixes.iter().filter_map(prefix).collect();
            Ok(Listed { objects: found, prefixes, next: page.last })
        });
        listed.await.map_err(|why| failure::of(why, &about))
    }

    /// All objects below a path, behind another one.
    pub(crate) fn all(&self, prefix: Option<&Path>, after: String) -> BoxStream<'static, Result<ObjectMeta>> {
        let (store, question) = (self.clone(), self.question(below(prefix), None, after));
        stream::try_unfold(Some(question), move |question| {
            let store = store.clone();
            async move {
                let Some(question) = question else { return Ok(None) };
                let listed = store.page(question.clone(), PAGE).await?;
                let next = listed.next.map(|after| Question { after, ..question });
                Ok::<_, object_store::Error>(Some((stream::iter(listed.objects.into_iter().map(Ok)), next)))
            }
        })
        .try_flatten()
        .boxed()
    }

    /// The objects and the directories of a path.
    pub(crate) async fn level(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let (mut objects, mut common_prefixes) = (Vec::new(), Vec::new());
        let mut question = self.question(below(prefix), Some(DELIMITER.into()), String::new());
        loop {
            let listed = self.page(question.clone(), PAGE).await?;
            objects.extend(listed.objects);
            common_prefixes.extend(listed.prefixes);
            match listed.next {
                Some(next) => question.after = next,
                None => return Ok(ListResult { common_prefixes, objects, extensions: Extensions::default() }),
            }
        }
    }
}

#[async_trait::async_trait]
impl PaginatedListStore for VolumeStore {
    async fn list_paginated(&self, prefix: Option<&str>, opts: PaginatedListOptions) -> Result<PaginatedListResult> {
        let after = opts.page_token.max(opts.offset).unwrap_or_default();
        let delimiter = opts.delimiter.map(|text| text.into_owned());
        let question = self.question(prefix.unwrap_or_default().to_owned(), delimiter, after);
        let Listed { objects, prefixes, next } = self.page(question, opts.max_keys.unwrap_or(PAGE).min(PAGE)).await?;
        let result = ListResult { common_prefixes: prefixes, objects, extensions: Extensions::default() };
        Ok(PaginatedListResult { result, page_token: next })
    }
}
