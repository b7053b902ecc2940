//! An external meter at the plug, read through the log that its own program writes. It is the most
//! trusted source.
//!
//! The log is CSV. The first line names the columns. One is the time (`time`, `timestamp`, `date`
//! or `datetime`: seconds since 1970, or universal time as `2026-11-21T18:30:00Z`) and one the
//! power (`watts`, `watt`, `w` or `power`, with or without a unit in brackets); other columns are
//! ignored. Without such a line, the first column is the time and the second the power in watts.

use super::source::{Reading, Source};
use super::tail::{Tail, unreadable};
use plan::energy::Scope;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Its short name.
pub const NAME: &str = "meter";

/// How many bytes of earlier log are read, so that there is a reading at the beginning of a job.
const EARLIER_LOG_BYTES: u64 = 4096;

/// A log without a new line for this long is stale.
const STALE_SECONDS: f64 = 60.0;

/// Lines that make no sense are ignored, until this many follow each other.
const MAX_GARBAGE_LINES: usize = 20;

/// The columns of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Columns {
    time: usize,
    watts: usize,
}

/// A meter's log.
pub struct Meter {
    path: PathBuf,
    columns: Columns,
    tail: Tail,
    latest: f64,
    garbage: usize,
}

impl Meter {
    /// Opens an existing log whose columns are understood.
    pub fn open(path: &Path) -> Result<Self, String> {
        let file = std::fs::File::open(path).map_err(|error| unreadable(path, &error))?;
        let mut first = vec![];
        BufReader::new(file.take(EARLIER_LOG_BYTES))
            .read_until(b'\n', &mut first)
            .map_err(|error| unreadable(path, &error))?;
        let columns = Columns::of(&String::from_utf8_lossy(&first)).ok_or_else(|| {
            format!("{}: its first line names no time and no power; call the columns time and watts", path.display())
        })?;
        let tail = Tail::open(path, EARLIER_LOG_BYTES)?;
        Ok(Self { path: path.to_owned(), columns, tail, latest: f64::NEG_INFINITY, garbage: 0 })
    }
}

impl Source for Meter {
    fn name(&self) -> &'static str {
        NAME
    }

    fn detail(&self) -> String {
        self.path.display().to_string()
    }

    fn scope(&self) -> Scope {
        Scope::Node
    }

    /// The accuracy that plug-in meters of the study's kind state.
    fn error(&self) -> Option<f64> {
        Some(0.015)
    }

    fn period(&self) -> Duration {
        Duration::from_secs(2)
    }

    fn read(&mut self, now: f64) -> Result<Reading, String> {
        let mut log = vec![];
        for line in self.tail.lines()? {
            match self.columns.read(&line) {
                Some((time, watts)) => {
                    self.garbage = 0;
                    if time > self.latest {
                        self.latest = time;
                        log.push((time, watts));
                    }
                }
                None => self.garbage += 1,
            }
            if self.garbage >= MAX_GARBAGE_LINES {
                return Err(format!(
                    "{}: {MAX_GARBAGE_LINES} lines in a row that are not readings, as {line:?}",
                    self.path.display()
                ));
            }
        }
        let silent = now - self.latest;
        if silent > STALE_SECONDS {
            let since = if self.latest.is_finite() { format!("for {silent:.0} s") } else { "yet".into() };
            return Err(format!(
                "{}: it logged nothing {since}; is the program of the meter running?",
                self.path.display()
            ));
        }
        if -silent > STALE_SECONDS {
            return Err(format!(
                "{}: its clock is {:.0} s ahead; times must be universal time",
                self.path.display(),
                -silent
            ));
        }
        Ok(Reading::Log(log))
    }
}

impl Columns {
    /// The columns that a first line names, or the default ones if that line is already a reading.
    fn of(line: &str) -> Option<Self> {
        let plain = Self { time: 0, watts: 1 };
        if plain.read(line).is_some() {
            return Some(plain);
        }
        let names: Vec<String> = line.split([',', ';']).map(name).collect();
        let find = |wanted: &[&str]| names.iter().position(|name| wanted.contains(&name.as_str()));
        Some(Self {
            time: find(&["time", "timestamp", "date", "datetime"])?,
            watts: find(&["watts", "watt", "w", "power"])?,
        })
    }

    /// Seconds since 1970 and watts; None for a line that does not have both.
    fn read(&self, line: &str) -> Option<(f64, f64)> {
        let field = |at: usize| line.split([',', ';']).nth(at).map(|field| field.trim().trim_matches('"'));
        let watts: f64 = field(self.watts)?.trim_end_matches(['W', 'w']).trim().parse().ok()?;
        let time = moment(field(self.time)?)?;
        (watts.is_finite() && watts >= 0.0).then_some((time, watts))
    }
}

/// A column's name without unit, quotes and capitals.
fn name(field: &str) -> String {
    let field = field.trim().trim_matches(['"', '\u{feff}']);
    field.split(['(', '[']).next().unwrap_or_default().trim().to_lowercase()
}

/// Seconds since 1970, from such a number or from a date and time in universal time. A number that
/// means a time before 2001 is refused: it counts the seconds since the meter was switched on.
fn moment(text: &str) -> Option<f64> {
    if let Ok(seconds) = text.parse::<f64>() {
        return (1e9..1e11).contains(&seconds).then_some(seconds);
    }
    let text = text.trim_end_matches(['Z', 'z']);
    let (date, time) = text.split_once(['T', ' '])?;
    let mut date = date.splitn(3, '-').map(str::parse::<u32>);
    let (year, month, day) = (date.next()?.ok()?, date.next()?.ok()?, date.next()?.ok()?);
    let mut time = time.splitn(3, ':');
    let (hour, minute): (u32, u32) = (time.next()?.parse().ok()?, time.next()?.parse().ok()?);
    let second: f64 = time.next()?.parse().ok()?;
    let sane = (1970..10_000).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !(sane && hour < 24 && minute < 60 && (0.0..61.0).contains(&second)) {
        return None;
    }
    // Count years from March on, so that the leap day comes last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719_468;
    Some(f64::from(days) * 86_400.0 + f64::from(hour * 3600 + minute * 60) + second)
}

#[cfg(test)]
mod tests {
    use super::super::source::testing::Scratch;
    use super::*;

    #[test]
    fn moments_are_those_of_the_calendar() {
        assert_eq!(moment("1970-01-01T00:00:00Z"), Some(0.0));
        assert_eq!(moment("2000-02-29 00:00:00"), Some(951_782_400.0));
        assert_eq!(moment("2026-11-21T18:30:00.5Z"), Some(1_795_285_800.5));
        assert_eq!(moment("1795285800"), Some(1_795_285_800.0));
        for wrong in
            ["", "12", "yesterday", "2026-13-01T00:00:00Z", "2026-01-01", "2026-01-01T25:00:00", "nan", "-1e300"]
        {
            assert_eq!(moment(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_log_is_followed_as_it_grows() {
        let scratch = Scratch::new("meter");
        let log = scratch.file("log.csv", "Time,Volts,\"Watts (W)\"\n1795285800,119.9,60.5\n1795285801,120.1,61\n");
        let mut meter = Meter::open(&log).unwrap();
        assert_eq!(
            meter.read(1_795_285_802.0),
            Ok(Reading::Log(vec![(1_795_285_800.0, 60.5), (1_795_285_801.0, 61.0)]))
        );
        scratch.append("log.csv", "1795285802,120,62\n17952858");
        assert_eq!(meter.read(1_795_285_803.0), Ok(Reading::Log(vec![(1_795_285_802.0, 62.0)])));
        scratch.append("log.csv", "03,120,63\r\nhello,,\n");
        assert_eq!(
            meter.read(1_795_285_804.0),
            Ok(Reading::Log(vec![(1_795_285_803.0, 63.0)])),
            "half a line, then garbage"
        );
        assert!(meter.read(1_795_285_900.0).unwrap_err().contains("nothing for 97 s"));
    }

    #[test]
    fn logs_that_are_none_are_refused() {
        let scratch = Scratch::new("meter-bad");
        let refused = |content: &str| Meter::open(&scratch.file("log.csv", content)).err();
        assert!(refused("").is_some() && refused("volts,amps\n1,2\n").is_some() && refused("0.5,60\n").is_some());
        assert!(Meter::open(&scratch.path("missing")).err().unwrap().contains("no such file"));
        let garbage = scratch.file("log.csv", &format!("time,watts\n{}", "what,ever\n".repeat(30)));
        assert!(Meter::open(&garbage).unwrap().read(0.0).unwrap_err().contains("not readings"));
        let ahead = scratch.file("log.csv", "2026-11-21T19:30:00Z,60\n");
        assert!(Meter::open(&ahead).unwrap().read(1_795_285_800.0).unwrap_err().contains("3600 s ahead"));
        let empty = scratch.file("log.csv", "time,watts\n");
        assert!(Meter::open(&empty).unwrap().read(1_795_285_800.0).unwrap_err().contains("nothing yet"));
    }
}
