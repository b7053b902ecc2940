//! A service processor's reading of the whole machine, from a file that a timer rewrites: the
//! output of `ipmitool dcmi power reading`, or the Redfish answer for a chassis (`Power`,
//! `EnvironmentMetrics` or a sensor).
//!
//! Weft does not query the service processor itself: that needs its password, or root, and takes
//! tens of milliseconds.

use super::source::{Reading, Source};
use super::tail::last;
use plan::energy::Scope;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

/// Its short name.
pub const NAME: &str = "IPMI/Redfish";

/// How many bytes of the file's end are read.
const MAX_TAIL_BYTES: u64 = 1 << 20;

/// A file that was not written for this long is stale.
const STALE_SECONDS: f64 = 120.0;

/// A file of readings.
pub struct Service {
    path: PathBuf,
}

impl Service {
    /// The file need not exist yet.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }
}

impl Source for Service {
    fn name(&self) -> &'static str {
        NAME
    }

    fn detail(&self) -> String {
        self.path.display().to_string()
    }

    fn scope(&self) -> Scope {
        Scope::Node
    }

    /// Power supplies report their power to about five percent, averaged over a second or more.
    fn error(&self) -> Option<f64> {
        Some(0.05)
    }

    fn period(&self) -> Duration {
        Duration::from_secs(2)
    }

    fn read(&mut self, now: f64) -> Result<Reading, String> {
        let (text, written) = last(&self.path, MAX_TAIL_BYTES)?;
        let path = self.path.display();
        let age = now - written.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        if age > STALE_SECONDS {
            return Err(format!("{path}: written {age:.0} s ago; is the timer that writes it running?"));
        }
        match watts(&text).map_err(|why| format!("{path}: {why}"))? {
            0.0 => Err(format!("{path}: it reads 0 W, which cannot be")),
            watts => Ok(Reading::Watts(watts)),
        }
    }
}

/// The last power in the text.
fn watts(text: &str) -> Result<f64, String> {
    let watts = if text.trim_start().starts_with('{') { redfish(text)? } else { ipmi(text)? };
    if watts.is_finite() && watts >= 0.0 { Ok(watts) } else { Err(format!("it reads {watts} W, which cannot be")) }
}

fn ipmi(text: &str) -> Result<f64, String> {
    let value = |line: &str, name: &str| {
        Some(line.trim().strip_prefix(name)?.trim_start().strip_prefix(':')?.trim().to_owned())
    };
    if text
        .lines()
        .filter_map(|line| value(line, "Power reading state is"))
        .next_back()
        .is_some_and(|s| s != "activated")
    {
        return Err("the service processor says that its power reading is not activated".into());
    }
    let found = text.lines().filter_map(|line| value(line, "Instantaneous power reading")).next_back();
    let found =
        found.ok_or("there is no \"Instantaneous power reading\" in it; write it with ipmitool dcmi power reading")?;
    let number = found.strip_suffix("Watts").unwrap_or(&found).trim().parse();
    number.map_err(|_| format!("its power reading is {found:?}"))
}

fn redfish(text: &str) -> Result<f64, String> {
    let document: Value = serde_json::from_str(text).map_err(|error| format!("it is no JSON: {error}"))?;
    let sensor = || document["Reading"].as_f64().filter(|_| document["ReadingUnits"] == "W");
    let power = document["PowerControl"][0]["PowerConsumedWatts"].as_f64();
    let metrics = || document["PowerWatts"]["Reading"].as_f64();
    power.or_else(metrics).or_else(sensor).ok_or_else(|| {
        "there is no PowerControl[0].PowerConsumedWatts, no PowerWatts.Reading and no sensor's Reading in W in it"
            .into()
    })
}

#[cfg(test)]
mod tests {
    use super::super::source::testing::Scratch;
    use super::*;

    const DCMI: &str = "
    Instantaneous power reading:                   220 Watts
    Minimum during sampling period:                 18 Watts
    Maximum during sampling period:                425 Watts
    Average power reading over sample period:      214 Watts
    IPMI timestamp:                           Sat Nov 21 18:30:00 2026
    Sampling period:                          00000001 Seconds.
    Power reading state is:                   activated

";

    #[test]
    fn readings_of_both_kinds() {
        assert_eq!(watts(DCMI), Ok(220.0));
        assert_eq!(watts(&format!("{DCMI}{}", DCMI.replace("220", "231"))), Ok(231.0), "the last one");
        let power = r##"{"@odata.type": "#Power.v1_5_0.Power", "PowerControl": [{"Name": "System", "PowerConsumedWatts": 344.0}]}"##;
        assert_eq!(watts(power), Ok(344.0));
        assert_eq!(watts(r#"{"PowerWatts": {"Reading": 374}}"#), Ok(374.0));
        assert_eq!(watts(r#"{"Reading": 180.5, "ReadingUnits": "W"}"#), Ok(180.5));
    }

    #[test]
    fn what_is_no_reading_is_refused() {
        let wrong = [
            "",
            "Could not open device at /dev/ipmi0",
            "{\"PowerControl\": []}",
            "{\"PowerControl\": [{\"PowerConsumedWatts\": null}]}",
            "{\"Reading\": 21.5, \"ReadingUnits\": \"Cel\"}",
            "{\"PowerWatts\"",
        ];
        for text in wrong {
            assert!(watts(text).is_err(), "{text}");
        }
        assert!(watts(&DCMI.replace("220 Watts", "many Watts")).is_err() && watts(&DCMI.replace("220", "-5")).is_err());
        assert!(watts(&DCMI.replace(" activated", " deactivated")).unwrap_err().contains("not activated"));
    }

    #[test]
    fn files_that_are_missing_stale_or_zero_are_refused() {
        let scratch = Scratch::new("service");
        let mut service = Service::new(&scratch.path("power.txt"));
        assert!(service.read(0.0).unwrap_err().contains("no such file"));
        scratch.file("power.txt", DCMI);
        let now = std::time::SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        assert_eq!(service.read(now), Ok(Reading::Watts(220.0)));
        assert!(service.read(now + 1000.0).unwrap_err().contains("timer"));
        scratch.file("power.txt", &DCMI.replace("220", "0"));
        assert!(service.read(now).unwrap_err().contains("0 W"));
    }
}
