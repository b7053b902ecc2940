//! The identity of this process: a certificate from the cluster's authority. Its files lie in one
//! directory: `authority.pem`, `NAME.pem` and `NAME.key`; only the owner can read the key. The
//! directory of a server also has `cluster.key`, which signs capabilities.

use crate::capability::{ClusterKey, KEY_FILE};
use crate::whole;
use fs::Error;
use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use wire::admission::{AdmissionTls, MachineKey};
use wire::certificates::{authority_of, new_node_for};
use wire::{ClientTls, Peer, ServerTls};

/// Base name of the files with the authority's certificate and key.
const AUTHORITY: &str = "authority";

/// The name of the authority's file with this extension.
pub(crate) fn authority_file(extension: &str) -> String {
    format!("{AUTHORITY}.{extension}")
}
/// An additional name in the certificates of operators. No other member gets it.
pub(crate) const OPERATOR: &str = "operator.weft";

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
        let authority = place.with_file_name(authority_file("pem"));
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

    /// The TLS settings of a desk, which asks machines for no certificate.
    ///
    /// # Errors
    /// As `server`.
    pub(crate) fn admission(&self) -> fs::Result<AdmissionTls> {
        AdmissionTls::from_files(&self.authority, &self.certificate, &self.key).map_err(refused)
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
pub(crate) fn is_host_name(name: &str) -> bool {
    let is_label = |label: &str| {
        let plain = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
        plain && (1..=63).contains(&label.len()) && !label.starts_with('-') && !label.ends_with('-')
    };
    let is_number = |label: &str| label.bytes().all(|byte| byte.is_ascii_digit());
    name.len() <= 253 && name.split('.').all(is_label) && !name.rsplit('.').next().is_none_or(is_number)
}

/// Whether two texts are the same address or host name.
pub(crate) fn is_same_host(a: &str, b: &str) -> bool {
    match (a.parse::<IpAddr>(), b.parse::<IpAddr>()) {
        (Ok(a), Ok(b)) => a.to_canonical() == b.to_canonical(),
        _ => a.eq_ignore_ascii_case(b),
    }
}

/// Refuses names and addresses that no member can have.
pub(crate) fn check_names(name: &str, addresses: &[String]) -> fs::Result<()> {
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
    Ok(())
}

/// Refuses such names, and names that already have a certificate of another kind.
fn check(directory: &Path, name: &str, addresses: &[String], operator: bool) -> fs::Result<()> {
    check_names(name, addresses)?;
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
        whole::create(&path, text, mode).map_err(|why| failed(&path, why))
    };
    // The key of a certificate that is to be made. It is written first: an earlier run may have
    // been killed between the two.
    let key_of = |name: &str, taken: &str| {
        let [pem, path] = ["pem", "key"].map(|ending| directory.join(format!("{name}.{ending}")));
        Ok(match (pem.exists(), path.exists()) {
            (true, true) => None,
            (true, false) => return Err(Error::Conflict(taken.into())),
            (false, true) => Some(MachineKey::from_pem(&whole::read(&path)?).map_err(refused)?),
            (false, false) => {
                let key = MachineKey::generate().map_err(refused)?;
                write(name, "key", 0o600, &key.key)?;
                Some(key)
            }
        })
    };
    let elsewhere = format!(
        "{} has the certificate of an authority whose key is elsewhere: give this command there",
        directory.display()
    );
    let signer = match key_of(AUTHORITY, &elsewhere)? {
        Some(new) => {
            write(AUTHORITY, "pem", 0o644, &authority_of(&new.key).map_err(refused)?)?;
            new.key
        }
        None => whole::read(&directory.join(authority_file("key")))?,
    };
    let cluster_key = directory.join(KEY_FILE);
    if ClusterKey::read(&cluster_key)?.is_none() {
        ClusterKey::create(&cluster_key)?;
    }
    let mut made = Vec::new();
    for (name, addresses, operator) in wanted.all() {
        let taken = format!("{name} is a member already: choose another name");
        let Some(key) = key_of(name, &taken)? else { continue };
        let mut names = addresses.to_vec();
        names.extend(operator.then(|| OPERATOR.into()));
        let certificate = new_node_for(&signer, &key.public, name, &names, true).map_err(refused)?;
        write(name, "pem", 0o644, &certificate)?;
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
        // A run that was killed before it wrote the certificate does no harm.
        let certificate = place.join("store1.pem");
        std::fs::remove_file(&certificate).unwrap();
        assert_eq!(make_identities(&place, &members(&["store1"], &[])).unwrap(), ["store1"]);
        assert!(Identity::at(&place.join("store1")).server().is_ok());
        // Nor one that was killed before it wrote that of the authority.
        let [pem, key] = ["authority.pem", "authority.key"].map(|name| place.join(name));
        std::fs::remove_file(&pem).unwrap();
        assert_eq!(make_identities(&place, &members(&["store3"], &[])).unwrap(), ["store3"]);
        for member in ["store1.pem", "store3.pem"] {
            assert!(wire::is_issued_by(&place.join(member), &pem).unwrap(), "{member}");
        }
        // Where the authority's key is not, there is no second authority.
        std::fs::rename(&key, place.join("away")).unwrap();
        let said = make_identities(&place, &members(&["store4"], &[])).unwrap_err().to_string();
        assert!(said.contains("whose key is elsewhere") && !key.exists(), "{said}");
        std::fs::rename(place.join("away"), &key).unwrap();
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
            let made = wire::certificates::new_node(&authority, bad, &[]).unwrap();
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

    #[test]
    fn addresses_are_compared_as_such_and_names_without_case() {
        for (a, b) in [("2001:DB8::1", "2001:db8:0::1"), ("Node1.x", "node1.X"), ("::ffff:10.0.0.1", "10.0.0.1")] {
            assert!(is_same_host(a, b), "{a} {b}");
        }
        assert!(!is_same_host("10.0.0.1", "10.0.0.10") && !is_same_host("node1", "node1.x"));
    }
}
