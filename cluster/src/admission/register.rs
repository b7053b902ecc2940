//! What the first machine of a cluster keeps of tokens and of machines that joined: two files of
//! text, which only its owner can read. Of a token's secret only a hash is kept.

use super::{Kind, Token};
use crate::StoreAddress;
use crate::capability::now_ms;
use crate::identity::{authority_file, is_host_name, is_same_host};
use crate::whole;
use fs::Error;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A machine of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Its name, which its certificate has.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// The public half of its key, in hexadecimal; `-` for the first machine.
    pub(super) public: String,
    /// Where others reach it.
    pub addresses: Vec<String>,
    /// What its store has, as `store://HOST:PORT/TARGET`.
    pub targets: Vec<String>,
    /// The hash of the secret by which it came, in hexadecimal; `-` for the first machine.
    pub(super) token: String,
}

/// What stands where there is nothing.
const NONE: &str = "-";

impl Machine {
    /// The first one of a cluster, which came by no token.
    pub fn first(name: &str, addresses: Vec<String>, targets: Vec<String>) -> Self {
        let (public, token) = (NONE.into(), NONE.into());
        Self { name: name.into(), kind: Kind::Server, public, addresses, targets, token }
    }

    /// Whether it is that.
    pub fn is_first(&self) -> bool {
        self.token == NONE
    }

    fn line(&self) -> String {
        let list = |words: &[String]| if words.is_empty() { NONE.into() } else { words.join(",") };
        let (addresses, targets) = (list(&self.addresses), list(&self.targets));
        format!("{} {} {} {addresses} {targets} {}\n", self.name, self.kind.word(), self.public, self.token)
    }

    fn of(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, kind, public, addresses, targets, token] = words[..] else { return None };
        let list = |words: &str| words.split(',').filter(|word| *word != NONE).map(str::to_owned).collect();
        let (kind, name, public, token) = (kind.parse().ok()?, name.into(), public.into(), token.into());
        Some(Self { name, kind, public, addresses: list(addresses), targets: list(targets), token })
    }

    /// Whether what it says of itself can be kept and believed.
    ///
    /// # Errors
    /// What cannot.
    pub fn check(&self) -> fs::Result<()> {
        let is_plain = |word: &String| {
            !word.is_empty() && !word.contains(|c: char| c.is_whitespace() || c.is_control() || c == ',')
        };
        let own = |target: &String| {
            let address = StoreAddress::of(Path::new(target)).and_then(Result::ok);
            address.is_some_and(|address| {
                let server = wire::Address::from(address.server);
                self.addresses.iter().any(|own| is_same_host(own, server.host()))
            })
        };
        // A name with a * would be that of others, too.
        let is_address = |text: &String| text.parse::<IpAddr>().is_ok() || is_host_name(text);
        if let Some(bad) = self.addresses.iter().find(|address| !is_address(address)) {
            return Err(Error::Invalid(format!("{bad:?} is neither an IP address nor the name of a host")));
        }
        if !self.targets.iter().all(is_plain) {
            return Err(Error::Invalid("targets have no spaces and commas in their names".into()));
        }
        match self.targets.iter().find(|target| !own(target)) {
            Some(target) => Err(Error::Invalid(format!("{target} is not at an address of {}", self.name))),
            None => Ok(()),
        }
    }
}

/// What is kept of a token.
struct Kept {
    hash: String,
    /// Seconds since 1970.
    expires: u64,
    left: u32,
    kind: Kind,
}

impl Kept {
    fn line(&self) -> String {
        format!("{} {} {} {}\n", self.hash, self.expires, self.left, self.kind.word())
    }

    fn of(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [hash, expires, left, kind] = words[..] else { return None };
        let (expires, left, kind) = (expires.parse().ok()?, left.parse().ok()?, kind.parse().ok()?);
        Some(Self { hash: hash.into(), expires, left, kind })
    }
}

/// What is known of tokens and machines, while no other process changes it.
pub struct Register {
    folder: PathBuf,
    /// Its lock ends with it.
    _lock: File,
}

const FOLDER: &str = "admission";
const TOKENS: &str = "tokens";
const MACHINES: &str = "machines";

/// A file of them; empty if it is not there.
fn read(folder: &Path, name: &str) -> fs::Result<String> {
    let path = folder.join(name);
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(text),
        Err(why) if why.kind() == ErrorKind::NotFound => Ok(String::new()),
        Err(why) => Err(Error::Invalid(format!("cannot read {}: {why}", path.display()))),
    }
}

fn listed(folder: &Path) -> fs::Result<Vec<Machine>> {
    Ok(read(folder, MACHINES)?.lines().filter_map(Machine::of).collect())
}

/// The machines that are known in a directory, in the order in which they came. Nothing is made
/// there, and no other process is waited for.
///
/// # Errors
/// When the file cannot be read.
pub fn machines(directory: &Path) -> fs::Result<Vec<Machine>> {
    listed(&directory.join(FOLDER))
}

/// Seconds since 1970.
fn now() -> u64 {
    now_ms() / 1000
}

impl Register {
    /// Those beside the authority's certificate in a directory. Waits for other processes.
    ///
    /// # Errors
    /// When they cannot be made or opened.
    pub fn open(directory: &Path) -> fs::Result<Self> {
        let folder = directory.join(FOLDER);
        let failed = |why: std::io::Error| Error::Invalid(format!("cannot use {}: {why}", folder.display()));
        match std::fs::DirBuilder::new().mode(0o700).create(&folder) {
            Err(why) if why.kind() != ErrorKind::AlreadyExists => return Err(failed(why)),
            _ => {}
        }
        let lock = File::options().write(true).create(true).truncate(false).mode(0o600).open(folder.join("lock"));
        let lock = lock.map_err(failed)?;
        flock(&lock, FlockOperation::LockExclusive).map_err(|why| failed(why.into()))?;
        Ok(Self { folder, _lock: lock })
    }

    /// Replaces a file as a whole.
    fn write(&self, name: &str, text: &str) -> fs::Result<()> {
        let path = self.folder.join(name);
        let written = whole::replace(&path, text, 0o600);
        written.map_err(|why| Error::Invalid(format!("cannot write {}: {why}", path.display())))
    }

    /// The machines that are known here, in the order in which they came.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn machines(&self) -> fs::Result<Vec<Machine>> {
        listed(&self.folder)
    }

    /// The first machine, if it is known.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn first(&self) -> fs::Result<Option<Machine>> {
        Ok(self.machines()?.into_iter().find(Machine::is_first))
    }

    /// Notes a machine, in the place of an earlier one of its name.
    ///
    /// # Errors
    /// When the file cannot be written, or what the machine says of itself cannot be true.
    pub fn note(&self, machine: &Machine) -> fs::Result<()> {
        machine.check()?;
        let mut machines = self.machines()?;
        match machines.iter_mut().find(|other| other.name == machine.name) {
            Some(other) => other.clone_from(machine),
            None => machines.push(machine.clone()),
        }
        self.write(MACHINES, &machines.iter().map(Machine::line).collect::<String>())
    }

    /// Forgets a machine that joined: its line and its certificate here, so that one of that name,
    /// or at its addresses, can join. What it has itself stays good. Returns what it was.
    ///
    /// # Errors
    /// When it is not known, is the first machine, or a file cannot be removed.
    pub fn forget(&self, name: &str) -> fs::Result<Kind> {
        let machines = self.machines()?;
        let Some(machine) = machines.iter().find(|machine| machine.name == name) else {
            return Err(Error::NotFound(format!("no machine {name} has joined")));
        };
        if machine.is_first() {
            return Err(Error::Invalid(format!("{name} is the first machine, which has the authority")));
        }
        let certificate = self.folder.with_file_name(format!("{name}.pem"));
        match std::fs::remove_file(&certificate) {
            Err(why) if why.kind() != ErrorKind::NotFound => {
                return Err(Error::Invalid(format!("cannot remove {}: {why}", certificate.display())));
            }
            _ => {}
        }
        self.write(
            MACHINES,
            &machines.iter().filter(|other| other.name != name).map(Machine::line).collect::<String>(),
        )?;
        Ok(machine.kind)
    }

    fn tokens(&self) -> fs::Result<Vec<Kept>> {
        let now = now();
        Ok(read(&self.folder, TOKENS)?.lines().filter_map(Kept::of).filter(|kept| kept.expires > now).collect())
    }

    /// Makes a token for a number of machines and for a time from now.
    ///
    /// # Errors
    /// When it cannot be kept, or the authority's certificate cannot be read.
    pub fn new_token(&self, address: &str, kind: Kind, uses: u32, length: Duration) -> fs::Result<Token> {
        let authority = whole::read(&self.folder.with_file_name(authority_file("pem")))?;
        let fingerprint = wire::admission::fingerprint(&authority).map_err(|why| Error::Invalid(why.to_string()))?;
        let token = Token::new(address, fingerprint)?;
        let hash = Token::hash(&token.secret).to_hex().to_string();
        let kept = Kept { hash, expires: now().saturating_add(length.as_secs()), left: uses, kind };
        let text: String = self.tokens()?.iter().chain([&kept]).map(Kept::line).collect();
        self.write(TOKENS, &text)?;
        Ok(token)
    }

    /// What a secret allows now: its kind, and for how many more machines. None if it is
    /// unknown or has expired.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(super) fn allowed(&self, secret: &str) -> fs::Result<Option<(Kind, u32)>> {
        let hash = Token::hash(secret);
        // The comparison of hashes takes the same time wherever they differ.
        let is_it = |kept: &Kept| blake3::Hash::from_hex(&kept.hash).is_ok_and(|kept| kept == hash);
        Ok(self.tokens()?.into_iter().find(is_it).map(|kept| (kept.kind, kept.left)))
    }

    /// Counts a use of a secret.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(super) fn used(&self, secret: &str) -> fs::Result<()> {
        let hash = Token::hash(secret).to_hex().to_string();
        let mut tokens = self.tokens()?;
        for kept in tokens.iter_mut().filter(|kept| kept.hash == hash) {
            kept.left = kept.left.saturating_sub(1);
        }
        self.write(TOKENS, &tokens.iter().map(Kept::line).collect::<String>())
    }
}
