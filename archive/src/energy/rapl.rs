//! Counters of processor packages and their memory (RAPL), as the kernel shows them under
//! `/sys/class/powercap`.
//!
//! Each counter wraps at a range of its own, some of them within minutes, so that it is read every
//! second. The parts of packages (cores, graphics) and the platform that contains the packages are
//! not added, because they would count twice.

use super::source::{Reading, Source};
use super::tail::unreadable;
use plan::energy::Scope;
use std::path::{Path, PathBuf};

/// Its short name.
pub const NAME: &str = "RAPL";

/// Where the kernel shows the counters.
pub const POWERCAP: &str = "/sys/class/powercap";

/// No package draws more: a counter that implies more was reset and did not wrap.
const MAX_PACKAGE_WATTS: f64 = 5000.0;

/// A counter.
struct Domain {
    name: String,
    counter: PathBuf,
    range_microjoules: u64,
    /// Its last value, and when that was read.
    last: Option<(u64, f64)>,
}

/// The counters of all packages.
pub struct Rapl {
    domains: Vec<Domain>,
    microjoules: u64,
}

impl Rapl {
    /// Finds the counters in a folder with the kernel's layout.
    pub fn open(folder: &Path) -> Result<Self, String> {
        let none =
            || format!("none here: {} has no intel-rapl counters (is this a virtual machine?)", folder.display());
        let entries = match std::fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(none()),
            Err(error) => return Err(unreadable(folder, &error)),
        };
        let mut zones: Vec<PathBuf> =
            entries.flatten().map(|entry| entry.path()).filter(|path| is_zone(path)).collect();
        zones.sort();
        let mut domains = vec![];
        for zone in zones {
            let name = std::fs::read_to_string(zone.join("name")).unwrap_or_default().trim().to_owned();
            if name.starts_with("package") || name == "dram" {
                domains.push(Domain::open(&zone, name)?);
            }
        }
        if domains.is_empty() { Err(none()) } else { Ok(Self { domains, microjoules: 0 }) }
    }
}

/// Zones are `intel-rapl:0` and, inside, `intel-rapl:0:1`; `intel-rapl-mmio:0` shows the same
/// package again.
fn is_zone(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("intel-rapl:"))
}

impl Domain {
    fn open(zone: &Path, name: String) -> Result<Self, String> {
        let range_microjoules = number(&zone.join("max_energy_range_uj"))?;
        let domain = Self { name, counter: zone.join("energy_uj"), range_microjoules, last: None };
        number(&domain.counter)?;
        Ok(domain)
    }

    /// The energy since the last reading.
    fn more(&mut self, now: f64) -> Result<u64, String> {
        let value = number(&self.counter)?;
        let strange = |what: &str| format!("{}: {value} {what}", self.counter.display());
        if value > self.range_microjoules {
            return Err(strange("is more than its range"));
        }
        let Some((last, at)) = self.last.replace((value, now)) else { return Ok(0) };
        let more = if value >= last { value - last } else { self.range_microjoules - last + value };
        if more as f64 > (now - at).max(0.1) * MAX_PACKAGE_WATTS * 1e6 {
            return Err(strange(&format!("cannot follow {last}: the counter was set back")));
        }
        Ok(more)
    }
}

fn number(path: &Path) -> Result<u64, String> {
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
    text.trim().parse().map_err(|_| format!("{}: {:?} is not a counter", path.display(), text.trim()))
}

impl Source for Rapl {
    fn name(&self) -> &'static str {
        NAME
    }

    fn detail(&self) -> String {
        self.domains.iter().map(|domain| domain.name.as_str()).collect::<Vec<_>>().join(", ")
    }

    fn scope(&self) -> Scope {
        Scope::Package
    }

    /// Studies find that the counters are within a few percent of meters at the package's supply.
    fn error(&self) -> Option<f64> {
        Some(0.05)
    }

    fn read(&mut self, now: f64) -> Result<Reading, String> {
        for domain in &mut self.domains {
            self.microjoules += domain.more(now)?;
        }
        Ok(Reading::Joules(self.microjoules as f64 / 1e6))
    }
}

#[cfg(test)]
mod tests {
    use super::super::source::testing::Scratch;
    use super::*;

    fn zone(scratch: &Scratch, zone: &str, name: &str, energy: &str, range: &str) {
        scratch.file(&format!("{zone}/name"), &format!("{name}\n"));
        scratch.file(&format!("{zone}/energy_uj"), &format!("{energy}\n"));
        scratch.file(&format!("{zone}/max_energy_range_uj"), &format!("{range}\n"));
    }

    const RANGE: &str = "262143328850";

    /// The zones of a machine with two packages, their memory, and zones that must not be counted
    /// twice.
    fn machine(scratch: &Scratch) -> Rapl {
        zone(scratch, "intel-rapl:0", "package-0", "1000000", RANGE);
        zone(scratch, "intel-rapl:0:0", "core", "700000", RANGE);
        zone(scratch, "intel-rapl:0:1", "dram", "500000", "65712999613");
        zone(scratch, "intel-rapl:1", "package-1", "262143000000", RANGE);
        zone(scratch, "intel-rapl:2", "psys", "9000000", RANGE);
        zone(scratch, "intel-rapl-mmio:0", "package-0", "1000000", RANGE);
        scratch.file("intel-rapl/enabled", "1\n");
        Rapl::open(&scratch.path("")).unwrap()
    }

    #[test]
    fn packages_and_memory_are_added_up_and_wraps_are_seen() {
        let scratch = Scratch::new("rapl");
        let mut rapl = machine(&scratch);
        assert_eq!(rapl.detail(), "package-0, dram, package-1");
        assert_eq!(rapl.read(0.0), Ok(Reading::Joules(0.0)));
        scratch.file("intel-rapl:0/energy_uj", "51000000\n");
        scratch.file("intel-rapl:0:1/energy_uj", "2500000\n");
        scratch.file("intel-rapl:1/energy_uj", "671150\n");
        assert_eq!(rapl.read(1.0), Ok(Reading::Joules(50.0 + 2.0 + 1.0)), "package-1 went round");
        assert_eq!(rapl.read(2.0), Ok(Reading::Joules(53.0)));
    }

    #[test]
    fn garbage_is_refused() {
        let scratch = Scratch::new("rapl-bad");
        let mut rapl = machine(&scratch);
        rapl.read(0.0).unwrap();
        for (value, why) in
            [("", "is not a counter"), ("-5", "is not a counter"), ("999262143328850", "more than its range")]
        {
            scratch.file("intel-rapl:0/energy_uj", value);
            assert!(rapl.read(1.0).unwrap_err().contains(why), "{value}");
        }
        scratch.file("intel-rapl:0/energy_uj", "0");
        assert!(rapl.read(2.0).unwrap_err().contains("set back"), "as after a suspension");
        std::fs::remove_file(scratch.path("intel-rapl:0/energy_uj")).unwrap();
        assert!(rapl.read(3.0).unwrap_err().contains("no such file"));
        scratch.file("intel-rapl:0/max_energy_range_uj", "lots");
        assert!(Rapl::open(&scratch.path("")).is_err());
    }

    #[test]
    fn none_here_says_so() {
        let scratch = Scratch::new("rapl-none");
        let error = |folder: &str| Rapl::open(&scratch.path(folder)).err().unwrap();
        assert!(error("").contains("none here") && error("missing").contains("none here"));
    }

    /// Only root may read the counters since they were found to leak secrets.
    #[cfg(unix)]
    #[test]
    fn a_counter_that_may_not_be_read_says_what_to_do() {
        use std::os::unix::fs::PermissionsExt;
        let scratch = Scratch::new("rapl-denied");
        drop(machine(&scratch));
        let counter = scratch.path("intel-rapl:0/energy_uj");
        std::fs::set_permissions(&counter, std::fs::Permissions::from_mode(0o000)).unwrap();
        match Rapl::open(&scratch.path("")) {
            Err(error) => assert!(error.contains("permission denied; run as root"), "{error}"),
            Ok(_) => assert!(std::fs::read(&counter).is_ok(), "root may read it all the same"),
        }
        assert!(unreadable(&counter, &std::io::ErrorKind::PermissionDenied.into()).contains("run as root"));
    }
}
