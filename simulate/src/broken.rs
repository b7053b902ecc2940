//! Rules that a run can break, to show that the checks find it. Only the simulated ways break them:
//! the code of Weft stays as it is.

use std::str::FromStr;

/// A rule that does not hold in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// None: this is what is tested.
    Nothing,
    /// The server carries out a request as often as it arrives, and stores no idempotency key.
    Once,
    /// The server answers a sync before it happened.
    Sync,
    /// The server grants each lock at once.
    Locks,
    /// A client says that it has committed what others want to read, and it has not.
    Recalls,
    /// A store says that its disk has synced, and it has not.
    Disks,
    /// A store does not look whose claim it is under which it is changed. With `--failovers` only.
    Fences,
    /// A store grants a claim while another holder's lease runs. With `--failovers` only.
    Leases,
    /// A server does not ask witnesses whether a store that has lost everything has lost the claim
    /// of a later opening. With `--failovers` only.
    Witnesses,
    /// A server looks at a clock that stands still while its machine is suspended. With
    /// `--failovers` only.
    Clocks,
}

/// All rules, with their names on the command line.
pub const ALL: [(&str, Broken); 9] = [
    ("once", Broken::Once),
    ("sync", Broken::Sync),
    ("locks", Broken::Locks),
    ("recalls", Broken::Recalls),
    ("disks", Broken::Disks),
    ("fences", Broken::Fences),
    ("leases", Broken::Leases),
    ("witnesses", Broken::Witnesses),
    ("clocks", Broken::Clocks),
];

impl FromStr for Broken {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = ALL.iter().find(|(known, _)| *known == name).map(|(_, broken)| *broken);
        found.ok_or_else(|| format!("{name}: the rules are {}", ALL.map(|(name, _)| name).join(", ")))
    }
}
