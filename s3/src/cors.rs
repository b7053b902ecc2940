//! Which pages of other sites may use a bucket from a browser (the protocol of the Fetch standard,
//! "CORS protocol", with the rules of S3). What a request may do is decided elsewhere: this says
//! what the browser may show to the page. Functions of their arguments, nothing else.

use crate::policy::like;
use hyper::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, HeaderName, HeaderValue, ORIGIN, VARY,
};
use hyper::{HeaderMap, Method, Uri};
use objects::text::decode;
use s3s::dto::CORSRule;
use s3s::{S3Result, s3_error};
use serde::{Deserialize, Serialize};

/// The most rules.
const MAX_RULES: usize = 100;
/// What an answer depends on.
const VARIES: &str = "Origin, Access-Control-Request-Headers, Access-Control-Request-Method";

/// A rule, as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rule {
    id: Option<String>,
    origins: Vec<String>,
    methods: Vec<String>,
    headers: Vec<String>,
    expose: Vec<String>,
    max_age: Option<i32>,
}

impl Rule {
    /// Rules that a client puts.
    ///
    /// # Errors
    /// `InvalidRequest`, `MalformedXML`.
    pub fn all_of(given: Vec<CORSRule>) -> S3Result<Vec<Self>> {
        if given.is_empty() || given.len() > MAX_RULES {
            return Err(s3_error!(MalformedXML, "there are 1 to {MAX_RULES} rules"));
        }
        given.into_iter().map(Self::of).collect()
    }

    fn of(given: CORSRule) -> S3Result<Self> {
        let rule = Self {
            id: given.id,
            origins: given.allowed_origins,
            methods: given.allowed_methods,
            headers: given.allowed_headers.unwrap_or_default(),
            expose: given.expose_headers.unwrap_or_default(),
            max_age: given.max_age_seconds,
        };
        if rule.origins.is_empty() || rule.methods.is_empty() {
            return Err(s3_error!(MalformedXML, "a rule has an AllowedOrigin and an AllowedMethod"));
        }
        if let Some(other) = rule.methods.iter().find(|method| !METHODS.contains(&&***method)) {
            return Err(s3_error!(InvalidRequest, "an AllowedMethod is GET, PUT, HEAD, POST or DELETE, not {other}"));
        }
        if let Some(text) = rule.origins.iter().chain(&rule.headers).find(|text| text.matches('*').count() > 1) {
            return Err(s3_error!(InvalidRequest, "{text} has more than one wildcard"));
        }
        Ok(rule)
    }

    /// As an answer has it.
    pub fn shown(&self) -> CORSRule {
        let some = |texts: &Vec<String>| Some(texts.clone()).filter(|texts| !texts.is_empty());
        CORSRule {
            allowed_headers: some(&self.headers),
            allowed_methods: self.methods.clone(),
            allowed_origins: self.origins.clone(),
            expose_headers: some(&self.expose),
            id: self.id.clone(),
            max_age_seconds: self.max_age,
        }
    }

    fn has(&self, origin: &str, method: &str, headers: &[String]) -> bool {
        self.origins.iter().any(|own| like(own, origin))
            && self.methods.iter().any(|own| own == method)
            && headers.iter().all(|header| self.headers.iter().any(|own| like(&own.to_ascii_lowercase(), header)))
    }
}

/// What a rule may allow.
const METHODS: [&str; 5] = ["GET", "PUT", "HEAD", "POST", "DELETE"];

/// What a page of another site asks for.
pub struct FromPage {
    /// The bucket.
    pub bucket: String,
    origin: String,
    method: String,
    /// The headers that the request will have, of a preflight.
    headers: Option<String>,
    /// The browser asks before it sends the request.
    pub is_preflight: bool,
}

impl FromPage {
    /// By the head of a request, and the bucket that its host is, if it is one.
    pub fn of(headers: &HeaderMap, method: &Method, uri: &Uri, by_host: Option<String>) -> Option<Self> {
        let header = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let origin = header(ORIGIN)?;
        let by_path = || decode(uri.path().split('/').nth(1)?);
        let bucket = by_host.or_else(by_path).filter(|bucket| !bucket.is_empty())?;
        let asked = header(ACCESS_CONTROL_REQUEST_METHOD).filter(|_| method == Method::OPTIONS);
        let headers = header(ACCESS_CONTROL_REQUEST_HEADERS).filter(|_| asked.is_some());
        let is_preflight = asked.is_some();
        let method = asked.unwrap_or_else(|| method.as_str().to_owned());
        Some(Self { bucket, origin, method, headers, is_preflight })
    }

    /// What the browser is told by these rules; None when the page may not see the answer.
    pub fn told(&self, rules: &[Rule]) -> Option<HeaderMap> {
        headers(rules, &self.origin, &self.method, self.headers.as_deref())
    }
}

/// The headers of an answer to a request of a page of this origin; None when no rule is about it.
/// A preflight says which headers the request will have.
fn headers(rules: &[Rule], origin: &str, method: &str, asked: Option<&str>) -> Option<HeaderMap> {
    let names = asked.unwrap_or_default().split(',').map(|name| name.trim().to_ascii_lowercase());
    let names: Vec<String> = names.filter(|name| !name.is_empty()).collect();
    let rule = rules.iter().find(|rule| rule.has(origin, method, &names))?;
    let is_for_all = rule.origins.iter().any(|own| own == "*");
    let mut headers = HeaderMap::new();
    let mut add = |name: HeaderName, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    };
    add(ACCESS_CONTROL_ALLOW_ORIGIN, if is_for_all { "*" } else { origin });
    if !is_for_all {
        add(ACCESS_CONTROL_ALLOW_CREDENTIALS, "true");
    }
    add(ACCESS_CONTROL_ALLOW_METHODS, &rule.methods.join(", "));
    if !names.is_empty() {
        add(ACCESS_CONTROL_ALLOW_HEADERS, &names.join(", "));
    }
    if !rule.expose.is_empty() {
        add(ACCESS_CONTROL_EXPOSE_HEADERS, &rule.expose.join(", "));
    }
    if let Some(seconds) = rule.max_age {
        add(ACCESS_CONTROL_MAX_AGE, &seconds.to_string());
    }
    add(VARY, VARIES);
    Some(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(origin: &str, methods: &[&str], headers: &[&str]) -> Rule {
        let texts = |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        Rule::of(CORSRule {
            allowed_origins: vec![origin.into()],
            allowed_methods: texts(methods),
            allowed_headers: Some(texts(headers)),
            expose_headers: Some(texts(&["ETag"])),
            id: None,
            max_age_seconds: Some(600),
        })
        .unwrap()
    }

    #[test]
    fn the_first_rule_that_is_about_a_request_answers() {
        let rules = [rule("https://*.example", &["PUT"], &["x-amz-*", "Content-Type"]), rule("*", &["GET"], &[])];
        let found = headers(&rules, "https://a.example", "PUT", Some("X-Amz-Date, content-type")).unwrap();
        assert_eq!(found[ACCESS_CONTROL_ALLOW_ORIGIN], "https://a.example");
        assert_eq!(found[ACCESS_CONTROL_ALLOW_CREDENTIALS], "true");
        assert_eq!(found[ACCESS_CONTROL_ALLOW_HEADERS], "x-amz-date, content-type");
        assert_eq!(
            (&found[ACCESS_CONTROL_EXPOSE_HEADERS], &found[ACCESS_CONTROL_MAX_AGE]),
            (&"ETag".parse().unwrap(), &"600".parse().unwrap())
        );
        assert!(headers(&rules, "https://a.example", "PUT", Some("authorization")).is_none());
        assert!(headers(&rules, "http://a.example", "PUT", None).is_none());
        let all = headers(&rules, "http://other", "GET", None).unwrap();
        assert!(all[ACCESS_CONTROL_ALLOW_ORIGIN] == "*" && !all.contains_key(ACCESS_CONTROL_ALLOW_CREDENTIALS));
        assert!(headers(&rules, "http://other", "DELETE", None).is_none());
    }

    #[test]
    fn rules_that_say_nothing_are_refused() {
        let given = |origin: &str, method: &str| CORSRule {
            allowed_origins: vec![origin.into()],
            allowed_methods: vec![method.into()],
            ..rule("*", &["GET"], &[]).shown()
        };
        for (origin, method) in [("*", "PATCH"), ("*", "get"), ("http://*.*", "GET")] {
            assert!(Rule::of(given(origin, method)).is_err(), "{origin} {method}");
        }
        assert!(Rule::all_of(Vec::new()).is_err());
    }
}
