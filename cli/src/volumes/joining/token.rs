//! `weft cluster token`: what a machine shows to join a cluster.

use super::DIRECTORY;
use super::machine::Settings;
use crate::failure::{Failure, Outcome};
use crate::show;
use clap::Args;
use cluster::admission::{Kind, Register, Token};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Print a token with which machines join the cluster
#[derive(Args)]
#[command(after_help = "Examples:
  weft cluster token
  weft cluster token --kind client --uses 1
  weft cluster token --expires 300

Give it on the first machine, which has the authority. A token holds a secret. Any machine that has it can join, \
until the token expires or is used up. Only a hash of the secret is kept here.")]
pub struct Arguments {
    /// What machines become by it: server, client, or operator (a client that may also change
    /// targets, and repair and check volumes)
    #[arg(long, default_value = "server", value_parser = kind_of)]
    kind: Kind,
    #[command(flatten)]
    options: TokenOptions,
    /// The directory with the authority
    #[arg(long, value_name = "DIR", default_value = DIRECTORY)]
    directory: PathBuf,
}

fn kind_of(word: &str) -> Result<Kind, String> {
    word.parse::<Kind>().map_err(|why| why.to_string())
}

/// How long and how often a token can be used.
#[derive(Args)]
pub struct TokenOptions {
    /// For how many machines a token is
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    pub uses: u32,
    /// How long a token can be used
    #[arg(
        long, value_name = "SECONDS", default_value_t = 3600,
        value_parser = clap::value_parser!(u64).range(1..=31_536_000)
    )]
    pub expires: u64,
}

impl TokenOptions {
    /// The same in words.
    pub fn words(&self) -> String {
        let time = show::about(Duration::from_secs(self.expires));
        format!("within {time}, on {} at most", show::count(self.uses as usize, "machine"))
    }
}

/// A new token.
pub fn new(register: &Register, address: &str, kind: Kind, options: &TokenOptions) -> Result<Token, Failure> {
    Ok(register.new_token(address, kind, options.uses, Duration::from_secs(options.expires))?)
}

/// The register beside the authority's key. Where that is not, no register is made.
pub fn register(directory: &Path) -> Result<Register, Failure> {
    if directory.join("authority.key").exists() {
        return Ok(Register::open(directory)?);
    }
    let why = format!("{} has no authority.key: give this command on the first machine", volume::Shown(directory));
    Err(Failure::Other(why))
}

pub fn run(arguments: &Arguments, as_json: bool) -> Outcome {
    let Arguments { kind, options, directory } = arguments;
    let register = register(directory)?;
    let first = register.first()?;
    let settings = Settings::find(directory, first.as_ref().map(|machine| &*machine.name))?;
    let address = settings.value("join", "listen").ok_or_else(|| {
        Failure::Other(format!("{} has no table [join]; weft cluster init --address makes it", settings.name))
    })?;
    let token = new(&register, address, *kind, options)?;
    if as_json {
        return show::json(&json!({
            "token": token.reveal(), "kind": kind.word(), "uses": options.uses, "expires_in_s": options.expires,
        }));
    }
    show::text(token.reveal())
}
