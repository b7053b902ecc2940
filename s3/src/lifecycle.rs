//! Objects and uploads that end by themselves: rules of a bucket say after how many days. One
//! gateway of a volume carries them out at a time, which a file with a time in it says.

use crate::failure::{answer, failed};
use crate::settings;
use fs::{Attributes, FileKind, RenameMode};
use objects::home::{is_missing, new};
use objects::listing::{Listings, Question};
use objects::multipart;
use objects::{Objects, is_overtaken};
use s3s::dto::{
    AbortIncompleteMultipartUpload, ExpirationStatus, LifecycleExpiration, LifecycleRule, LifecycleRuleFilter,
};
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};
use serde::{Deserialize, Serialize};

const DAY: i64 = 24 * 3600;
/// The most rules.
const MAX_RULES: usize = 1000;
/// How many objects are looked at between two looks at the time.
const STEP: usize = 1000;
/// The file of the gateway that carries rules out.
const TURN: &[u8] = b"lifecycle";
/// A gateway that did not say that it goes on for this time has ended, in seconds.
const TURN_FOR: i64 = 15 * 60;
/// A run ends after this many objects and uploads that could not be removed.
const MAX_FAILURES: usize = 100;

/// A rule, as it is stored. With what a newer version says, it could mean less: then none of the
/// rules is carried out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rule {
    id: Option<String>,
    enabled: bool,
    prefix: String,
    /// After how many days objects end.
    days: Option<u32>,
    /// After how many days uploads end that nobody completed.
    upload_days: Option<u32>,
}

impl Rule {
    /// Rules that a client puts.
    ///
    /// # Errors
    /// `MalformedXML`, `InvalidArgument`; `NotImplemented` for what would have no effect.
    pub fn all_of(given: Vec<LifecycleRule>) -> S3Result<Vec<Self>> {
        if given.is_empty() || given.len() > MAX_RULES {
            return Err(s3_error!(MalformedXML, "there are 1 to {MAX_RULES} rules"));
        }
        given.into_iter().map(Self::of).collect()
    }

    fn of(given: LifecycleRule) -> S3Result<Self> {
        let has_versions =
            given.noncurrent_version_expiration.is_some() || given.noncurrent_version_transitions.is_some();
        if has_versions || given.transitions.is_some() {
            return Err(s3_error!(NotImplemented, "a rule has no transitions, and nothing of versions"));
        }
        let LifecycleRuleFilter { and, prefix, tag, object_size_greater_than, object_size_less_than } =
            given.filter.unwrap_or_default();
        let is_by_more = tag.is_some() || object_size_greater_than.is_some() || object_size_less_than.is_some();
        if is_by_more || and.is_some() {
            return Err(s3_error!(NotImplemented, "a filter is a prefix: tags and sizes are not implemented"));
        }
        let expiration = given.expiration.unwrap_or_default();
        if expiration.date.is_some() || expiration.expired_object_delete_marker.is_some() {
            return Err(s3_error!(NotImplemented, "an expiration has Days, not Date or delete markers"));
        }
        let abort = given.abort_incomplete_multipart_upload.unwrap_or_default().days_after_initiation;
        let rule = Self {
            id: given.id,
            enabled: given.status.as_str() == ExpirationStatus::ENABLED,
            prefix: prefix.or(given.prefix).unwrap_or_default(),
            days: days(expiration.days)?,
            upload_days: days(abort)?,
        };
        if rule.days.is_none() && rule.upload_days.is_none() {
            return Err(s3_error!(MalformedXML, "a rule says when something ends"));
        }
        Ok(rule)
    }

    /// As an answer has it.
    pub fn shown(&self) -> LifecycleRule {
        let status = if self.enabled { ExpirationStatus::ENABLED } else { ExpirationStatus::DISABLED };
        let shown = |days: u32| days.try_into().ok();
        LifecycleRule {
            abort_incomplete_multipart_upload: self
                .upload_days
                .map(|days| AbortIncompleteMultipartUpload { days_after_initiation: shown(days) }),
            expiration: self.days.map(|days| LifecycleExpiration { days: shown(days), ..Default::default() }),
            filter: Some(LifecycleRuleFilter { prefix: Some(self.prefix.clone()), ..Default::default() }),
            id: self.id.clone(),
            noncurrent_version_expiration: None,
            noncurrent_version_transitions: None,
            prefix: None,
            status: ExpirationStatus::from_static(status),
            transitions: None,
        }
    }
}

fn days(given: Option<i32>) -> S3Result<Option<u32>> {
    let Some(days) = given else { return Ok(None) };
    let days = u32::try_from(days).ok().filter(|days| *days > 0);
    days.map(Some).ok_or_else(|| s3_error!(InvalidArgument, "days are a positive number"))
}

/// Whether what began at a time has ended after that many days: at the next midnight, UTC, as S3
/// has it. Times are seconds since 1970.
pub fn has_ended(begun: i64, days: u32, now: i64) -> bool {
    let end = begun.saturating_add(i64::from(days) * DAY);
    now >= end.saturating_add(DAY - 1).div_euclid(DAY).saturating_mul(DAY)
}

/// What a run did.
#[derive(Debug, Default)]
pub struct Done {
    /// How many objects and uploads ended.
    pub ended: usize,
    /// What failed first, and of which bucket. The others were carried out.
    pub failed: Option<(String, S3Error)>,
}

/// Carries out the rules of all buckets, if no other gateway does, until this one ends. `clock`
/// returns seconds since 1970.
///
/// # Errors
/// When the buckets cannot be listed, or no gateway can say that it does it.
pub fn run(objects: &Objects, listings: &Listings, clock: &dyn Fn() -> i64) -> S3Result<Done> {
    let mut run = Run { objects, listings, clock, failures: 0, done: Done::default() };
    let mut turn = None::<Turn<'_>>;
    for bucket in crate::reading::buckets(objects)?.into_iter().filter_map(|bucket| bucket.name) {
        if run.is_over() {
            break;
        }
        let stored = run.kept(&bucket, settings::stored(objects, &bucket, settings::LIFECYCLE)).flatten();
        let Some(stored) = stored else { continue };
        let rules = serde_json::from_slice(&stored);
        let rules = rules.map_err(|why| s3_error!(InternalError, "its rules cannot be read: {why}"));
        let Some(rules) = run.kept::<Vec<Rule>>(&bucket, rules) else { continue };
        // A volume without rules has no such file.
        if turn.is_none() {
            turn = Turn::take(objects, clock())?;
        }
        let Some(turn) = &mut turn else { break };
        for rule in rules.iter().filter(|rule| rule.enabled) {
            let carried_out = run.objects_of(&bucket, rule, turn);
            run.kept(&bucket, carried_out);
            let carried_out = run.uploads_of(&bucket, rule, turn);
            run.kept(&bucket, carried_out);
            if !run.goes_on(turn)? {
                return Ok(run.done);
            }
        }
    }
    Ok(run.done)
}

struct Run<'a> {
    objects: &'a Objects,
    listings: &'a Listings,
    clock: &'a dyn Fn() -> i64,
    failures: usize,
    done: Done,
}

impl Run<'_> {
    /// What was done; None if it failed, which is noted. A bucket that was removed since is no
    /// failure.
    fn kept<T>(&mut self, bucket: &str, done: S3Result<T>) -> Option<T> {
        let why = match done {
            Ok(done) => return Some(done),
            Err(why) if why.code() == &S3ErrorCode::NoSuchBucket => return None,
            Err(why) => why,
        };
        self.failures += 1;
        self.done.failed.get_or_insert_with(|| (bucket.to_owned(), why));
        None
    }

    /// Whether the gateway ends, or too much failed.
    fn is_over(&self) -> bool {
        self.failures >= MAX_FAILURES || self.objects.is_ending()
    }

    /// Whether this gateway may go on now.
    fn goes_on(&self, turn: &mut Turn<'_>) -> S3Result<bool> {
        Ok(!self.is_over() && turn.goes_on((self.clock)())?)
    }

    fn objects_of(&mut self, bucket: &str, rule: &Rule, turn: &mut Turn<'_>) -> S3Result<()> {
        let Some(days) = rule.days else { return Ok(()) };
        let mut question =
            Question { bucket: bucket.into(), prefix: rule.prefix.clone(), delimiter: None, after: String::new() };
        let before = self.done.ended;
        loop {
            let page = self.listings.page(self.objects, &question, STEP)?;
            if !self.goes_on(turn)? {
                break;
            }
            let now = (self.clock)();
            let is_old = |file: &Attributes| has_ended(file.modified.seconds.max(file.created.seconds), days, now);
            for key in page.keys.iter().filter(|key| is_old(&key.file)) {
                if self.is_over() {
                    break;
                }
                let removed = self.objects.remove_if(bucket, &key.key, is_old);
                self.done.ended += usize::from(self.kept(bucket, removed.map_err(S3Error::from)).unwrap_or_default());
            }
            match page.last.filter(|_| !self.is_over()) {
                Some(last) => question.after = last,
                None => break,
            }
        }
        if self.done.ended > before {
            self.objects.settle(self.objects.bucket(bucket)?.ino)?;
        }
        Ok(())
    }

    fn uploads_of(&mut self, bucket: &str, rule: &Rule, turn: &mut Turn<'_>) -> S3Result<()> {
        let Some(days) = rule.upload_days else { return Ok(()) };
        let now = (self.clock)();
        for (id, upload) in multipart::uploads(self.objects, bucket)? {
            let is_old = upload.key.starts_with(&rule.prefix) && has_ended(upload.begun, days, now);
            if !is_old {
                continue;
            }
            if !self.goes_on(turn)? {
                break;
            }
            let dropped = multipart::drop_upload(self.objects, &id);
            self.done.ended += usize::from(self.kept(bucket, dropped.map_err(S3Error::from)).is_some());
        }
        Ok(())
    }
}

/// This gateway carries the rules out, until this is dropped.
struct Turn<'a> {
    objects: &'a Objects,
    file: fs::Ino,
    said: i64,
}

impl<'a> Turn<'a> {
    /// None when another gateway does it.
    fn take(objects: &'a Objects, now: i64) -> S3Result<Option<Self>> {
        let home = objects.home;
        let temporary = objects.unique();
        let from = (home.temporary, &temporary[..]);
        let to = (home.home, TURN);
        let made = objects.fs.make(from.0, from.1, &new(FileKind::File, 0o600)).map_err(answer)?;
        let taken = || -> fs::Result<bool> {
            stamp(objects, made.ino, now)?;
            let there = match objects.fs.lookup(to.0, to.1) {
                Ok(there) => there,
                Err(error) if is_missing(&error) => {
                    objects.fs.rename(from, to, RenameMode::NoReplace)?;
                    return Ok(true);
                }
                Err(error) => return Err(error),
            };
            // One that is far ahead was made by a clock that was wrong.
            if now.abs_diff(there.modified.seconds) < TURN_FOR.unsigned_abs() {
                return Ok(false);
            }
            // Of several that find an old one, one replaces it.
            objects.fs.replace(from, to, there.ino).map(|()| true)
        };
        let taken = taken();
        if !matches!(taken, Ok(true)) {
            let _ = objects.fs.unlink(from.0, from.1);
        }
        match taken {
            Ok(taken) => Ok(taken.then_some(Self { objects, file: made.ino, said: now })),
            Err(error) if is_overtaken(&error) => Ok(None),
            Err(error) => Err(failed(&error)),
        }
    }

    /// Says that it goes on. False when another one has taken it since.
    fn goes_on(&mut self, now: i64) -> S3Result<bool> {
        let home = self.objects.home.home;
        let is_own = self.objects.entry(home, TURN)?.is_some_and(|there| there.ino == self.file);
        if is_own && now.saturating_sub(self.said) > TURN_FOR / 4 {
            stamp(self.objects, self.file, now).map_err(answer)?;
            self.said = now;
        }
        Ok(is_own)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let _ = self.objects.fs.unlink_file(self.objects.home.home, TURN, self.file);
    }
}

fn stamp(objects: &Objects, file: fs::Ino, now: i64) -> fs::Result<()> {
    let at = fs::SetTime::To(fs::Time { seconds: now, nanoseconds: 0 });
    objects.fs.set_attributes(file, fs::SetAttributes { modified: Some(at), ..Default::default() }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_end_at_midnight() {
        // It began at noon of the first day; one day later is noon of the second.
        let begun = 10 * DAY + DAY / 2;
        assert!(!has_ended(begun, 1, begun + DAY));
        assert!(!has_ended(begun, 1, 12 * DAY - 1));
        assert!(has_ended(begun, 1, 12 * DAY));
        assert!(has_ended(10 * DAY, 1, 11 * DAY) && !has_ended(10 * DAY, 1, 11 * DAY - 1));
        assert!(!has_ended(i64::MAX, u32::MAX, 0));
    }

    #[test]
    fn rules_that_would_have_no_effect_are_refused() {
        let whole = Rule { prefix: "a/".into(), days: Some(3), enabled: true, ..Rule::default() };
        assert_eq!(Rule::of(whole.shown()).unwrap(), whole);
        let tag = Some(s3s::dto::Tag { key: Some("a".into()), value: Some("b".into()) });
        let filter = Some(LifecycleRuleFilter { tag, ..Default::default() });
        assert!(Rule::of(LifecycleRule { filter, ..whole.shown() }).is_err());
        assert!(Rule::of(LifecycleRule { transitions: Some(Vec::new()), ..whole.shown() }).is_err());
        assert!(Rule::of(LifecycleRule { expiration: None, ..whole.shown() }).is_err());
        let expiration = Some(LifecycleExpiration { days: Some(0), ..Default::default() });
        assert!(Rule::of(LifecycleRule { expiration, ..whole.shown() }).is_err());
        assert!(Rule::all_of(Vec::new()).is_err());
    }
}
