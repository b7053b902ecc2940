//! Bucket policies: who may do what with a bucket, as JSON. This is a part of the language of AWS
//! (`docs/s3.md` says which); a policy that says anything else is refused when it is put, as it
//! could mean less than its author thinks. Functions of their arguments, nothing else.

use serde::Deserialize;
use std::collections::BTreeMap;

/// The longest policy, in bytes.
pub const MAX_POLICY: usize = 20 << 10;
/// What names of buckets and objects begin with.
const ARN: &str = "arn:aws:s3:::";
/// What names of users begin with.
const USER_ARN: &str = "arn:aws:iam::";
/// The condition that there is.
const PREFIX: &str = "s3:prefix";

/// A policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    statements: Vec<Statement>,
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The access key; None for a request without a signature.
    pub key: Option<&'a str>,
    /// What is done, as `s3:GetObject`.
    pub action: &'a str,
    /// The bucket.
    pub bucket: &'a str,
    /// The object, if it is about one.
    pub object: Option<&'a str>,
    /// The prefix of a listing.
    pub prefix: Option<&'a str>,
}

/// What a policy says of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may not be done, whatever else says so.
    Denied,
    /// It may be done.
    Allowed,
    /// Nothing.
    Silent,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Statement {
    allows: bool,
    principals: Vec<String>,
    /// In lower case: the names of actions are the same in any case.
    actions: Vec<String>,
    resources: Vec<String>,
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Condition {
    /// The prefix must be none of the values.
    is_negated: bool,
    /// The values have wildcards.
    is_like: bool,
    values: Vec<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl From<OneOrMany> for Vec<String> {
    fn from(given: OneOrMany) -> Self {
        match given {
            OneOrMany::One(one) => vec![one],
            OneOrMany::Many(many) => many,
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Principal {
    All(String),
    Named(BTreeMap<String, OneOrMany>),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Statements {
    One(Box<Stated>),
    Many(Vec<Stated>),
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Stated {
    #[serde(rename = "Sid")]
    _sid: Option<String>,
    effect: String,
    principal: Principal,
    action: OneOrMany,
    resource: OneOrMany,
    condition: Option<BTreeMap<String, BTreeMap<String, OneOrMany>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Document {
    version: Option<String>,
    #[serde(rename = "Id")]
    _id: Option<String>,
    statement: Statements,
}

impl Policy {
    /// Reads a policy that is put for a bucket: all of it is about that one.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn parse(text: &str, bucket: &str) -> Result<Self, String> {
        Self::read(text, |resource, _| is_of(resource, bucket))
    }

    /// Reads a policy that a bucket has. The directory of the bucket may have another name by now:
    /// then nothing is allowed by the earlier one. What was denied by that name must not become
    /// allowed, so such a policy is refused.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn stored(text: &str, bucket: &str) -> Result<Self, String> {
        Self::read(text, |resource, allows| allows || is_of(resource, bucket))
    }

    /// `is_about` says whether a resource may be in a statement that allows, or one that denies.
    fn read(text: &str, is_about: impl Fn(&str, bool) -> bool) -> Result<Self, String> {
        if text.len() > MAX_POLICY {
            return Err(format!("a policy has {MAX_POLICY} bytes at most"));
        }
        let Document { version, statement, .. } = serde_json::from_str(text).map_err(|why| match why.is_data() {
            true => "a statement has Effect, Principal, Action and Resource, may have Sid and Condition, and nothing \
                     else"
                .to_owned(),
            false => why.to_string(),
        })?;
        if version.is_some_and(|version| version != "2012-10-17" && version != "2008-10-17") {
            return Err("the Version of a policy is 2012-10-17".into());
        }
        let stated = match statement {
            Statements::One(one) => vec![*one],
            Statements::Many(many) => many,
        };
        let statements = stated.into_iter().map(|stated| Statement::of(stated, &is_about)).collect::<Result<_, _>>()?;
        Ok(Self { statements })
    }

    /// What it says of a request. A statement that denies counts more than those that allow.
    pub fn verdict(&self, asked: &Asked<'_>) -> Verdict {
        let action = asked.action.to_ascii_lowercase();
        let path = match asked.object {
            Some(object) => format!("{}/{object}", asked.bucket),
            None => asked.bucket.to_owned(),
        };
        let is_about = |statement: &&Statement| statement.is_about(asked, &action, &path);
        let mut about = self.statements.iter().filter(is_about).peekable();
        if about.peek().is_none() {
            return Verdict::Silent;
        }
        if about.all(|statement| statement.allows) { Verdict::Allowed } else { Verdict::Denied }
    }

    /// Whether it allows anything to everybody.
    pub fn is_public(&self) -> bool {
        let mut allowing = self.statements.iter().filter(|statement| statement.allows);
        allowing.any(|statement| statement.principals.iter().any(|principal| principal == "*"))
    }
}

/// Whether a resource, without what all begin with, is of a bucket.
fn is_of(resource: &str, bucket: &str) -> bool {
    resource.split('/').next().is_some_and(|name| like(name, bucket))
}

/// The access key of a principal, or `*` for everybody. The last part of the name of a user of AWS
/// is the key. Everything else that such a name can have means other principals than one key.
fn principal(id: &str) -> Result<String, String> {
    if id == "*" {
        return Ok(id.to_owned());
    }
    let user = id.strip_prefix(USER_ARN).map(|rest| {
        let (account, user) = rest.split_once(':')?;
        let user = user.strip_prefix("user/")?;
        account.bytes().all(|byte| byte.is_ascii_digit()).then(|| user.rsplit('/').next().unwrap_or(user))
    });
    let is_key = |key: &&str| {
        // Digits alone, and the root, are accounts of AWS.
        let is_account = *key == "root" || key.bytes().all(|byte| byte.is_ascii_digit());
        !is_account && key.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    let key = user.unwrap_or(Some(id)).filter(is_key).map(str::to_owned);
    key.ok_or_else(|| format!("a Principal is \"*\", an access key or {USER_ARN}ACCOUNT:user/KEY, unlike {id}"))
}

impl Statement {
    fn of(stated: Stated, is_about: &impl Fn(&str, bool) -> bool) -> Result<Self, String> {
        let allows = match &*stated.effect {
            "Allow" => true,
            "Deny" => false,
            other => return Err(format!("an Effect is Allow or Deny, not {other}")),
        };
        let principals: Vec<String> = match stated.principal {
            Principal::All(all) if all == "*" => vec![all],
            Principal::All(_) => return Err("a Principal is \"*\" or {\"AWS\": [..]} with access keys".into()),
            Principal::Named(named) => {
                let mut all = Vec::new();
                for (kind, ids) in named {
                    if kind != "AWS" {
                        return Err(format!("a Principal is of the kind AWS, not {kind}"));
                    }
                    all.extend(Vec::from(ids));
                }
                all.iter().map(|id| principal(id)).collect::<Result<_, _>>()?
            }
        };
        let actions = Vec::from(stated.action);
        if let Some(other) = actions.iter().find(|action| *action != "*" && !action.starts_with("s3:")) {
            return Err(format!("an Action begins with s3:, unlike {other}"));
        }
        let resources = Vec::from(stated.resource).into_iter().map(|resource| {
            let path = resource.strip_prefix(ARN).filter(|path| is_about(path, allows)).map(str::to_owned);
            path.ok_or_else(|| format!("a Resource is {ARN} and this bucket, or {ARN}, it and /KEY, unlike {resource}"))
        });
        let resources = resources.collect::<Result<Vec<String>, String>>()?;
        if principals.is_empty() || actions.is_empty() || resources.is_empty() {
            return Err("a statement has a Principal, an Action and a Resource".into());
        }
        let mut conditions = Vec::new();
        for (operator, keys) in stated.condition.unwrap_or_default() {
            let (is_negated, is_like) = match &*operator {
                "StringEquals" => (false, false),
                "StringNotEquals" => (true, false),
                "StringLike" => (false, true),
                "StringNotLike" => (true, true),
                other => return Err(format!("the condition {other} is not implemented")),
            };
            for (key, values) in keys {
                if !key.eq_ignore_ascii_case(PREFIX) {
                    return Err(format!("a condition is about {PREFIX}; {key} is not implemented"));
                }
                conditions.push(Condition { is_negated, is_like, values: values.into() });
            }
        }
        let actions = actions.iter().map(|action| action.to_ascii_lowercase()).collect();
        Ok(Self { allows, principals, actions, resources, conditions })
    }

    /// Whether it is about a request; `action` is in lower case, `path` the bucket or object.
    fn is_about(&self, asked: &Asked<'_>, action: &str, path: &str) -> bool {
        let is_principal = |principal: &String| principal == "*" || asked.key == Some(principal);
        self.principals.iter().any(is_principal)
            && self.actions.iter().any(|own| like(own, action))
            && self.resources.iter().any(|own| like(own, path))
            && self.conditions.iter().all(|condition| condition.holds(asked.prefix))
    }
}

impl Condition {
    fn holds(&self, prefix: Option<&str>) -> bool {
        let is = |value: &String, prefix| if self.is_like { like(value, prefix) } else { value == prefix };
        // What is not there is equal to nothing.
        prefix.is_some_and(|prefix| self.values.iter().any(|value| is(value, prefix))) != self.is_negated
    }
}

/// Whether a text is like a pattern, in which `*` is any text and `?` any character.
pub fn like(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut at, mut of) = (0, 0);
    // Where the last `*` is, and up to where it goes by now.
    let mut star = None;
    while of < text.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, of));
                at += 1;
            }
            Some(&wanted) if wanted == '?' || wanted == text[of] => {
                at += 1;
                of += 1;
            }
            _ => {
                let Some((back, until)) = star else { return false };
                star = Some((back, until + 1));
                (at, of) = (back + 1, until + 1);
            }
        }
    }
    pattern[at..].iter().all(|rest| *rest == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: &str = "s3:GetObject";

    fn asked<'a>(key: Option<&'a str>, action: &'a str, object: Option<&'a str>) -> Asked<'a> {
        Asked { key, action, bucket: "films", object, prefix: None }
    }

    fn policy(statements: &str) -> Policy {
        Policy::parse(&format!("{{\"Version\":\"2012-10-17\",\"Statement\":[{statements}]}}"), "films").unwrap()
    }

    #[test]
    fn patterns_have_two_wildcards() {
        for (pattern, text) in [("*", ""), ("a*", "a"), ("a*b*c", "aXbYbZc"), ("?b", "äb"), ("**", "x"), ("a", "a")] {
            assert!(like(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("", "a"), ("a*b", "abc"), ("?", ""), ("a", "A"), ("*a*a", "ba")] {
            assert!(!like(pattern, text), "{pattern} {text}");
        }
        // Many wildcards take no time that grows without bound.
        assert!(!like(&"*a".repeat(100), &"a".repeat(99)));
    }

    #[test]
    fn a_denial_counts_more_than_a_permission() {
        let policy = policy(
            r#"{"Effect":"Allow","Principal":"*","Action":"s3:Get*","Resource":"arn:aws:s3:::films/open/*"},
               {"Effect":"Deny","Principal":{"AWS":["A","arn:aws:iam::1:user/people/B"]},"Action":["s3:getobject"],
                "Resource":["arn:aws:s3:::films/open/secret?"]}"#,
        );
        assert!(policy.is_public());
        assert_eq!(policy.verdict(&asked(None, GET, Some("open/secret1"))), Verdict::Allowed);
        for key in ["A", "B"] {
            assert_eq!(policy.verdict(&asked(Some(key), GET, Some("open/secret1"))), Verdict::Denied);
            assert_eq!(policy.verdict(&asked(Some(key), GET, Some("open/secret"))), Verdict::Allowed);
        }
        for (action, object) in [(GET, "closed"), (GET, "open"), ("s3:PutObject", "open/a")] {
            assert_eq!(policy.verdict(&asked(None, action, Some(object))), Verdict::Silent);
        }
    }

    #[test]
    fn a_condition_is_about_the_prefix_of_a_listing() {
        let statement = |operator: &str| {
            policy(&format!(
                r#"{{"Effect":"Allow","Principal":{{"AWS":"*"}},"Action":"s3:ListBucket",
                "Resource":"arn:aws:s3:::films",
                "Condition":{{"{operator}":{{"s3:prefix":["","a/*"]}}}}}}"#
            ))
        };
        let verdict = |operator: &str, prefix| {
            let asked = Asked { prefix, ..asked(None, "s3:ListBucket", None) };
            statement(operator).verdict(&asked) == Verdict::Allowed
        };
        assert!(verdict("StringLike", Some("a/b")) && verdict("StringLike", Some("")));
        assert!(!verdict("StringLike", Some("b")) && !verdict("StringLike", None));
        assert!(verdict("StringEquals", Some("a/*")) && !verdict("StringEquals", Some("a/b")));
        assert!(verdict("StringNotEquals", Some("a/b")) && verdict("StringNotLike", None));
        assert!(!verdict("StringNotLike", Some("a/b")));
    }

    #[test]
    fn a_policy_of_an_earlier_name_allows_nothing_and_denies_on() {
        let statement = |effect: &str| {
            format!(
                r#"{{"Statement":{{"Effect":"{effect}","Principal":"*","Action":"s3:*",
                "Resource":"arn:aws:s3:::films/*"}}}}"#
            )
        };
        let (allows, denies) = (statement("Allow"), statement("Deny"));
        assert!(Policy::parse(&allows, "movies").is_err() && Policy::stored(&denies, "movies").is_err());
        assert!(Policy::stored(&denies, "films").is_ok());
        let asked = Asked { bucket: "movies", ..asked(None, GET, Some("a")) };
        assert_eq!(Policy::stored(&allows, "movies").unwrap().verdict(&asked), Verdict::Silent);
    }

    #[test]
    fn what_is_not_implemented_is_refused() {
        let whole = r#""Effect":"Allow","Principal":"*","Action":"s3:*","Resource":"arn:aws:s3:::films/*""#;
        let refused = |statement: &str| {
            let document = format!("{{\"Statement\":[{{{statement}}}]}}");
            Policy::parse(&document, "films").expect_err(statement)
        };
        assert!(Policy::parse(&format!("{{\"Statement\":{{{whole}}}}}"), "films").is_ok());
        for (part, other) in [
            (r#""Principal":"*""#, r#""NotPrincipal":"*""#),
            (r#""Principal":"*""#, r#""Principal":{"Service":"x"}"#),
            (r#""Principal":"*""#, r#""Principal":{"AWS":"arn:aws:iam::111122223333:user/*"}"#),
            (r#""Principal":"*""#, r#""Principal":{"AWS":["K","arn:aws:iam::1:*"]}"#),
            (r#""Principal":"*""#, r#""Principal":{"AWS":"arn:aws:iam::1:root"}"#),
            (r#""Principal":"*""#, r#""Principal":{"AWS":"arn:aws:iam::*:user/K"}"#),
            (r#""Principal":"*""#, r#""Principal":{"AWS":"arn:aws:iam::1:role/K"}"#),
            (r#""Principal":"*""#, r#""Principal":{"AWS":"arn:aws:sts::1:assumed-role/a/K"}"#),
            (r#""Principal":"*""#, r#""Principal":{"AWS":"111122223333"}"#),
            (r#""Principal":"*""#, r#""Principal":{"AWS":"WEFT*"}"#),
            (r#""Principal":"*""#, r#""Principal":{"AWS":""}"#),
            (r#""Action":"s3:*""#, r#""NotAction":"s3:*""#),
            (r#""Action":"s3:*""#, r#""Action":"iam:*""#),
            (r#""Action":"s3:*""#, r#""Action":[]"#),
            ("films/*", "other/*"),
            ("Allow", "allow"),
        ] {
            refused(&whole.replace(part, other));
        }
        refused(&format!(r#"{whole},"Condition":{{"IpAddress":{{"aws:SourceIp":"10.0.0.0/8"}}}}"#));
        refused(&format!(r#"{whole},"Condition":{{"StringLike":{{"aws:Referer":"x"}}}}"#));
        assert!(Policy::parse("{", "films").is_err());
        assert!(Policy::parse(r#"{"Version":"2020-01-01","Statement":[]}"#, "films").is_err());
        assert!(Policy::parse(&" ".repeat(MAX_POLICY + 1), "films").is_err());
    }
}
