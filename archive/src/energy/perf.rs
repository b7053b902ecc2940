//! The same counters through `perf stat`, for kernels that give them to perf but not as files: from
//! a running perf, or from a file that a run with `-I 1000 -x,` wrote.

use super::source::{Reading, Source};
use super::tail::Tail;
use plan::energy::Scope;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use volume::lock;

/// Its short name.
pub const NAME: &str = "perf";

/// Where the kernel lists its energy events.
const EVENTS: &str = "/sys/bus/event_source/devices/power/events";

/// Events whose energies add up, if the kernel has them.
const WANTED: [&str; 2] = ["energy-pkg", "energy-ram"];

/// The sum of the counts in the lines of `perf stat -I 1000 -x,` so far.
#[derive(Debug, Default)]
struct Counted {
    joules: f64,
    readings: usize,
    /// The last line that says why there is no count.
    refusal: Option<String>,
}

impl Counted {
    /// Adds a line `SECONDS,JOULES,Joules,power/energy-pkg/,...`. Without a count, its second field
    /// says why.
    fn add(&mut self, line: &str) -> Result<(), String> {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            return Ok(());
        }
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let event = fields.iter().find(|field| WANTED.iter().any(|event| field.contains(event)));
        if event.is_none() {
            // Error messages of perf itself have another form.
            self.refusal = Some(line.chars().take(200).collect());
            return Ok(());
        }
        let count =
            if fields[0].parse::<f64>().is_ok() && fields.get(2) == Some(&"Joules") { fields.get(1) } else { None };
        match count.and_then(|count| count.parse::<f64>().ok()).filter(|joules| joules.is_finite() && *joules >= 0.0) {
            Some(joules) => {
                self.joules += joules;
                self.readings += 1;
            }
            None if line.contains("<not ") => {
                self.refusal = Some("the event is not counted here (<not supported>)".into())
            }
            None => return Err(format!("{line:?} is not a line of perf stat -I 1000 -x,")),
        }
        Ok(())
    }

    fn reading(&self) -> Result<Reading, String> {
        match &self.refusal {
            Some(why) if self.readings == 0 => Err(format!("perf counts nothing: {why}")),
            _ => Ok(Reading::Joules(self.joules)),
        }
    }
}

/// A file that `perf stat -a -I 1000 -x, -e power/energy-pkg/ -o FILE` writes.
pub struct Recorded {
    path: PathBuf,
    tail: Tail,
    counted: Counted,
}

impl Recorded {
    /// Opens the file and reads from its end on.
    pub fn open(path: &Path) -> Result<Self, String> {
        Ok(Self { path: path.to_owned(), tail: Tail::open(path, 0)?, counted: Counted::default() })
    }
}

impl Source for Recorded {
    fn name(&self) -> &'static str {
        NAME
    }

    fn detail(&self) -> String {
        self.path.display().to_string()
    }

    fn scope(&self) -> Scope {
        Scope::Package
    }

    fn error(&self) -> Option<f64> {
        Some(0.05)
    }

    fn read(&mut self, _: f64) -> Result<Reading, String> {
        for line in self.tail.lines()? {
            self.counted.add(&line).map_err(|why| format!("{}: {why}", self.path.display()))?;
        }
        self.counted.reading()
    }
}

/// A `perf stat` that this process runs.
pub struct Live {
    events: String,
    child: Option<Child>,
    counted: Arc<Mutex<Result<Counted, String>>>,
}

impl Live {
    /// Checks that the kernel has the events; perf itself starts with the first reading.
    pub fn find() -> Result<Self, String> {
        let there = WANTED.iter().filter(|event| Path::new(EVENTS).join(event).exists());
        let events: Vec<String> = there.map(|event| format!("power/{event}/")).collect();
        if events.is_empty() {
            return Err("none here: the kernel has no power/energy-pkg event (is this a virtual machine?)".into());
        }
        Ok(Self { events: events.join(","), child: None, counted: Arc::new(Mutex::new(Ok(Counted::default()))) })
    }

    fn start(&mut self) -> Result<(), String> {
        let mut child = Command::new("perf")
            .args(["stat", "-a", "-I", "1000", "-x,", "-e", &self.events])
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("perf does not start: {error}; install linux-perf"))?;
        let lines = child.stderr.take().expect("piped");
        self.child = Some(child);
        let counted = Arc::clone(&self.counted);
        std::thread::spawn(move || follow(lines, &counted));
        Ok(())
    }
}

/// Adds up perf's output until perf ends.
fn follow(lines: impl Read, counted: &Mutex<Result<Counted, String>>) {
    for line in BufReader::new(lines).lines() {
        let mut counted = lock(counted);
        let added = match (&mut *counted, line) {
            (Ok(counted), Ok(line)) => counted.add(&line),
            (_, Err(error)) => Err(format!("perf cannot be read: {error}")),
            (Err(_), _) => return,
        };
        if let Err(why) = added {
            *counted = Err(why);
        }
    }
}

impl Source for Live {
    fn name(&self) -> &'static str {
        NAME
    }

    fn detail(&self) -> String {
        self.events.clone()
    }

    fn scope(&self) -> Scope {
        Scope::Package
    }

    fn error(&self) -> Option<f64> {
        Some(0.05)
    }

    fn read(&mut self, _: f64) -> Result<Reading, String> {
        if self.child.is_none() {
            self.start()?;
        }
        let counted = lock(&self.counted);
        counted.as_ref().map_err(Clone::clone)?.reading()
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::source::testing::Scratch;
    use super::*;

    const RECORDED: &str = "# started on Sat Nov 21 18:30:00 2026

     1.001068310,31.25,Joules,power/energy-pkg/,1001044210,100.00,,
     1.001068310,4.50,Joules,power/energy-ram/,1001041940,100.00,,
     2.002301337,30.25,Joules,power/energy-pkg/,1001187463,100.00,,
";

    #[test]
    fn a_file_is_added_up_from_the_moment_on() {
        let scratch = Scratch::new("perf");
        let path = scratch.file("perf.csv", RECORDED);
        let mut recorded = Recorded::open(&path).unwrap();
        assert_eq!(recorded.read(0.0), Ok(Reading::Joules(0.0)), "what was before does not count");
        scratch.append("perf.csv", &RECORDED.replace('#', "# again"));
        assert_eq!(recorded.read(1.0), Ok(Reading::Joules(66.0)));
        scratch.append("perf.csv", "rubbish power/energy-pkg/\n");
        assert!(recorded.read(2.0).unwrap_err().contains("not a line of perf"));
        assert!(Recorded::open(&scratch.path("missing")).is_err());
    }

    #[test]
    fn events_that_are_not_counted_say_why() {
        let of = |text: &str| {
            let mut counted = Counted::default();
            text.lines().try_for_each(|line| counted.add(line))?;
            counted.reading()
        };
        assert_eq!(of(RECORDED), Ok(Reading::Joules(66.0)));
        let unsupported = "1.000,<not supported>,Joules,power/energy-pkg/,0,100.00,,";
        assert!(of(unsupported).unwrap_err().contains("not supported"));
        let denied = "Error:\nAccess to performance monitoring and observability operations is limited.";
        assert!(of(denied).unwrap_err().contains("is limited"));
        for wrong in
            ["x,1.0,Joules,power/energy-pkg/", "1.0,-3,Joules,power/energy-pkg/", "1.0,nan,Joules,power/energy-pkg/"]
        {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
