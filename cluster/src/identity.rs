//! Who this process is to others: a certificate of the cluster's authority. Files, beside each other: `authority.pem`, `NAME.pem` and `NAME.key`,
//! the key for its owner alone. Servers also have `cluster.key` there, with which capabilities are signed.

use crate::capability::{ClusterKey, KEY_FILE};
use fs::Error;
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use wire::certificates::{new_authority, new_node};
use wire::{ClientTls, Peer, ServerTls};

/// The certificate of the authority, and its key.
const AUTHORITY: &str = "authority";
/// A further name in the certificates of operators, which no other member is given.
const OPERATOR: &str = "operator.weft";

/// The files of one member of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    authority: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
    cluster_key: PathBuf,
}

impl Identity {
    /// That of `DIR/NAME`, without an ending.
    pub fn at(place: &Path) -> Self {
        let ending = |ending: &str| {
            let mut path = place.as_os_str().to_owned();
            path.push(ending);
            PathBuf::from(path)
        };
        let authority = place.with_file_name(format!("{AUTHORITY}.pem"));
        let cluster_key = place.with_file_name(KEY_FILE);
        Self { authority, certificate: ending(".pem"), key: ending(".key"), cluster_key }
    }

    /// The cluster's key, which a server needs.
    ///
    /// # Errors
    /// When it is not there, is no key, or others can read it.
    pub fn cluster_key(&self) -> fs::Result<Arc<ClusterKey>> {
        let found = ClusterKey::read(&self.cluster_key)?;
        found.map(Arc::new).ok_or_else(|| {
            Error::NotFound(format!(
                "{} is not there, or not yours to read: a server needs it; weft cluster init makes it, and again for a cluster that has none",
                self.cluster_key.display()
            ))
        })
    }

    /// What a server needs.
    ///
    /// # Errors
    /// When a file cannot be read or used, or others can read the key.
    pub fn server(&self) -> fs::Result<ServerTls> {
        ServerTls::from_files(&self.authority, &self.certificate, &self.key).map_err(refused)
    }

    /// What a client needs.
    ///
    /// # Errors
    /// As `server`.
    pub fn client(&self) -> fs::Result<ClientTls> {
        ClientTls::from_files(&self.authority, &self.certificate, &self.key).map_err(refused)
    }
}

fn refused(error: wire::Error) -> Error {
    Error::Invalid(error.to_string())
}

static CLIENT: OnceLock<ClientTls> = OnceLock::new();
static KEY: OnceLock<Arc<ClusterKey>> = OnceLock::new();

/// Has all connections that this process makes use its identity, and what is for servers alone the cluster's key if it is there. To be called before the first.
///
/// # Errors
/// When the identity cannot be used.
pub fn use_identity(identity: &Identity) -> fs::Result<()> {
    let _ = CLIENT.set(identity.client()?);
    if let Some(key) = ClusterKey::read(&identity.cluster_key)? {
        let _ = KEY.set(Arc::new(key));
    }
    Ok(())
}

/// The cluster's key, if this process may use it.
pub(crate) fn own_key() -> Option<Arc<ClusterKey>> {
    KEY.get().cloned()
}

/// TLS for connections that this process makes; None is for servers that nobody else can reach.
pub(crate) fn client_tls() -> Option<ClientTls> {
    CLIENT.get().cloned()
}

/// Whether who connected is an operator. Where there are no certificates everybody is: nobody else is in the network.
pub(crate) fn is_operator(peer: &Peer) -> bool {
    peer.names.as_ref().is_none_or(|names| names.iter().any(|name| name == OPERATOR))
}

/// Who gets certificates.
#[derive(Clone, Debug, Default)]
pub struct Members {
    /// Servers and clients, and for servers the addresses under which they are reached.
    pub members: Vec<(String, Vec<String>)>,
    /// Clients that may also look after volumes.
    pub operators: Vec<String>,
}

impl Members {
    fn all(&self) -> impl Iterator<Item = (&String, &[String], bool)> {
        let members = self.members.iter().map(|(name, addresses)| (name, &addresses[..], false));
        members.chain(self.operators.iter().map(|name| (name, &[][..], true)))
    }
}

/// Whether a name is one in a certificate, as those see it who check it (RFC 5890, and '_'). By any other name a member could not be told from others.
fn is_host_name(name: &str) -> bool {
    let is_label = |label: &str| {
        let plain = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
        plain && (1..=63).contains(&label.len()) && !label.starts_with('-') && !label.ends_with('-')
    };
    let is_number = |label: &str| label.bytes().all(|byte| byte.is_ascii_digit());
    name.len() <= 253 && name.split('.').all(is_label) && !name.rsplit('.').next().is_none_or(is_number)
}

/// Refuses names that are no members', or that have a certificate of another kind already.
fn check(directory: &Path, name: &str, addresses: &[String], operator: bool) -> fs::Result<()> {
    let taken = name == AUTHORITY || name == OPERATOR || format!("{name}.key") == KEY_FILE;
    let number = name.parse::<IpAddr>().is_ok();
    if taken || number || !is_host_name(name) {
        return Err(Error::Invalid(format!(
            "{name:?} cannot be the name of a member: letters, digits, '-' and '_' (the first and the last not '-'), at most 63 of them between two '.', no number, no address, \
             and neither authority, cluster nor {OPERATOR}"
        )));
    }
    if addresses.iter().any(|address| address.eq_ignore_ascii_case(OPERATOR)) {
        return Err(Error::Invalid(format!("{OPERATOR} is no address; give --operator NAME to make an operator")));
    }
    let certificate = directory.join(format!("{name}.pem"));
    if !certificate.exists() {
        return Ok(());
    }
    let was = wire::names_in(&certificate).map_err(refused)?.iter().any(|name| name == OPERATOR);
    if was == operator {
        return Ok(());
    }
    let (is, wanted) = if was { ("an operator", "a member") } else { ("a member", "an operator") };
    Err(Error::Conflict(format!("{name} is {is} already and cannot be made {wanted}: choose another name")))
}

/// Makes certificates in a directory: an authority and a cluster key if there are none, and a certificate for each name with the addresses under which it is
/// reached. What is there stays. Returns the names that are new.
///
/// # Errors
/// When a name cannot be used, or something cannot be written.
pub fn make_identities(directory: &Path, wanted: &Members) -> fs::Result<Vec<String>> {
    wanted.all().try_for_each(|(name, addresses, operator)| check(directory, name, addresses, operator))?;
    let failed = |path: &Path, why: std::io::Error| Error::Invalid(format!("cannot write {}: {why}", path.display()));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(|why| failed(directory, why))?;
    let write = |name: &str, ending: &str, mode: u32, text: &str| {
        let path = directory.join(format!("{name}.{ending}"));
        let mut options = std::fs::File::options();
        let written = options.write(true).create_new(true).mode(mode).open(&path).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        });
        written.map_err(|why| failed(&path, why))
    };
    let key = directory.join(format!("{AUTHORITY}.key"));
    if !key.exists() {
        let authority = new_authority().map_err(refused)?;
        write(AUTHORITY, "pem", 0o644, &authority.certificate)?;
        write(AUTHORITY, "key", 0o600, &authority.key)?;
    }
    let cluster_key = directory.join(KEY_FILE);
    if ClusterKey::read(&cluster_key)?.is_none() {
        ClusterKey::create(&cluster_key)?;
    }
    let authority =
        std::fs::read_to_string(&key).map_err(|why| Error::Invalid(format!("cannot read {}: {why}", key.display())))?;
    let mut made = Vec::new();
    for (name, addresses, operator) in wanted.all() {
        if directory.join(format!("{name}.key")).exists() {
            continue;
        }
        let mut names = addresses.to_vec();
        names.extend(operator.then(|| OPERATOR.into()));
        let member = new_node(&authority, name, &names).map_err(refused)?;
        write(name, "pem", 0o644, &member.certificate)?;
        write(name, "key", 0o600, &member.key)?;
        made.push(name.clone());
    }
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_is_there_stays_and_keys_are_for_their_owner() {
        let place = std::env::temp_dir().join(format!("weft-identity-{}", std::process::id()));
        let members = |names: &[&str], operators: &[&str]| Members {
            members: names.iter().map(|name| (name.to_string(), vec!["127.0.0.1".to_string()])).collect(),
            operators: operators.iter().map(ToString::to_string).collect(),
        };
        assert_eq!(make_identities(&place, &members(&["meta", "store1"], &[])).unwrap(), ["meta", "store1"]);
        assert_eq!(make_identities(&place, &members(&["meta", "store2"], &["admin"])).unwrap(), ["store2", "admin"]);
        assert!(make_identities(&place, &members(&["meta"], &["admin"])).unwrap().is_empty());
        // Who has a certificate stays what he is.
        for bad in [members(&[], &["meta"]), members(&["admin"], &[])] {
            assert!(make_identities(&place, &bad).unwrap_err().to_string().contains("choose another name"));
        }
        let is_operator = |name: &str| {
            let names = wire::names_in(&place.join(format!("{name}.pem"))).unwrap();
            assert_eq!(names[0], name);
            names.iter().any(|name| name == OPERATOR)
        };
        assert!(is_operator("admin") && !is_operator("meta"));
        let identity = Identity::at(&place.join("store2"));
        assert!(identity.server().is_ok() && identity.client().is_ok());
        assert!(identity.cluster_key().is_ok());
        for key in ["authority.key", "store2.key", KEY_FILE] {
            assert_eq!(std::fs::metadata(place.join(key)).unwrap().permissions().mode() & 0o777, 0o600);
        }
        std::fs::set_permissions(place.join("store2.key"), PermissionsExt::from_mode(0o644)).unwrap();
        assert!(identity.server().unwrap_err().to_string().contains("store2.key"));
        // What can be made is seen by others under that name, and what cannot would not be.
        let long = "x".repeat(63);
        let good = ["a_b", "1a", "4.b2", "a-1.b", &long];
        make_identities(&place, &members(&good, &[])).unwrap();
        for name in good {
            assert_eq!(wire::names_in(&place.join(format!("{name}.pem"))).unwrap()[0], name);
        }
        let authority = std::fs::read_to_string(place.join("authority.key")).unwrap();
        let longer = "x".repeat(64);
        for bad in ["42", "a.42", "x-", "-x", "a.-b", "a..b", &longer] {
            let made = new_node(&authority, bad, &[]).unwrap();
            std::fs::write(place.join("bad.pem"), made.certificate).unwrap();
            assert!(wire::names_in(&place.join("bad.pem")).unwrap().is_empty(), "{bad}");
            let said = make_identities(&place, &members(&[bad], &[])).unwrap_err().to_string();
            assert!(said.contains("cannot be the name of a member"), "{said}");
        }
        for bad in ["", "a/b", "authority", "cluster", ".x", "x.", "10.0.0.1", OPERATOR] {
            assert!(make_identities(&place, &members(&[bad], &[])).is_err(), "{bad}");
            assert!(make_identities(&place, &members(&[], &[bad])).is_err(), "{bad}");
        }
        let disguised = Members { members: vec![("x".into(), vec![OPERATOR.into()])], ..Members::default() };
        assert!(make_identities(&place, &disguised).is_err());
        std::fs::remove_dir_all(&place).unwrap();
    }
}
