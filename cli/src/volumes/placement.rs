//! `weft target placement`: how new chunk sets are placed, and why one goes where it goes.

use super::create::place_of;
use crate::failure::{Failure, Outcome};
use crate::show;
use clap::Args;
use fs::{Coordinates, FileSystem, Placement, PolicyName, Scoring, SetExplained, Torus};
use plan::placement::score::Coefficients;
use plan::placement::temperature::{MAX_TAU, Tau};
use plan::{SetId, TargetId};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use volume::Shown;

/// Set how new data is placed, or show it; what is there stays where it is
#[derive(Args)]
#[command(after_help = "Examples:
  weft target placement /srv/films round-robin \\
      --domain-level 1
  weft target placement /srv/films adaptive
  weft target placement /srv/films adaptive \\
      --coefficients 0.5,0.5,0.5,2 --tau 0.8
  # Its servers are in a torus; two are where it says.
  weft target placement /srv/films --torus 4,2,7 \\
      --at /disk1=0,0,0 --at /disk2=0,0,1
  weft target placement /srv/films --torus none
  weft target placement /srv/films
  weft target placement /srv/films --explain next
  weft target placement weft://10.0.0.1:7600/films \\
      --explain 1234 --json

The score of a target is (a C + b F) / (c N + d T + 1): C is the idle share of its store's processors, less what its \
queue takes, F its free space, N the used share of the network and T how much it was accessed lately.

In a torus, adaptive and random put the targets of a set near each other: the first choice of the policy is the \
centre, and of its first choices, twice as many as the set needs, the nearest follow (fewer where there are few \
targets). All targets of a server are at one place. A target without a domain is in that of its place, such as 4/2/7.")]
pub struct Arguments {
    /// The volume
    pub volume: PathBuf,
    /// random (more where more is free), round-robin, adaptive (by load), crush or prime
    policy: Option<PolicyName>,
    /// How many names of a target's domain make a domain [default: all]
    #[arg(long, value_name = "N", requires = "policy", value_parser = clap::value_parser!(u8).range(1..))]
    domain_level: Option<u8>,
    /// The weights of processors, space, network and accesses in a score [default: 0.5 each]
    #[arg(long, value_name = "A,B,C,D", requires = "policy", value_parser = coefficients)]
    coefficients: Option<Coefficients>,
    /// What stays of the accesses of one interval in the next, 0 to 0.95, or auto: as the recent
    /// ones say [default: auto]
    #[arg(long, value_name = "TAU", requires = "policy", value_parser = tau)]
    tau: Option<Tau>,
    /// How much even space counts beside scores; with 0, fast targets fill first [default: 32]
    #[arg(long, value_name = "E", requires = "policy")]
    evenness: Option<f64>,
    /// Say why a chunk set goes where it goes: its number, or next for the one after the last
    #[arg(long, value_name = "SET", conflicts_with_all = ["policy", "torus", "at"], value_parser = set)]
    explain: Option<Set>,
    /// The sizes of the torus that the servers are connected in, or none
    #[arg(long, value_name = "SIZES", value_parser = sizes)]
    torus: Option<Sizes>,
    /// Where a target's server is in the torus [default: where it was, or the next place that is
    /// free]
    #[arg(long, value_name = "TARGET=PLACE", value_parser = place_of)]
    at: Vec<(PathBuf, Coordinates)>,
}

/// A chunk set; None: the next one.
#[derive(Clone, Copy, Debug)]
struct Set(Option<SetId>);

fn set(text: &str) -> Result<Set, String> {
    match text {
        "next" => Ok(Set(None)),
        text => match text.parse() {
            Ok(number) if number > 0 => Ok(Set(Some(SetId(number)))),
            _ => Err("give the number of a chunk set, from 1, or next".into()),
        },
    }
}

/// The sizes of a torus; None: no torus.
#[derive(Clone, Debug)]
struct Sizes(Option<Torus>);

fn sizes(text: &str) -> Result<Sizes, String> {
    match text {
        "none" => Ok(Sizes(None)),
        text => {
            text.parse().map(|torus| Sizes(Some(torus))).map_err(|why: plan::topology::torus::NoTorus| why.to_string())
        }
    }
}

fn coefficients(text: &str) -> Result<Coefficients, String> {
    let numbers: Vec<f64> = text.split(',').map(str::parse).collect::<Result<_, _>>().unwrap_or_default();
    let &[a, b, c, d] = &numbers[..] else { return Err("give four numbers, such as 0.5,0.5,0.5,2".into()) };
    let coefficients = Coefficients { a, b, c, d };
    let is_sound = Scoring { coefficients, ..Scoring::default() }.is_sound();
    is_sound.then_some(coefficients).ok_or_else(|| "each is 0 to 1000, and A or B is above 0".into())
}

fn tau(text: &str) -> Result<Tau, String> {
    match text.parse() {
        _ if text == "auto" => Ok(Tau::Tuned),
        Ok(tau) if (0.0..=MAX_TAU).contains(&tau) => Ok(Tau::Fixed(tau)),
        _ => Err(format!("give auto, or a number from 0 to {MAX_TAU}")),
    }
}

/// Shows or changes the placement of a volume.
///
/// `known` is the path of a target as the volume knows it.
pub fn run(arguments: &Arguments, volume: &FileSystem, known: impl Fn(&Path) -> PathBuf, as_json: bool) -> Outcome {
    if let Some(Set(set)) = arguments.explain {
        let explained = volume.explain_set(set)?;
        return if as_json { show::json(&document(&explained)) } else { print(&explained) };
    }
    set_torus(arguments, volume, known)?;
    let Some(policy) = arguments.policy else {
        let stays = if arguments.changes() { "; what is there stays" } else { "" };
        return tell(volume, stays, as_json);
    };
    let (coefficients, tau, evenness) = (arguments.coefficients, arguments.tau, arguments.evenness);
    let is_said = coefficients.is_some() || tau.is_some() || evenness.is_some();
    if is_said && !has_scores(policy) {
        return Err(Failure::Usage(format!("{policy} looks at no load: it has no coefficients")));
    }
    let usual = Scoring::default();
    let scoring = Scoring {
        coefficients: coefficients.unwrap_or(usual.coefficients),
        tau: tau.unwrap_or(usual.tau),
        evenness: evenness.unwrap_or(usual.evenness),
    };
    if !scoring.is_sound() {
        return Err(Failure::Usage("--evenness is 0 to 1000".into()));
    }
    let placement = Placement { policy, domain_level: arguments.domain_level, scoring: is_said.then_some(scoring) };
    volume.set_placement(placement)?;
    tell(volume, "; what is there stays", as_json)
}

/// Gives the volume a torus, or takes it away, if that is what is wanted.
fn set_torus(arguments: &Arguments, volume: &FileSystem, known: impl Fn(&Path) -> PathBuf) -> Outcome {
    let at: Vec<(PathBuf, Coordinates)> = arguments.at.iter().map(|(target, at)| (known(target), at.clone())).collect();
    match &arguments.torus {
        Some(Sizes(None)) if !at.is_empty() => Err(Failure::Usage("without a torus there are no places".into())),
        Some(Sizes(None)) => Ok(volume.forget_torus()?),
        Some(Sizes(torus)) => Ok(volume.set_torus(torus.clone(), &at)?),
        None if !at.is_empty() => Ok(volume.set_torus(None, &at)?),
        None => Ok(()),
    }
}

/// Shows how a volume places new data.
fn tell(volume: &FileSystem, stays: &str, as_json: bool) -> Outcome {
    let (placement, torus) = (volume.placement(), volume.torus());
    let paths: BTreeMap<TargetId, PathBuf> =
        volume.known_targets().into_iter().map(|target| (target.id, target.path)).collect();
    if as_json {
        let mut document = described(&placement);
        document["torus"] = torus.map_or(Value::Null, |torus| {
            let target = |(id, at): (&TargetId, &Coordinates)| {
                json!({ "id": id.0, "path": paths.get(id).map(|path| show::path(path)), "at": at.to_string() })
            };
            let targets: Vec<Value> = torus.of.iter().map(target).collect();
            json!({ "sizes": torus.torus.to_string(), "targets": targets })
        });
        return show::json(&document);
    }
    let within = torus.as_ref().map_or_else(String::new, |torus| format!(", in the torus {}", torus.torus));
    show::text(format_args!("new data is placed by {}{within}{stays}", words(&placement)))?;
    for (id, at) in torus.iter().flat_map(|torus| &torus.of) {
        if let Some(path) = paths.get(id) {
            show::text(format_args!("  {} is at {at}", Shown(path)))?;
        }
    }
    Ok(())
}

impl Arguments {
    /// Whether it changes the volume, or only shows something.
    pub fn changes(&self) -> bool {
        self.policy.is_some() || self.torus.is_some() || !self.at.is_empty()
    }
}

fn has_scores(policy: PolicyName) -> bool {
    matches!(policy, PolicyName::Adaptive | PolicyName::Prime)
}

fn words(placement: &Placement) -> String {
    let Scoring { coefficients: Coefficients { a, b, c, d }, tau, evenness } = placement.scoring();
    let tau = match tau {
        Tau::Tuned => "auto".into(),
        Tau::Fixed(tau) => tau.to_string(),
    };
    match placement.policy {
        policy if has_scores(policy) => {
            format!("{policy}, coefficients {a},{b},{c},{d}, tau {tau}, evenness {evenness}")
        }
        policy => policy.to_string(),
    }
}

fn described(placement: &Placement) -> Value {
    let scoring = has_scores(placement.policy).then(|| {
        let Scoring { coefficients, tau, evenness } = placement.scoring();
        let tau = match tau {
            Tau::Tuned => json!("auto"),
            Tau::Fixed(tau) => json!(tau),
        };
        json!({ "coefficients": coefficients, "tau": tau, "evenness": evenness })
    });
    json!({
        "placement": placement.policy.to_string(),
        "domain_level": placement.domain_level,
        "scoring": scoring,
    })
}

fn path_of(explained: &SetExplained, id: TargetId) -> String {
    explained.paths.get(&id).map_or_else(|| format!("target {}", id.0), |path| Shown(path).to_string())
}

/// The target from which the hops of the others are counted: the first choice of the policy.
fn centre(explained: &SetExplained) -> Option<TargetId> {
    explained.now.targets.iter().find(|target| target.rank == Some(0)).map(|target| target.id)
}

/// The member of a set on these targets with which the fewest links are crossed when it codes.
fn nearest(explained: &SetExplained, places: &[Option<TargetId>]) -> Option<TargetId> {
    let torus = explained.torus.as_ref()?;
    let links = |id: TargetId| Some((torus.links(None, 0, id, places)?, id));
    places.iter().flatten().filter_map(|id| links(*id)).min().map(|(_, id)| id)
}

/// Where a target is in the torus, and how far from another one.
fn whereabouts(explained: &SetExplained, id: TargetId, from: Option<TargetId>) -> String {
    let Some(at) = explained.torus.as_ref().and_then(|torus| torus.of.get(&id)) else { return String::new() };
    let hops = hops(explained, id, from);
    let hops = hops.map_or_else(String::new, |hops| format!(", {}", show::count(hops as usize, "hop")));
    format!(" (at {at}{hops})")
}

fn hops(explained: &SetExplained, id: TargetId, from: Option<TargetId>) -> Option<u32> {
    explained.torus.as_ref()?.between(from?, id)
}

fn print(explained: &SetExplained) -> Outcome {
    let (set, now) = (explained.now.set, &explained.now);
    match &explained.there {
        None => show::text(format_args!(
            "chunk set {set} is not placed yet; if it were now, by {}:",
            words(&explained.placement)
        ))?,
        Some(places) => {
            let master = nearest(explained, places);
            let from = master.map_or_else(String::new, |id| format!(", with hops from {}", path_of(explained, id)));
            show::text(format_args!("chunk set {set} is on{from}:"))?;
            for (position, id) in places.iter().enumerate() {
                let place = id.map_or_else(
                    || "nothing".into(),
                    |id| path_of(explained, id) + &whereabouts(explained, id, master),
                );
                show::text(format_args!("  {position:3}  {place}"))?;
            }
            show::text(format_args!(
                "what its choice saw is not kept; if it were placed now, by {}:",
                words(&explained.placement)
            ))?;
        }
    }
    if has_scores(explained.placement.policy) && explained.loads.is_empty() {
        show::text("  no load is known to this process: scores are of the space alone")?;
    }
    for target in &now.targets {
        let score = target.score.as_ref().map_or_else(String::new, |parts| {
            let inputs = &parts.inputs;
            let decides = match parts.delay > 0.0 {
                true => format!("the next write takes {:.1} ms, evenness {:.2}", 1e3 * parts.delay, parts.evenness),
                false => format!("share {:.2}", parts.share),
            };
            format!(
                ", score {:.3} (C {:.2}, F {:.2}, N {:.2}, T {:.2}), {decides}, {:+.1} chunks ahead",
                parts.score, inputs.idle, inputs.free, inputs.network, inputs.temperature, parts.ahead
            )
        });
        let rank = target.rank.map_or_else(|| "   ".into(), |rank| format!("{:3}", rank + 1));
        let at = whereabouts(explained, target.id, centre(explained));
        show::text(format_args!("  {rank}  {}{at}: {}{score}", path_of(explained, target.id), target.reason))?;
    }
    show::text(format_args!("  a domain may have {} of it", show::count(now.most_in_a_domain, "chunk")))
}

fn document(explained: &SetExplained) -> Value {
    let ids = |places: &[Option<TargetId>]| places.iter().map(|id| id.map(|id| id.0)).collect::<Vec<_>>();
    let targets = explained.now.targets.iter().map(|target| {
        json!({
            "id": target.id.0,
            "path": explained.paths.get(&target.id).map(|path| show::path(path)),
            "rank": target.rank,
            "at": explained.torus.as_ref().and_then(|torus| torus.of.get(&target.id)).map(ToString::to_string),
            "hops": hops(explained, target.id, centre(explained)),
            "score": target.score,
            "load": explained.loads.get(&target.id),
            "reason": target.reason,
            "in_words": target.reason.to_string(),
        })
    });
    json!({
        "chunk_set": explained.now.set.0,
        "placement": described(&explained.placement),
        "tau_now": explained.tau,
        "is_there": explained.there.as_deref().map(ids),
        "would_be": ids(&explained.now.places),
        "most_in_a_domain": explained.now.most_in_a_domain,
        "targets": targets.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_means_nothing_is_refused() {
        assert_eq!(coefficients("0.5,1,0,2"), Ok(Coefficients { a: 0.5, b: 1.0, c: 0.0, d: 2.0 }));
        for bad in ["", "1,2,3", "1,2,3,4,5", "1,2,3,x", "0,0,1,1", "-1,1,1,1", "nan,1,1,1", "1,1,inf,1"] {
            assert!(coefficients(bad).is_err(), "{bad}");
        }
        assert_eq!((tau("auto"), tau("0.5")), (Ok(Tau::Tuned), Ok(Tau::Fixed(0.5))));
        assert!(["1", "-0.1", "often", "nan"].into_iter().all(|bad| tau(bad).is_err()));
        assert!(set("next").unwrap().0.is_none() && set("7").unwrap().0 == Some(SetId(7)));
        assert!(["0", "-1", "last"].into_iter().all(|bad| set(bad).is_err()));
    }
}
