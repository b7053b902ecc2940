//! Lists the instruments of this machine and what they read now.

use super::choice::{Choice, FoundSource};
use super::curve::Curve;
use plan::energy::Scope;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// An instrument that was looked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// Its short name.
    pub name: &'static str,
    /// What exactly it reads and what that covers; None if the instrument does not exist.
    pub what: Option<(String, Scope)>,
    /// Its error, as a share of the figure.
    pub error: Option<f64>,
    /// Its mean power during the reading, or why there is none.
    pub watts: Result<f64, String>,
}

/// Reads all instruments for this many seconds, in order of trust. Stops earlier when `go_on`
/// returns false.
pub fn look(choice: &Choice, seconds: f64, go_on: &dyn Fn() -> bool) -> Vec<Seen> {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    let began = Instant::now();
    let now = || unix + began.elapsed().as_secs_f64();
    let mut all: Vec<_> = choice.find().into_iter().map(|found| (found, Ok(Curve::default()))).collect();
    loop {
        for (found, curve) in &mut all {
            let (Ok(source), Ok(known)) = (&mut found.source, &mut *curve) else { continue };
            let at = now();
            if let Err(why) = source.read(at).and_then(|reading| known.add(now(), reading)) {
                *curve = Err(why);
            }
        }
        let left = seconds - began.elapsed().as_secs_f64();
        if left <= 0.0 || !go_on() {
            break;
        }
        std::thread::sleep(Duration::from_secs_f64(left.clamp(0.01, 0.25)));
    }
    let (from, to) = (unix, now());
    let seen = |(found, curve): (FoundSource, Result<Curve, String>)| match found.source {
        Err(why) => Seen { name: found.name, what: None, error: None, watts: Err(why) },
        Ok(source) => Seen {
            name: found.name,
            what: Some((source.detail(), source.scope())),
            error: source.error(),
            watts: curve.and_then(|curve| curve.between(from, to)).map(|joules| joules / (to - from)),
        },
    };
    all.into_iter().map(seen).collect()
}

#[cfg(test)]
mod tests {
    use super::super::source::testing::Scratch;
    use super::*;

    #[test]
    fn instruments_come_in_order_of_trust_with_their_power_or_a_reason() {
        let scratch = Scratch::new("look");
        let readings = scratch.file("power.json", r#"{"PowerWatts": {"Reading": 374}}"#);
        let choice = Choice {
            meter: Some(scratch.path("missing.csv")),
            readings: Some(readings),
            powercap: scratch.path("none"),
            ..Choice::default()
        };
        let seen = look(&choice, 0.05, &|| true);
        let names: Vec<&str> = seen.iter().map(|seen| seen.name).collect();
        assert_eq!(names, ["meter", "IPMI/Redfish", "RAPL", "perf", "NVML"]);
        assert!(seen[0].watts.as_ref().is_err_and(|why| why.contains("no such file")));
        assert!(seen[1].watts.as_ref().is_ok_and(|watts| (watts - 374.0).abs() < 1e-6), "{:?}", seen[1]);
        assert!(seen[2].watts.as_ref().is_err_and(|why| why.contains("none here")));
    }
}
