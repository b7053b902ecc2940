//! The identity of this process: a certificate from the cluster's authority. Its files lie in one
//! directory: `authority.pem`, `NAME.pem` and `NAME.key`; only the owner can read the key. The
//! directory of a server also has `cluster.key`, which signs capabilities.

use crate::capability::{ClusterKey, KEY_FILE};
use fs::Error;
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use wire::certificates::{new_authority, new_node};
use wire::{ClientTls, Peer, ServerTls};

/// Base name of the files with the authority's certificate and key.
const AUTHORITY: &str = "authority";
/// An additional name in the certificates of operators. No other member gets it.
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
    /// The identity whose files are `DIR/NAME` plus their extensions.
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

    /// The cluster's key, which every server needs.
    ///
    /// # Errors
    /// When the file is missing, contains no key, or other users can read it.
    pub fn cluster_key(&self) -> fs::Result<Arc<ClusterKey>> {
        let found = ClusterKey::read(&self.cluster_key)?;
        found.map(Arc::new).ok_or_else(|| {
            Error::NotFound(format!(
                "{} is not there, or not yours to read: a server needs it; weft cluster init makes it, and again for \
                 a cluster that has none",
                self.cluster_key.display()
            ))
        })
    }

    /// The TLS settings of a server.
    ///
    /// # Errors
    /// When a file cannot be read or used, or other users can read the key.
    pub fn server(&self) -> fs::Result<ServerTls> {
        ServerTls::from_files(&self.authority, &self.certificate, &self.key).map_err(refused)
    }

    /// The TLS settings of a client.
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

/// Makes all connections of this process use this identity, and the cluster's key if the file is
/// there, which only servers have. Call this before the first connection.
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

/// The cluster's key; None when this process does not have it.
pub(crate) fn own_key() -> Option<Arc<ClusterKey>> {
    KEY.get().cloned()
}

/// TLS for the connections that this process makes. None is only for servers that no other machine
/// can reach.
pub(crate) fn client_tls() -> Option<ClientTls> {
    CLIENT.get().cloned()
}

/// Whether a peer is an operator. Without certificates every peer is one: no other machines are on
/// that network.
pub(crate) fn is_operator(peer: &Peer) -> bool {
    peer.names.as_ref().is_none_or(|names| names.iter().any(|name| name == OPERATOR))
}

/// The members of a cluster that get certificates.
#[derive(Clone, Debug, Default)]
pub struct Members {
    /// Names of servers and clients. A server also has the addresses at which clients reach it.
    pub members: Vec<(String, Vec<String>)>,
    /// Clients that may also administer volumes.
    pub operators: Vec<String>,
}

impl Members {
    fn all(&self) -> impl Iterator<Item = (&String, &[String], bool)> {
        let members = self.members.iter().map(|(name, addresses)| (name, &addresses[..], false));
        members.chain(self.operators.iter().map(|name| (name, &[][..], true)))
    }
}

/// Whether a name is valid in a certificate (RFC 5890, and '_'). Peers ignore an invalid name, and
/// so could not tell its member from others.
fn is_host_name(name: &str) -> bool {
    let is_label = |label: &str| {
        let plain = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
        plain && (1..=63).contains(&label.len()) && !label.starts_with('-') && !label.ends_with('-')
    };
    let is_number = |label: &str| label.bytes().all(|byte| byte.is_ascii_digit());
    name.len() <= 253 && name.split('.').all(is_label) && !name.rsplit('.').next().is_none_or(is_number)
}

/// Refuses names that no member can have, and names that already have a certificate of another
/// kind.
fn check(directory: &Path, name: &str, addresses: &[String], operator: bool) -> fs::Result<()> {
    let taken = name == AUTHORITY || name == OPERATOR || format!("{name}.key") == KEY_FILE;
    let number = name.parse::<IpAddr>().is_ok();
    if taken || number || !is_host_name(name) {
        return Err(Error::Invalid(format!(
            "{name:?} cannot be the name of a member: letters, digits, '-' and '_' (the first and the last not '-'), \
             at most 63 of them between two '.', no number, no address, and neither authority, cluster nor {OPERATOR}"
        )));
    }
    if addresses.iter().any(|address| address.eq_ignore_ascii_case(OPERATOR)) {
        return Err(Error::Invalid(format!("{OPERATOR} is not the address of a member")));
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

/// Creates certificates in a directory: an authority and a cluster key if they are missing, and a
/// certificate for each new name with the addresses at which the member is reached. Existing files
/// stay as they are. Returns the new names.
///
/// # Errors
/// When a name cannot be used, or a file cannot be written.
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
        // A member keeps its kind.
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
        // Peers see a member under each name that can be made; a refused name would not be visible.
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
