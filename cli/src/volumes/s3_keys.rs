//! `weft s3 key`: the access keys of S3 clients.

use super::paths::resolve;
use super::{Open, open, server_of};
use crate::failure::{Failure, Outcome};
use crate::show;
use clap::{Args, Subcommand};
use s3::Objects;
use s3::keys::{Key, KeyFile, Keys, Rights, list};
use serde_json::json;
use std::path::{Path, PathBuf};

/// The key file of a volume in a directory, if no other is given.
const KEY_FILE: &str = "s3.key";

/// Add, list, rotate and remove the access keys of S3 clients
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Add(AddArguments),
    List(ListArguments),
    Rotate(RotateArguments),
    Remove(RemoveArguments),
}

/// The volume, and the file that its secrets are sealed with.
#[derive(Args)]
struct Of {
    /// The volume
    volume: PathBuf,
    /// The directory of the volume whose directories are buckets
    #[arg(long, value_name = "PATH", default_value = "/", env = "WEFT_S3_ROOT")]
    root: String,
    /// The file with the key that seals secrets [default: s3.key in the volume's directory]
    #[arg(long, value_name = "FILE", env = "WEFT_S3_KEY_FILE")]
    key_file: Option<PathBuf>,
}

/// Add an access key, and print its secret, which nothing shows again
#[derive(Args)]
#[command(after_help = "Examples:
  weft s3 key add /srv/films
  weft s3 key add /srv/films --bucket 2024 --read-only
  weft s3 key add /srv/films --list 2024 --read 2024 \\
      --write 2024/incoming/
  weft s3 key add weft://127.0.0.1:7600/films \\
      --key-file /etc/weft/s3.key

The first key of a volume makes the key file. Keep a copy of it elsewhere: without it, no secret can be opened. It \
belongs on each machine that runs a gateway of the volume.")]
struct AddArguments {
    #[command(flatten)]
    of: Of,
    /// It may only read
    #[arg(long)]
    read_only: bool,
    /// It may use this bucket, and others given so; without any, all buckets
    #[arg(long, value_name = "BUCKET")]
    bucket: Vec<String>,
    /// It may read objects whose keys begin so, and nothing that is not given so; * for all
    #[arg(long, value_name = "BUCKET[/PREFIX]", value_parser = grant, conflicts_with_all = ["read_only", "bucket"])]
    read: Vec<String>,
    /// It may write and remove objects whose keys begin so
    #[arg(long, value_name = "BUCKET[/PREFIX]", value_parser = grant, conflicts_with_all = ["read_only", "bucket"])]
    write: Vec<String>,
    /// It may list keys that begin so
    #[arg(long, value_name = "BUCKET[/PREFIX]", value_parser = grant, conflicts_with_all = ["read_only", "bucket"])]
    list: Vec<String>,
}

fn grant(text: &str) -> Result<String, String> {
    if text.split('/').next() == Some("") {
        return Err("BUCKET, or BUCKET/PREFIX".into());
    }
    Ok(text.to_owned())
}

/// List the access keys, without their secrets
#[derive(Args)]
#[command(after_help = "Examples:
  weft s3 key list /srv/films
  weft s3 key list /srv/films --json")]
struct ListArguments {
    #[command(flatten)]
    of: Of,
}

/// Give an access key a new secret, and print it
#[derive(Args)]
#[command(after_help = "Examples:
  weft s3 key rotate /srv/films WEFTABCDEFGHJKLMNPQR

Gateways may take the old secret for 5 more seconds.")]
struct RotateArguments {
    #[command(flatten)]
    of: Of,
    /// The access key
    key: String,
}

/// Remove an access key
#[derive(Args)]
#[command(after_help = "Examples:
  weft s3 key remove /srv/films WEFTABCDEFGHJKLMNPQR

Gateways may take it for 5 more seconds.")]
struct RemoveArguments {
    #[command(flatten)]
    of: Of,
    /// The access key
    key: String,
}

impl Of {
    /// Works on the keys of the volume, and closes it.
    fn with<T>(&self, work: impl FnOnce(&Objects) -> Result<T, Failure>) -> Result<T, Failure> {
        let opened: Open = open(&self.volume, false)?;
        let done = Objects::new(opened.shared().clone(), &self.root).map_err(Failure::from);
        let done = done.and_then(|objects| work(&objects));
        let finished = opened.finish();
        let done = done?;
        finished?;
        Ok(done)
    }

    fn key(&self) -> Result<KeyFile, Failure> {
        Ok(KeyFile::read(&key_file(&self.volume, self.key_file.as_ref())?)?)
    }
}

/// Where the key file of a volume is.
///
/// # Errors
/// When none is given and the volume has no directory here.
pub fn key_file(volume: &Path, given: Option<&PathBuf>) -> Result<PathBuf, Failure> {
    match (given, server_of(volume)?) {
        (Some(path), _) => Ok(resolve(path)),
        (None, None) => Ok(resolve(volume).join(KEY_FILE)),
        (None, Some(_)) => Err(Failure::Usage("give --key-file: a volume of a cluster has no directory here".into())),
    }
}

pub fn run(arguments: &Arguments, as_json: bool) -> Outcome {
    match &arguments.command {
        Command::Add(arguments) => add(arguments, as_json),
        Command::List(ListArguments { of }) => {
            let keys = of.with(|objects| Ok(list(objects)?))?;
            if as_json { show::json(&json!({ "keys": keys })) } else { keys.iter().try_for_each(print) }
        }
        Command::Rotate(RotateArguments { of, key }) => {
            let file = of.key()?;
            let secret = of.with(|objects| Ok(Keys::of(objects, &file).rotate(key)?))?;
            told(key, &secret, as_json)
        }
        Command::Remove(RemoveArguments { of, key }) => {
            let file = of.key()?;
            of.with(|objects| Ok(Keys::of(objects, &file).remove(key)?))?;
            if as_json { show::json(&json!({ "removed": key })) } else { Ok(()) }
        }
    }
}

fn add(arguments: &AddArguments, as_json: bool) -> Outcome {
    let AddArguments { of, read_only, bucket, read, write, list: listed } = arguments;
    let path = key_file(&of.volume, of.key_file.as_ref())?;
    let (key, secret) = of.with(|objects| {
        let file = match path.exists() {
            true => KeyFile::read(&path)?,
            false if list(objects)?.is_empty() => KeyFile::make(&path)?,
            false => {
                let what = "the volume has access keys that another key file sealed";
                return Err(Failure::Other(format!("there is no key file {}, and {what}", volume::Shown(&path))));
            }
        };
        let keys = Keys::of(objects, &file);
        // All keys of a volume open with one file.
        if let Some(other) = list(objects)?.first() {
            keys.secret(&other.id)?;
        }
        let (read, write, list) = (read.clone(), write.clone(), listed.clone());
        Ok(keys.add(Rights { read_only: *read_only, buckets: bucket.clone(), read, write, list })?)
    })?;
    told(&key, &secret, as_json)
}

fn told(key: &str, secret: &str, as_json: bool) -> Outcome {
    if as_json {
        return show::json(&json!({ "access_key": key, "secret_key": secret }));
    }
    show::text(format_args!("access key {key}\nsecret key {secret}"))
}

fn print(key: &Key) -> Outcome {
    show::text(format_args!("{}  {}  {}", key.id, show::date(key.since), rights(&key.rights)))
}

fn rights(rights: &Rights) -> String {
    let grants = [("reads", &rights.read), ("writes", &rights.write), ("lists", &rights.list)];
    let grants = grants.iter().filter(|(_, grants)| !grants.is_empty());
    let grants: Vec<String> = grants.map(|(verb, grants)| format!("{verb} {}", grants.join(", "))).collect();
    if !grants.is_empty() {
        return grants.join("; ");
    }
    let verb = if rights.read_only { "reads" } else { "reads and writes" };
    let buckets = if rights.buckets.is_empty() { "all buckets".into() } else { rights.buckets.join(", ") };
    format!("{verb} {buckets}")
}
