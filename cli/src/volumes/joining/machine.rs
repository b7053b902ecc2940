//! What a machine of a cluster has on its disk: keys, a file of settings, units.

use super::super::server::io;
use super::files::{failed, give_alone, make, write_once};
use crate::failure::Failure;
use clap::Args;
use serde_json::{Map, Value};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use volume::Shown;

/// Where keys and settings of a machine are, and what the packages' units read.
pub const DIRECTORY: &str = "/etc/weft";
/// Where volumes and, if nothing else is said, targets are.
const STATE: &str = "/var/lib/weft";

/// A machine with a store.
#[derive(Args)]
pub struct MachineArguments {
    /// What this machine is called in the cluster [default: its host name]
    #[arg(long)]
    pub name: Option<String>,
    /// A disk of this machine, as an empty directory on it; with --disk DIR DIR .. several
    /// [default: /var/lib/weft/disk0]
    #[arg(long = "disk", value_name = "DIR", num_args = 1..)]
    pub disks: Vec<PathBuf>,
    /// The port of its store
    #[arg(long, default_value_t = 7701)]
    pub port: u16,
    /// Its failure domain, from the large to the small, such as rack1/host3 [default: its name]
    #[arg(long, value_name = "PATH")]
    pub domain: Option<fs::Domain>,
    /// Start no unit, also where systemd runs
    #[arg(long)]
    pub no_start: bool,
}

impl MachineArguments {
    /// Its name.
    pub fn name(&self) -> String {
        let host = || volume::machine::host().trim().split('.').next().unwrap_or_default().to_owned();
        self.name.clone().unwrap_or_else(host)
    }

    /// The directories of its targets.
    pub fn targets(&self) -> Result<Vec<PathBuf>, Failure> {
        if self.disks.is_empty() {
            return Ok(vec![Path::new(STATE).join("disk0")]);
        }
        self.disks.iter().map(|disk| std::path::absolute(disk).map_err(io)).collect()
    }

    /// The same, as others call them, of a store at a host.
    pub fn addresses(&self, host: IpAddr) -> Result<Vec<String>, Failure> {
        let named = |path: &PathBuf| {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
            name.ok_or_else(|| Failure::Usage(format!("{} has no name", Shown(path))))
        };
        let at = at(host, self.port);
        self.targets()?.iter().map(|path| Ok(format!("store://{at}/{}", named(path)?))).collect()
    }
}

/// A metadata server on a machine.
#[derive(Args)]
pub struct MetaArguments {
    /// The volume's directory on this machine, which has nothing that cannot be rebuilt [default:
    /// /var/lib/weft/NAME]
    #[arg(long, value_name = "DIR")]
    at: Option<PathBuf>,
    /// The port of the metadata server
    #[arg(long, default_value_t = 7600)]
    port: u16,
    /// The directory of keys and settings
    #[arg(long, value_name = "DIR", default_value = DIRECTORY)]
    directory: PathBuf,
    /// Start no unit, also where systemd runs
    #[arg(long)]
    no_start: bool,
}

impl MetaArguments {
    /// The directory of keys and settings.
    pub fn directory(&self) -> Result<PathBuf, Failure> {
        std::path::absolute(&self.directory).map_err(io)
    }

    /// The directory of a volume.
    pub fn place(&self, volume: &str) -> Result<PathBuf, Failure> {
        let place = self.at.clone().unwrap_or_else(|| Path::new(STATE).join(volume));
        std::path::absolute(place).map_err(io)
    }

    /// Where it listens on the machine of these settings.
    pub fn listen(&self, settings: &Settings) -> Result<String, Failure> {
        Ok(at(settings.host()?, self.port))
    }

    /// Writes its settings, and starts it.
    pub fn serve(&self, settings: &Settings, place: &Path, join: Option<&str>) -> Result<Started, Failure> {
        settings.add_meta(place, &self.listen(settings)?, join)?;
        start("meta", &self.directory()?, &settings.name, !self.no_start)
    }
}

/// A host and a port.
pub fn at(host: IpAddr, port: u16) -> String {
    SocketAddr::new(host, port).to_string()
}

/// The first address of a machine, at which its servers listen.
pub fn host(addresses: &[String]) -> Result<IpAddr, Failure> {
    let first = addresses.first().map_or("", String::as_str);
    first.parse().map_err(|_| {
        Failure::Usage(format!(
            "{first:?} is not an IP address: the servers listen at the first --address; host names come after it"
        ))
    })
}

/// A text as TOML has it, which is as JSON has it.
pub fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// Several of them.
pub fn quoted_list(texts: &[String]) -> String {
    Value::from(texts).to_string()
}

/// The file of settings of a machine.
pub struct Settings {
    pub path: PathBuf,
    pub name: String,
    values: Map<String, Value>,
}

impl Settings {
    /// Writes that of a machine with a store. `more` are other tables. An earlier try may have
    /// written the same.
    pub fn create(directory: &Path, machine: &MachineArguments, host: IpAddr, more: &str) -> Result<(), Failure> {
        let name = machine.name();
        let targets = machine.targets()?;
        for target in &targets {
            make(target)?;
            // A fresh disk belongs to root; what has something on it does not change hands.
            let is_new =
                |entry: std::io::Result<std::fs::DirEntry>| entry.is_ok_and(|entry| entry.file_name() == "lost+found");
            if std::fs::read_dir(target).is_ok_and(|mut entries| entries.all(is_new)) {
                give_alone(target)?;
            }
        }
        let targets: Vec<String> = targets.iter().map(|target| target.to_string_lossy().into_owned()).collect();
        let domain = machine.domain.as_ref().map_or_else(|| name.clone(), ToString::to_string);
        let text = format!(
            "# The servers of this machine: weft-store@{name}.service and weft-meta@{name}.service read it.\n\
             # weft serve store --help and weft serve meta --help name all keys.\n\
             identity = {}\n\n[store]\nlisten = {}\ntargets = {}\ndomain = {}\n{more}",
            quoted(&directory.join(&name).to_string_lossy()),
            quoted(&at(host, machine.port)),
            quoted_list(&targets),
            quoted(&domain),
        );
        let again = "is there with other settings: remove it, or give the same options as before";
        write_once(&path(directory, &name), &text, 0o640, again)
    }

    /// That of a machine by its name; without a name the only one.
    pub fn find(directory: &Path, name: Option<&str>) -> Result<Self, Failure> {
        let named = |name: &str| {
            let path = path(directory, name);
            let text = std::fs::read_to_string(&path);
            let text = text.map_err(|why| Failure::Other(format!("cannot read {}: {why}", Shown(&path))))?;
            let values = basic_toml::from_str(&text);
            let values = values.map_err(|why| Failure::Other(format!("{}: {why}", Shown(&path))))?;
            Ok::<_, Failure>(Self { path, name: name.into(), values })
        };
        if let Some(name) = name {
            return named(name);
        }
        let listed = std::fs::read_dir(directory);
        let listed = listed.map_err(|why| Failure::Other(format!("cannot read {}: {why}", Shown(directory))))?;
        let names = listed.flatten().map(|entry| entry.path());
        let names = names.filter(|path| path.extension().is_some_and(|ending| ending == "toml"));
        let names = names.filter_map(|path| path.file_stem().map(|name| name.to_string_lossy().into_owned()));
        let mut found = names.filter_map(|name| named(&name).ok()).filter(|file| file.values.contains_key("store"));
        match (found.next(), found.next()) {
            (Some(found), None) => Ok(found),
            (None, _) => Err(Failure::Other(format!(
                "this machine is of no cluster: {} has no settings of a store; weft cluster join makes them",
                Shown(directory)
            ))),
            (Some(one), Some(other)) => {
                Err(Failure::Usage(format!("give --machine: there are {} and {}", one.name, other.name)))
            }
        }
    }

    /// A value of a table.
    pub fn value(&self, table: &str, key: &str) -> Option<&str> {
        self.values.get(table)?.get(key)?.as_str()
    }

    /// The host at which its store listens.
    fn host(&self) -> Result<IpAddr, Failure> {
        let listen = self.value("store", "listen").and_then(|listen| listen.parse::<SocketAddr>().ok());
        let no = || Failure::Other(format!("{} says no address of a store", Shown(&self.path)));
        listen.map(|listen| listen.ip()).ok_or_else(no)
    }

    /// Adds the table of a metadata server. An earlier try may have added the same.
    fn add_meta(&self, volume: &Path, listen: &str, join: Option<&str>) -> Result<(), Failure> {
        let place = volume.to_string_lossy();
        if self.values.contains_key("meta") {
            let is = |key: &str, value: Option<&str>| self.value("meta", key) == value;
            if is("volume", Some(&place)) && is("listen", Some(listen)) && is("join", join) {
                return Ok(());
            }
            return Err(Failure::Other(format!(
                "{} has a table [meta] already: add {} to its volumes, and restart weft-meta@{}",
                Shown(&self.path),
                Shown(volume),
                self.name
            )));
        }
        let join = join.map_or_else(String::new, |join| format!("join = {}\n", quoted(join)));
        let meta = format!("\n[meta]\nvolume = {}\nlisten = {}\n{join}", quoted(&place), quoted(listen));
        let text = std::fs::read_to_string(&self.path).map_err(failed(&self.path))? + &meta;
        cluster::whole::replace(&self.path, &text, 0o640).map_err(failed(&self.path))?;
        super::files::give(&self.path)
    }
}

/// Where the settings of a machine are.
fn path(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.toml"))
}

/// Whether a server runs now.
pub struct Started {
    pub runs: bool,
    /// What is to be said: that it runs, or how to start it.
    pub words: String,
}

/// Starts a server's unit now and at each start of the machine, if there is a systemd that has it.
pub fn start(kind: &str, directory: &Path, name: &str, wanted: bool) -> Result<Started, Failure> {
    let unit = format!("weft-{kind}@{name}.service");
    let settings = path(directory, name);
    let has_systemd = Path::new("/run/systemd/system").is_dir() && directory == Path::new(DIRECTORY);
    let has = || {
        let mut cat = Command::new("systemctl");
        let status = cat.args(["--quiet", "cat", &unit]).stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    if !wanted || !has_systemd || !has() {
        let words = format!("start it: weft serve {kind} --config {}", Shown(&settings));
        return Ok(Started { runs: false, words });
    }
    let done = Command::new("systemctl").args(["--quiet", "enable", "--now", &unit]).output();
    match done.map_err(|why| why.to_string()) {
        Ok(done) if done.status.success() => Ok(Started { runs: true, words: format!("{unit} runs") }),
        Ok(done) => {
            let why = String::from_utf8_lossy(&done.stderr).trim().replace('\n', "; ");
            Err(Failure::Other(format!("{unit} does not start: {why}; journalctl -u {unit} has its log")))
        }
        Err(why) => Err(Failure::Other(format!("systemctl: {why}"))),
    }
}
