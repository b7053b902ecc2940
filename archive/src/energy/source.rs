//! The interface of all instruments, and the search for those of this machine.

use super::{gpu, meter, model::Model, perf, rapl, service};
use plan::energy::{Profile, Scope};
use std::path::PathBuf;
use std::time::Duration;

/// What a source reports.
#[derive(Clone, Debug, PartialEq)]
pub enum Reading {
    /// The power now.
    Watts(f64),
    /// The energy since a moment that stays the same.
    Joules(f64),
    /// New entries of a log since the last reading: seconds since 1970 and watts, in order.
    Log(Vec<(f64, f64)>),
}

/// An instrument.
pub trait Source: Send {
    /// Its short name.
    fn name(&self) -> &'static str;

    /// What exactly it reads.
    fn detail(&self) -> String;

    /// What it covers.
    fn scope(&self) -> Scope;

    /// Its error, as a share of the figure; None if it is unknown.
    fn error(&self) -> Option<f64>;

    /// The shortest useful interval between readings.
    fn period(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// Reads the instrument at `now`, in seconds since 1970.
    ///
    /// # Errors
    /// One line: why there is no plausible figure, and what to do about it.
    fn read(&mut self, now: f64) -> Result<Reading, String>;
}

/// Which instruments to use.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The log of an external meter.
    pub meter: Option<PathBuf>,
    /// A file with a service processor's readings.
    pub readings: Option<PathBuf>,
    /// A file that `perf stat` writes.
    pub perf: Option<PathBuf>,
    /// A file that `nvidia-smi` writes.
    pub gpu: Option<PathBuf>,
    /// Where the kernel shows counters of processor packages.
    pub powercap: PathBuf,
    /// The profile from a calibration of this machine.
    pub profile: Option<Profile>,
    /// The model, for the scopes that no instrument covers.
    pub model: Model,
}

impl Default for Choice {
    fn default() -> Self {
        Self {
            meter: None,
            readings: None,
            perf: None,
            gpu: None,
            powercap: PathBuf::from(rapl::POWERCAP),
            profile: None,
            model: Model::default(),
        }
    }
}

/// A candidate instrument: the instrument itself, or why it is not available.
pub struct FoundSource {
    /// Its short name.
    pub name: &'static str,
    /// Whether the user requested it, so that its absence is worth a warning.
    pub asked: bool,
    /// The instrument.
    pub source: Result<Box<dyn Source>, String>,
}

impl Choice {
    /// Looks for all instruments, in order of trust.
    pub fn find(&self) -> Vec<FoundSource> {
        let not_given = |what: &str| Err(format!("not given: {what}"));
        let meter = self
            .meter
            .as_ref()
            .map_or_else(|| not_given("the log of a meter at the plug"), |path| meter::Meter::open(path).map(boxed));
        let service = self.readings.as_ref().map_or_else(
            || not_given("readings that ipmitool or Redfish wrote"),
            |path| Ok(boxed(service::Service::new(path))),
        );
        let perf = match &self.perf {
            Some(path) => perf::Recorded::open(path).map(boxed),
            None => perf::Live::find().map(boxed),
        };
        let gpu = match &self.gpu {
            Some(path) => Ok(boxed(gpu::Gpu::recorded(path))),
            None => gpu::Gpu::live().map(boxed),
        };
        vec![
            FoundSource { name: meter::NAME, asked: self.meter.is_some(), source: meter },
            FoundSource { name: service::NAME, asked: self.readings.is_some(), source: service },
            FoundSource { name: rapl::NAME, asked: false, source: rapl::Rapl::open(&self.powercap).map(boxed) },
            FoundSource { name: perf::NAME, asked: self.perf.is_some(), source: perf },
            FoundSource { name: gpu::NAME, asked: self.gpu.is_some(), source: gpu },
        ]
    }
}

fn boxed<S: Source + 'static>(source: S) -> Box<dyn Source> {
    Box::new(source)
}

#[cfg(test)]
pub mod testing {
    //! Folders of recorded files.

    use std::io::Write;
    use std::path::PathBuf;

    /// A folder that is removed when the test ends.
    pub struct Scratch(PathBuf);

    impl Scratch {
        pub fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("weft-energy-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&folder);
            std::fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }

        pub fn path(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }

        /// Creates a file with this content, and its folders.
        pub fn file(&self, name: &str, content: &str) -> PathBuf {
            let path = self.path(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, content).unwrap();
            path
        }

        pub fn append(&self, name: &str, content: &str) {
            let mut file = std::fs::OpenOptions::new().append(true).open(self.path(name)).unwrap();
            file.write_all(content.as_bytes()).unwrap();
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}
