//! Which instruments to use, and the search for those of this machine.

use super::model::Model;
use super::source::Source;
use super::{gpu, meter, perf, rapl, service};
use plan::energy::Profile;
use std::path::PathBuf;

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
