//! Power of graphics processors as `nvidia-smi --query-gpu=power.draw --format=csv` reports it:
//! from the running program, or from a file that another program keeps writing. Weft codes on CPUs,
//! so this serves machines whose graphics processors idle meanwhile.

use super::source::{Reading, Source};
use super::tail::last;
use plan::energy::Scope;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, UNIX_EPOCH};

/// Its short name.
pub const NAME: &str = "NVML";

const PROGRAM: &str = "nvidia-smi";
const QUERY: [&str; 2] = ["--query-gpu=power.draw", "--format=csv"];

/// A program that does not answer within this time is stopped.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
const STALE_SECONDS: f64 = 120.0;
const MAX_OUTPUT_BYTES: u64 = 64 << 10;

/// The power of all graphics processors.
pub struct Gpu {
    /// The file to read; None: run the program.
    path: Option<PathBuf>,
}

impl Gpu {
    /// Reads a recorded file.
    pub fn recorded(path: &Path) -> Self {
        Self { path: Some(path.to_owned()) }
    }

    /// Reads from the program, if it is installed.
    pub fn live() -> Result<Self, String> {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let there = std::env::split_paths(&folders).any(|folder| folder.join(PROGRAM).is_file());
        if there { Ok(Self { path: None }) } else { Err(format!("none here: there is no {PROGRAM}")) }
    }
}

impl Source for Gpu {
    fn name(&self) -> &'static str {
        NAME
    }

    fn detail(&self) -> String {
        self.path.as_ref().map_or_else(|| PROGRAM.to_owned(), |path| path.display().to_string())
    }

    fn scope(&self) -> Scope {
        Scope::Gpu
    }

    /// The manufacturer states five percent.
    fn error(&self) -> Option<f64> {
        Some(0.05)
    }

    /// A query takes tens of milliseconds.
    fn period(&self) -> Duration {
        Duration::from_secs(5)
    }

    fn read(&mut self, now: f64) -> Result<Reading, String> {
        let Some(path) = &self.path else { return watts(&ask()?).map(Reading::Watts) };
        let (text, written) = last(path, MAX_OUTPUT_BYTES)?;
        let age = now - written.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        if age > STALE_SECONDS {
            return Err(format!("{}: written {age:.0} s ago; is what writes it running?", path.display()));
        }
        watts(&text).map(Reading::Watts).map_err(|why| format!("{}: {why}", path.display()))
    }
}

fn ask() -> Result<String, String> {
    let mut child = Command::new(PROGRAM)
        .args(QUERY)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("{PROGRAM} does not start: {error}"))?;
    let deadline = Instant::now() + ANSWER_TIMEOUT;
    // The output fits into the pipe, so that the program can exit before it is read.
    loop {
        match child.try_wait() {
            Ok(Some(_)) => break,
            Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
            Ok(None) | Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("{PROGRAM} does not answer within {} s", ANSWER_TIMEOUT.as_secs()));
            }
        }
    }
    let output = child.wait_with_output().map_err(|error| format!("{PROGRAM}: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The sum over all processors below the last heading. Processors that report no power are left
/// out.
fn watts(text: &str) -> Result<f64, String> {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let heading = lines.iter().rposition(|line| line.starts_with("power.draw"));
    let heading = heading.ok_or_else(|| {
        let first: String = lines.first().unwrap_or(&"").chars().take(120).collect();
        format!("there is no heading power.draw; it says {first:?}")
    })?;
    let mut readings = vec![];
    for line in &lines[heading + 1..] {
        if line.starts_with('[') {
            continue;
        }
        let number = line.strip_suffix('W').unwrap_or(line).trim().parse::<f64>();
        readings.push(
            number.ok().filter(|w| w.is_finite() && *w >= 0.0).ok_or_else(|| format!("{line:?} is not a power"))?,
        );
    }
    match readings.iter().sum::<f64>() {
        0.0 if readings.is_empty() => Err("no graphics processor tells its power".into()),
        0.0 => Err("it reads 0 W, which cannot be".into()),
        watts => Ok(watts),
    }
}

#[cfg(test)]
mod tests {
    use super::super::source::testing::Scratch;
    use super::*;

    #[test]
    fn processors_are_added_up() {
        assert_eq!(watts("power.draw [W]\n74.50 W\n81.00 W\n"), Ok(155.5));
        assert_eq!(watts("power.draw [W]\n74.54 W\npower.draw [W]\n90.00 W\n[N/A]\n"), Ok(90.0), "the last reading");
    }

    #[test]
    fn what_is_no_power_is_refused() {
        let wrong = [
            "",
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
            "power.draw [W]\n",
            "power.draw [W]\n[Not Supported]\n",
            "power.draw [W]\n0.00 W\n",
            "power.draw [W]\nlots W\n",
            "power.draw [W]\n-3 W\n",
        ];
        for text in wrong {
            assert!(watts(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_file_must_be_new() {
        let scratch = Scratch::new("gpu");
        let path = scratch.file("gpu.csv", "power.draw [W]\n74.54 W\n");
        let now = std::time::SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        assert_eq!(Gpu::recorded(&path).read(now), Ok(Reading::Watts(74.54)));
        assert!(Gpu::recorded(&path).read(now + 500.0).unwrap_err().contains("ago"));
        assert!(Gpu::recorded(&scratch.path("none")).read(now).unwrap_err().contains("no such file"));
    }
}
