//! What a key may do: everything, or only reading, in some buckets; or reading, writing and listing
//! what lies below given prefixes. A bucket's policy can add to that and take from it (`policy`).

use crate::policy::{Asked, Policy, Verdict};
use serde::{Deserialize, Serialize};

/// What a key may do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rights {
    /// It may not change anything.
    #[serde(default)]
    pub read_only: bool,
    /// It may use these buckets; all, if there are none here.
    #[serde(default)]
    pub buckets: Vec<String>,
    /// If any of these three has something, the key may do what they say and nothing else. Each is
    /// `BUCKET/PREFIX`, `BUCKET`, or `*` for everything. Objects that it may read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<String>,
    /// Objects that it may write and remove.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub write: Vec<String>,
    /// Prefixes that it may list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub list: Vec<String>,
}

/// Who asks.
#[derive(Clone, Debug, Default)]
pub struct Asker {
    /// The access key, and what it may do; None for a request without a signature.
    pub key: Option<(String, Rights)>,
}

/// What an operation is done to.
#[derive(Clone, Copy, Debug, Default)]
pub struct On<'a> {
    /// The bucket.
    pub bucket: &'a str,
    /// The object, if it is about one.
    pub object: Option<&'a str>,
    /// The prefix of a listing.
    pub prefix: Option<&'a str>,
}

/// Which right an operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    List,
    /// Looking at a bucket.
    Look,
    /// Of the owner of a bucket.
    Own,
}

/// The action of an operation in policies, and the right that it needs.
fn action(operation: &str) -> (String, Kind) {
    let (action, kind) = match operation {
        "GetObject" | "HeadObject" | "GetObjectAttributes" => ("GetObject", Kind::Read),
        "GetObjectTagging" => (operation, Kind::Read),
        "PutObject"
        | "CopyObject"
        | "CreateMultipartUpload"
        | "UploadPart"
        | "UploadPartCopy"
        | "CompleteMultipartUpload" => ("PutObject", Kind::Write),
        "ListParts" => ("ListMultipartUploadParts", Kind::Write),
        "DeleteObject" | "DeleteObjects" => ("DeleteObject", Kind::Write),
        "PutObjectTagging" | "DeleteObjectTagging" | "AbortMultipartUpload" => (operation, Kind::Write),
        "ListObjects" | "ListObjectsV2" => ("ListBucket", Kind::List),
        "ListMultipartUploads" => ("ListBucketMultipartUploads", Kind::List),
        "HeadBucket" => ("ListBucket", Kind::Look),
        "GetBucketLocation" | "GetBucketVersioning" => (operation, Kind::Look),
        "GetBucketCors" => ("GetBucketCORS", Kind::Own),
        "PutBucketCors" | "DeleteBucketCors" => ("PutBucketCORS", Kind::Own),
        "GetBucketLifecycleConfiguration" => ("GetLifecycleConfiguration", Kind::Own),
        "PutBucketLifecycleConfiguration" | "DeleteBucketLifecycle" => ("PutLifecycleConfiguration", Kind::Own),
        other => (other, Kind::Own),
    };
    (format!("s3:{action}"), kind)
}

/// Whether an operation only reads.
fn reads(operation: &str) -> bool {
    ["Get", "Head", "List"].iter().any(|word| operation.starts_with(word))
}

/// Whether one of some grants is of this key, or of keys with this prefix.
fn has(grants: &[String], bucket: &str, key: &str) -> bool {
    grants.iter().any(|grant| {
        let (of, prefix) = grant.split_once('/').unwrap_or((grant, ""));
        (of == "*" || of == bucket) && key.starts_with(prefix)
    })
}

impl Rights {
    fn has_grants(&self) -> bool {
        [&self.read, &self.write, &self.list].iter().any(|grants| !grants.is_empty())
    }

    /// Whether it may use something of a bucket.
    pub fn sees(&self, bucket: &str) -> bool {
        if self.has_grants() {
            let mut grants = [&self.read, &self.write, &self.list].into_iter().flatten();
            return grants.any(|grant| matches!(grant.split('/').next(), Some(of) if of == "*" || of == bucket));
        }
        self.buckets.is_empty() || self.buckets.iter().any(|own| own == bucket)
    }

    fn allow(&self, operation: &str, kind: Kind, on: &On<'_>) -> bool {
        if !self.has_grants() {
            return (!self.read_only || reads(operation)) && self.sees(on.bucket);
        }
        let key = on.object.unwrap_or_default();
        match kind {
            Kind::Read => has(&self.read, on.bucket, key),
            Kind::Write => has(&self.write, on.bucket, key),
            Kind::List => has(&self.list, on.bucket, on.prefix.unwrap_or_default()),
            Kind::Look => self.sees(on.bucket),
            Kind::Own => false,
        }
    }

    /// What they are sealed with beside the key's name: old ones as in versions without grants.
    pub fn sealed_text(&self) -> String {
        let mut text = format!("{}\n{}", self.read_only, self.buckets.join("\n"));
        for (kind, grants) in [("read", &self.read), ("write", &self.write), ("list", &self.list)] {
            if !grants.is_empty() {
                // No name has a byte 0.
                text = format!("{text}\0{kind}\n{}", grants.join("\n"));
            }
        }
        text
    }
}

impl Asker {
    /// Whether it may do an operation whatever the policy of the bucket says, and also if nobody
    /// can read that: so that nobody locks himself out.
    pub fn may_always(&self, operation: &str) -> bool {
        let is_about_policy = matches!(operation, "GetBucketPolicy" | "PutBucketPolicy" | "DeleteBucketPolicy");
        is_about_policy && self.key.as_ref().is_some_and(|(_, rights)| *rights == Rights::default())
    }

    /// Whether it may do an operation to something in a bucket that has this policy, unless it may
    /// always.
    pub fn may(&self, operation: &str, on: &On<'_>, policy: Option<&Policy>) -> bool {
        let (action, kind) = action(operation);
        let key = self.key.as_ref().map(|(id, _)| &**id);
        let rights = self.key.as_ref().map(|(_, rights)| rights);
        let by_key = rights.is_some_and(|rights| rights.allow(operation, kind, on));
        let asked = Asked { key, action: &action, bucket: on.bucket, object: on.object, prefix: on.prefix };
        match policy.map_or(Verdict::Silent, |policy| policy.verdict(&asked)) {
            Verdict::Denied => false,
            Verdict::Allowed => true,
            Verdict::Silent => by_key,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on<'a>(bucket: &'a str, object: Option<&'a str>) -> On<'a> {
        On { bucket, object, prefix: None }
    }

    fn list<'a>(bucket: &'a str, prefix: &'a str) -> On<'a> {
        On { bucket, object: None, prefix: Some(prefix) }
    }

    fn of(rights: Rights) -> Asker {
        Asker { key: Some(("K".into(), rights)) }
    }

    fn texts(all: &[&str]) -> Vec<String> {
        all.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn operations_that_read_begin_so() {
        assert!(reads("GetObject") && reads("ListBuckets") && reads("HeadBucket"));
        assert!(!reads("PutObject") && !reads("DeleteObjects") && !reads("UploadPartCopy"));
    }

    #[test]
    fn grants_are_by_bucket_and_prefix() {
        let rights = Rights {
            read: texts(&["films/2024/", "other"]),
            write: texts(&["films/2024/new"]),
            list: texts(&["films/2024/"]),
            ..Rights::default()
        };
        let asker = of(rights.clone());
        for (operation, on) in [
            ("GetObject", on("films", Some("2024/a"))),
            ("HeadObject", on("other", Some("a"))),
            ("UploadPart", on("films", Some("2024/new/a"))),
            ("DeleteObject", on("films", Some("2024/newer"))),
            ("ListObjectsV2", list("films", "2024/a")),
            ("HeadBucket", on("other", None)),
        ] {
            assert!(asker.may(operation, &on, None), "{operation} {on:?}");
        }
        for (operation, on) in [
            ("GetObject", on("films", Some("2025/a"))),
            ("PutObject", on("films", Some("2024/a"))),
            ("PutObject", on("other", Some("a"))),
            ("ListObjects", list("films", "")),
            ("ListObjects", list("other", "")),
            ("CreateBucket", on("films", None)),
            ("PutBucketPolicy", on("films", None)),
            ("HeadBucket", on("third", None)),
        ] {
            assert!(!asker.may(operation, &on, None), "{operation} {on:?}");
        }
        assert!(rights.sees("films") && rights.sees("other") && !rights.sees("third"));
        let all = of(Rights { read: texts(&["*"]), ..Rights::default() });
        assert!(
            all.may("GetObject", &on("any", Some("a")), None) && !all.may("PutObject", &on("any", Some("a")), None)
        );
    }

    #[test]
    fn a_policy_adds_to_rights_and_takes_from_them() {
        let policy = Policy::parse(
            r#"{"Statement":[
              {"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::b/open/*"},
              {"Effect":"Deny","Principal":{"AWS":"K"},"Action":"s3:*","Resource":["arn:aws:s3:::b","arn:aws:s3:::b/*"]}
            ]}"#,
            "b",
        )
        .unwrap();
        let nobody = Asker::default();
        assert!(nobody.may("GetObject", &on("b", Some("open/a")), Some(&policy)));
        assert!(!nobody.may("GetObject", &on("b", Some("a")), Some(&policy)));
        assert!(!nobody.may("GetObject", &on("b", Some("open/a")), None));
        let denied = of(Rights::default());
        assert!(!denied.may("GetObject", &on("b", Some("open/a")), Some(&policy)));
        assert!(denied.may_always("DeleteBucketPolicy"), "nobody locks himself out");
        let reader = of(Rights { read_only: true, ..Rights::default() });
        assert!(!reader.may_always("DeleteBucketPolicy") && !denied.may_always("PutObject"));
    }

    #[test]
    fn sealed_texts_tell_all_rights_apart() {
        let all = [
            Rights::default(),
            Rights { buckets: texts(&["read", "a"]), ..Rights::default() },
            Rights { read: texts(&["a"]), ..Rights::default() },
            Rights { write: texts(&["a"]), ..Rights::default() },
            Rights { read: texts(&["a"]), write: texts(&["a"]), ..Rights::default() },
        ];
        let texts: std::collections::BTreeSet<String> = all.iter().map(Rights::sealed_text).collect();
        assert_eq!(texts.len(), all.len());
        assert_eq!(all[1].sealed_text(), "false\nread\na", "as before there were grants");
    }
}
