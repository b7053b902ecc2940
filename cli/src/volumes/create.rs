//! `weft volume create` and `weft volume open`: making volumes, and finding one again by its
//! targets.

use super::{new_target, places};
use crate::failure::{Failure, Outcome};
use crate::{show, unprotected};
use clap::Args;
use cluster::StoreAddress;
use fs::label::Label;
use fs::{Coding, Coordinates, Domain, InTorus, Known, Placement, PolicyName, Remains, Torus, Voters};
use plan::placement::{most_on_one, survived_when_shared};
use plan::sizes;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use volume::Shown;

/// Create a volume on directories, one for each disk
#[derive(Args)]
#[command(after_help = "Examples:
  weft volume create /srv/films --code rs:4+2 /disk[1-6]
  weft mount /srv/films /mnt
  # On storage servers; each was started with its --domain.
  weft volume create /srv/films --code rs:6+3 \\
      store://10.0.0.{1,2,3}:7701/disk{0,1,2}
  # Two volumes of different codes share these disks.
  weft volume create /srv/films --shared \\
      --code rs:4+2 /disk[1-6]
  weft volume create /srv/mails --shared \\
      --code rs:2+2 /disk[1-6]
  # Two of the disks are in one shelf.
  weft volume create /srv/films --code rs:2+1 \\
      /shelf1/a /shelf1/b /shelf2/c \\
      --domain /shelf1/a=shelf1 --domain /shelf1/b=shelf1
  # Stripes of 6 KB, and chunks of 32 MB.
  weft volume create /srv/films --stripe-bytes 6k \\
      --chunk-bytes 32M /disk[1-6]
  # Four disks for six blocks: one may be lost, not two.
  weft volume create /srv/films --code rs:4+2 \\
      --allow-sharing /disk[1-4]
  # Stores in a torus of 4 x 2 x 2; one is at 1,0,0.
  weft volume create /srv/films --code rs:6+3 \\
      --torus 4,2,2 --at store://10.0.0.3:7701/disk0=1,0,0 \\
      store://10.0.0.{1,2,3,4,5,6,7,8,9}:7701/disk0

Put every directory on a disk of its own: the volume survives the loss of any m of them. There may be more \
directories than the code has blocks. The volume's own directory holds nothing that cannot be rebuilt.

Targets that fail together are a domain. No domain gets more than m chunks of a set, so that the volume survives the \
loss of a whole domain. Too few domains for that are refused without --allow-few-domains.")]
pub struct CreateArguments {
    /// The volume's directory; it records where the targets are
    volume: PathBuf,
    /// Directories for data
    #[arg(required = true, value_name = "DIR")]
    targets: Vec<PathBuf>,
    /// The code; `weft codes` lists them
    #[arg(long, default_value = "rs:4+2")]
    code: String,
    /// Let the code be none:K+M: zeroes are stored in the place of parity, and no loss is survived
    #[arg(long)]
    unsafe_no_parity: bool,
    /// The volume's name [default: that of its directory]
    #[arg(long)]
    name: Option<String>,
    /// The greatest length of a chunk
    #[arg(long, default_value = "64MiB", value_name = "SIZE", value_parser = sizes::length::<u32>)]
    chunk_bytes: u32,
    /// User data of a stripe at most; a mount can say otherwise [default: about 4 MiB, the most]
    #[arg(long, value_name = "SIZE", value_parser = sizes::length::<usize>, conflicts_with = "block_bytes")]
    stripe_bytes: Option<usize>,
    /// The same by the length of a stripe's blocks, in whole pages of 4 KiB [default: 1 MiB, or
    /// less with more than four data blocks]
    #[arg(long, value_name = "SIZE", value_parser = sizes::length::<usize>)]
    block_bytes: Option<usize>,
    /// Targets that must have a stripe before it is acknowledged: k to k+m [default: k+1]
    #[arg(long, value_name = "N")]
    durability: Option<usize>,
    /// Allow fewer targets than the code has blocks, m+2 at least: one has several blocks of a
    /// stripe, and fewer losses are survived, until there are enough targets
    #[arg(long)]
    allow_sharing: bool,
    /// Share the disks with other volumes: each volume has a directory of its own on them
    #[arg(long)]
    shared: bool,
    /// The failure domain of a target, from the large to the small, such as rack1/host3 [default:
    /// what its store says; a domain of its own for a directory]
    #[arg(long = "domain", value_name = "DIR=PATH", value_parser = domain_of)]
    domains: Vec<(PathBuf, Domain)>,
    /// Allow so few domains that one has more than m blocks of a stripe, and its loss loses data
    #[arg(long)]
    allow_few_domains: bool,
    /// How many names of such a path make a domain [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    domain_level: Option<u8>,
    /// The sizes of the torus that the servers are connected in: the targets of a set are near each
    /// other in it
    #[arg(long, value_name = "SIZES")]
    torus: Option<Torus>,
    /// Where a target's server is in the torus [default: the next place that is free, in the order
    /// of the targets; the last number counts first]
    #[arg(long, value_name = "DIR=PLACE", requires = "torus", value_parser = place_of)]
    at: Vec<(PathBuf, Coordinates)>,
    /// How new data is placed: random (more where more is free), round-robin, adaptive, crush or
    /// prime
    #[arg(long, default_value_t, value_name = "POLICY")]
    placement: PolicyName,
    /// Who codes stripes where a mount does not say: client, server (the storage servers) or auto
    #[arg(long, default_value_t, value_name = "WHO")]
    coding: Coding,
}

/// A target and its domain, with the last equals sign between them: a path may have others.
fn domain_of(text: &str) -> Result<(PathBuf, Domain), String> {
    let (target, domain) = text.rsplit_once('=').ok_or("give it as DIR=PATH, such as /disk1=rack1/host3")?;
    Ok((target.into(), domain.parse::<Domain>().map_err(|why| why.to_string())?))
}

/// A target and the place of its server in a torus, with the last equals sign between them.
pub fn place_of(text: &str) -> Result<(PathBuf, Coordinates), String> {
    let (target, place) = text.rsplit_once('=').ok_or("give it as DIR=PLACE, such as /disk1=4,2,7")?;
    Ok((target.into(), place.parse::<Coordinates>().map_err(|why| why.to_string())?))
}

impl CreateArguments {
    /// What the domains that were given cannot keep, if every target has one.
    fn too_few_domains(&self, k: usize, m: usize) -> Option<String> {
        if self.domains.len() < self.targets.len() {
            return None;
        }
        let mut targets = BTreeMap::<&str, usize>::new();
        self.domains.iter().for_each(|(_, domain)| *targets.entry(domain.at(self.domain_level)).or_default() += 1);
        super::status::shared::too_few_domains(k, m, targets.into_values())
    }
}

pub fn create(arguments: &CreateArguments, as_json: bool) -> Outcome {
    let code = unprotected::parse_if(&arguments.code, arguments.unsafe_no_parity)?;
    let name = arguments.name.clone().unwrap_or_else(|| {
        let plain = std::path::absolute(&arguments.volume).unwrap_or_else(|_| arguments.volume.clone());
        plain.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    });
    let target = |given: &PathBuf| {
        let whole = new_target(given)?;
        if arguments.shared { part_of(&whole, &name) } else { Ok(whole) }
    };
    let targets: Vec<PathBuf> = arguments.targets.iter().map(target).collect::<Result<_, _>>()?;
    check(if arguments.shared { &targets } else { &arguments.targets })?;
    if arguments.coding == Coding::Server {
        coded_by_servers(&targets)?;
    }
    let of_blocks = |block| fs::stripe_of_blocks(code.shape().k, block);
    let stripe_bytes = arguments.stripe_bytes.map(Ok).or_else(|| arguments.block_bytes.map(of_blocks)).transpose()?;
    fs::Create {
        name: name.clone(),
        code: code.spec().to_string(),
        chunk_bytes: arguments.chunk_bytes,
        durability: arguments.durability,
        coding: arguments.coding,
        targets,
        domains: arguments
            .domains
            .iter()
            .map(|(given, domain)| Ok((target(given)?, domain.clone())))
            .collect::<Result<_, Failure>>()?,
        placement: Placement {
            policy: arguments.placement,
            domain_level: arguments.domain_level,
            ..Placement::default()
        },
        allow_sharing: arguments.allow_sharing,
        allow_few_domains: arguments.allow_few_domains,
        stripe_bytes,
        torus: match &arguments.torus {
            Some(torus) => Some(InTorus {
                torus: torus.clone(),
                at: arguments
                    .at
                    .iter()
                    .map(|(given, at)| Ok((target(given)?, at.clone())))
                    .collect::<Result<_, Failure>>()?,
            }),
            None => None,
        },
        places: places(),
    }
    .run(&arguments.volume)?;
    let shape = code.shape();
    let is_shared = arguments.targets.len() < shape.blocks();
    let voters = Voters::of(&Label::read_pointer(&arguments.volume)?);
    if as_json {
        return show::json(&json!({
            "volume": show::path(&arguments.volume),
            "name": name,
            "code": arguments.code,
            "redundancy": !code.spec().stores_zeroes(),
            "targets": arguments.targets.len(),
            "metadata": away_document(voters),
            "blocks_on_one_target": most_on_one(shape.blocks(), arguments.targets.len()),
            "too_few_domains": arguments.too_few_domains(shape.k, shape.m).is_some(),
            "losses_survived": survived_when_shared(shape.blocks(), arguments.targets.len(), code.tolerates()),
        }));
    }
    show::text(format_args!(
        "{} is a volume of code {} on {}. Next: weft mount {} MOUNTPOINT",
        Shown(&arguments.volume),
        arguments.code,
        show::count(arguments.targets.len(), "target"),
        Shown(&arguments.volume)
    ))?;
    let more = match voters.more() {
        0 => String::new(),
        more => format!("; with {} that is {}", show::count(more, "more target"), voters.losses),
    };
    show::text(format_args!("Its metadata is {}{more}.", away(voters)))?;
    if is_shared {
        show::text(super::status::shared::warning(shape.k, shape.m, arguments.targets.len()))?;
    }
    if let Some(warning) = arguments.too_few_domains(shape.k, shape.m) {
        show::text(warning)?;
    }
    if code.spec().stores_zeroes() { show::text(unprotected::WORDS) } else { Ok(()) }
}

/// The part of a disk that is a volume's: `volumes/NAME` below a directory, and what a store calls
/// `DISK:NAME`, which is the same.
fn part_of(disk: &Path, name: &str) -> Result<PathBuf, Failure> {
    if name.is_empty() || name.contains('/') || name == "." || name == ".." {
        return Err(Failure::Usage(format!("{name:?} cannot name a directory on shared disks; give another --name")));
    }
    match StoreAddress::of(disk).transpose()? {
        Some(store) => Ok(StoreAddress { target: format!("{}:{name}", store.target), ..store }.to_path()),
        None => Ok(disk.join("volumes").join(name)),
    }
}

/// How many targets may be away.
pub fn away(voters: Voters) -> String {
    let (readable, writable) = (voters.readable_without(), voters.writable_without());
    let targets = match voters.others {
        0 => show::count(readable, "target"),
        _ => format!("{readable} of its {}", show::count(voters.all, "voter")),
    };
    format!("readable with {targets} away, writable with {writable}")
}

/// The same for JSON.
pub fn away_document(voters: Voters) -> serde_json::Value {
    json!({
        "readable_without": voters.readable_without(),
        "writable_without": voters.writable_without(),
        "more_targets": voters.more(),
        "voters": voters.all,
    })
}

/// Refuses targets if some are directories of this machine: no storage server reaches those.
pub fn coded_by_servers<'a>(targets: impl IntoIterator<Item = &'a PathBuf>) -> Outcome {
    match targets.into_iter().find(|target| StoreAddress::of(target).is_none()) {
        Some(target) => Err(Failure::Usage(format!(
            "{} is a directory, and only storage servers can code: leave server coding out, or give targets as \
             store://HOST:PORT/TARGET",
            Shown(target)
        ))),
        None => Ok(()),
    }
}

/// Refuses directories that cannot be targets before the first of them is changed.
fn check(targets: &[PathBuf]) -> Outcome {
    let mut seen = std::collections::HashMap::new();
    for target in targets {
        let plain = target.canonicalize().or_else(|_| std::path::absolute(target)).unwrap_or_else(|_| target.clone());
        if let Some(other) = seen.insert(plain, target) {
            return Err(Failure::Usage(format!("{} and {} are one directory", Shown(other), Shown(target))));
        }
        let Ok(mut entries) = std::fs::read_dir(target) else { continue };
        if target.join("weft.label").exists() {
            return Err(Failure::Other(format!("{} is a target of a volume already", Shown(target))));
        }
        if entries.any(|entry| entry.is_ok_and(|entry| entry.file_name() != "lost+found")) {
            return Err(Failure::Other(format!("{} is not empty; give an empty directory", Shown(target))));
        }
    }
    Ok(())
}

/// Rebuild a lost volume directory from the volume's targets
#[derive(Args)]
#[command(after_help = "Examples:
  weft volume open /srv/films /disk1 /disk3 /disk4 /disk5

  # More than m targets are gone for good. It says what will be done, and asks.
  weft volume open /srv/films /disk1 /disk3 --accept-loss

Nothing is lost while no more than m targets are: the metadata is on m+1 of them. With fewer targets, others may have \
newer changes. --accept-loss gives those targets up, and weft status says so ever after.")]
pub struct OpenArguments {
    /// The directory to create
    volume: PathBuf,
    /// Its targets, wherever they are now; up to m may be missing
    #[arg(required = true, value_name = "DIR")]
    targets: Vec<PathBuf>,
    /// Give up the targets that are missing, and what only they have
    #[arg(long)]
    accept_loss: bool,
    /// The name of the volume that may lose something, instead of the question
    #[arg(long, value_name = "NAME", requires = "accept_loss")]
    yes_lose: Option<String>,
}

/// Says what is lost and what will be done, and asks. Returns what is known to be lost.
fn agreed(arguments: &OpenArguments, targets: &[PathBuf], as_json: bool) -> Result<Value, Failure> {
    let remains = Remains::of(targets, &*places())?;
    let label = &remains.label;
    if remains.is_enough() {
        let what = "these targets have everything that was durable; leave --accept-loss out";
        return Err(Failure::Usage(what.into()));
    }
    let known = remains.known(&*places())?;
    if !as_json {
        let all = label.members().count();
        show::text(format_args!("{}: {} of {all} targets are there", label.name, remains.there.len()))?;
        for member in remains.missing() {
            show::text(format_args!("  MISSING target {}: {}", member.id.0, Shown(&member.path)))?;
        }
        show::text(match remains.mirrors() {
            Some((of, there)) => {
                format!("The newest journal that is known was on {of} targets; {there} of them are there.")
            }
            None => "It is not known on which targets the newest journal was.".into(),
        })?;
        tell(&known)?;
        show::text(format_args!(
            "This will: take the {} out of the volume for good; begin a new history with what the others have; \
             lose every change that only those had, and the data of which too few blocks are left; \
             say so in weft status ever after.",
            show::count(all - remains.there.len(), "missing target")
        ))?;
    }
    let lost = json!({
        "missing_targets": remains.missing().map(|member| show::path(&member.path)).collect::<Vec<_>>(),
        "transactions": document(&known),
    });
    let given = match &arguments.yes_lose {
        Some(name) => name.clone(),
        None if !as_json && std::io::stdin().is_terminal() => {
            show::text("Type the name of the volume to do that:")?;
            let mut line = String::new();
            std::io::stdin().read_line(&mut line).map_err(|why| Failure::Other(why.to_string()))?;
            line.trim_end_matches('\n').into()
        }
        None => {
            let why = Failure::Usage(format!("nothing was changed; to do it, give --yes-lose {}", label.name));
            if as_json {
                // One document: the error, and what is lost.
                let error = json!({ "kind": why.kind(), "message": why.to_string() });
                show::json(&json!({ "type": "error", "error": error, "loss": lost }))?;
                return Err(Failure::Found);
            }
            return Err(why);
        }
    };
    if given == label.name {
        return Ok(lost);
    }
    Err(Failure::Usage(format!("nothing was changed: the volume is called {}, not {given}", label.name)))
}

/// Which changes are missing, or may be. How many came after the last one that is known of, only
/// the missing targets can tell.
fn tell(known: &Known) -> Outcome {
    let survey = &known.survey;
    let Some(readable) = survey.readable else {
        return show::text(
            "None of them has a state of the metadata that can be read: which changes are missing is not known.",
        );
    };
    let age = |when: i64| {
        let when = SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(when).unwrap_or(0));
        let age = SystemTime::now().duration_since(when).unwrap_or_default();
        format!(" The newest file that its journal changed is {} old.", show::age(age))
    };
    let changed = survey.changed.map_or_else(String::new, age);
    show::text(format_args!("The newest change that can be read is transaction {readable}.{changed}"))?;
    if let Some(missing) = known.missing() {
        let (first, last) = missing.into_inner();
        show::text(format_args!("  MISSING transactions {first} to {last}: they were durable"))?;
    }
    if let Some((number, name)) = &known.later {
        let name = if name.is_empty() { String::new() } else { format!(" ({name})") };
        show::text(format_args!(
            "  MISSING whatever the opening {number}{name} changed: these targets have nothing of it"
        ))?;
    }
    let last = readable.max(survey.durable);
    show::text(format_args!("Transactions after {last} may be missing, too: only the missing targets can tell."))
}

/// The same for JSON.
fn document(known: &Known) -> Value {
    let survey = &known.survey;
    json!({
        "readable": survey.readable,
        "changed_at": survey.changed,
        "missing": known.missing().map(|missing| json!({ "first": missing.start(), "last": missing.end() })),
        "missing_opening": known.later.as_ref().map(|(number, name)| json!({ "epoch": number, "holder": name })),
        "may_be_missing_after": survey.readable.map(|readable| readable.max(survey.durable)),
    })
}

pub fn open(arguments: &OpenArguments, as_json: bool) -> Outcome {
    let targets: Vec<PathBuf> = arguments.targets.iter().map(|target| new_target(target)).collect::<Result<_, _>>()?;
    let (label, lost) = if arguments.accept_loss {
        let lost = agreed(arguments, &targets, as_json)?;
        (fs::reopen_with_loss(&arguments.volume, &targets, places())?, Some(lost))
    } else {
        (fs::reopen(&arguments.volume, &targets, places())?, None)
    };
    if as_json {
        let mut document = json!({
            "volume": show::path(&arguments.volume),
            "name": label.name,
            "code": label.code,
            "targets": label.members().count(),
        });
        if let Some(lost) = lost {
            document["loss"] = lost;
        }
        return show::json(&document);
    }
    show::text(format_args!(
        "{} is the volume {} again, of code {} on {}",
        Shown(&arguments.volume),
        label.name,
        label.code,
        show::count(label.members().count(), "target")
    ))
}
