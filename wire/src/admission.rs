//! How a machine without a certificate gets one: it connects to a server whose certificate it can
//! check by the fingerprint of the authority, and shows a secret in the encrypted stream. The
//! certificate is for a key that the machine made itself and never sends; it proves that it has it
//! by a signature of what only the two ends of this connection know (RFC 9266).

use crate::error::Error;
use crate::tls::Identity;
use rcgen::SigningKey;
use ring::digest::{SHA256, digest};
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, ConnectionCommon, RootCertStore, ServerConfig, ServerConnection, SideData,
    StreamOwned,
};
use std::fmt::{self, Display};
use std::io::{Read, Write};
use std::ops::DerefMut;
use std::path::Path;
use std::sync::Arc;

fn refuse(error: impl Display) -> Error {
    Error::Refused(error.to_string())
}

/// The server's side: it asks clients for no certificate.
#[derive(Clone)]
pub struct AdmissionTls(Arc<ServerConfig>);

impl fmt::Debug for AdmissionTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdmissionTls")
    }
}

impl AdmissionTls {
    /// Reads PEM files: the authority, this side's certificate and its key.
    ///
    /// # Errors
    /// `Refused`, with the file, when one cannot be read or used, or when other users can read the
    /// key.
    pub fn from_files(authority: &Path, certificate: &Path, key: &Path) -> Result<Self, Error> {
        let identity = Identity::read(authority, certificate, key)?;
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(refuse)?
            .with_no_client_auth()
            .with_single_cert(identity.chain, identity.key)
            .map_err(refuse)?;
        Ok(Self(Arc::new(config)))
    }

    /// Encrypts a connection from here on. Its handshake happens with the first bytes.
    ///
    /// # Errors
    /// `Refused` when the settings cannot be used.
    pub fn accept<S: Read + Write>(&self, stream: S) -> Result<StreamOwned<ServerConnection, S>, Error> {
        Ok(StreamOwned::new(ServerConnection::new(self.0.clone()).map_err(refuse)?, stream))
    }
}

/// The client's side: the server must have a certificate of this authority (PEM) for `host`. The
/// handshake happens with the first bytes.
///
/// # Errors
/// `Refused` when the authority or the host cannot be used.
pub fn pinned<S: Read + Write>(
    authority: &str,
    host: &str,
    stream: S,
) -> Result<StreamOwned<ClientConnection, S>, Error> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).map_err(refuse)?).map_err(refuse)?;
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(refuse)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).map_err(refuse)?;
    Ok(StreamOwned::new(ClientConnection::new(Arc::new(config), name).map_err(refuse)?, stream))
}

/// The SHA-256 of a certificate (PEM) in hexadecimal, as `openssl x509 -fingerprint -sha256` has
/// it.
///
/// # Errors
/// `Refused` when it is no certificate.
pub fn fingerprint(certificate: &str) -> Result<String, Error> {
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(refuse)?;
    Ok(digest(&SHA256, &certificate).as_ref().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// What a key signs to prove that its owner is at this end of a connection: a text that nothing
/// else signs, and the exporter of the connection (RFC 9266), which differs for each.
#[derive(Clone, PartialEq, Eq)]
pub struct ChannelBinding(Vec<u8>);

impl fmt::Debug for ChannelBinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChannelBinding")
    }
}

/// The label of the exporter.
const EXPORTER: &[u8] = b"EXPORTER-Channel-Binding";
/// What stands before it in signed bytes.
const SIGNED: &[u8] = b"weft join: the machine at this end has this key\0";

/// Ends the handshake, and says what is signed on this connection. Both ends get the same.
///
/// # Errors
/// `Refused` when the handshake fails.
pub fn channel_binding<C, D: SideData, S: Read + Write>(stream: &mut StreamOwned<C, S>) -> Result<ChannelBinding, Error>
where
    C: DerefMut<Target = ConnectionCommon<D>>,
{
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock).map_err(refuse)?;
    }
    let secret = stream.conn.export_keying_material([0; 32], EXPORTER, Some(b"")).map_err(refuse)?;
    Ok(ChannelBinding([SIGNED, &secret].concat()))
}

/// Whether a signature is that of this key on this connection.
pub fn proves(public: &[u8], binding: &ChannelBinding, signature: &[u8]) -> bool {
    UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, public).verify(&binding.0, signature).is_ok()
}

/// Random bytes for a secret, in hexadecimal.
///
/// # Errors
/// `Refused` when the system has no random bytes.
pub fn secret(bytes: usize) -> Result<String, Error> {
    let mut secret = vec![0; bytes];
    ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut secret)
        .map_err(|_| refuse("the system has no random bytes"))?;
    Ok(secret.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A key as PEM, and its public half as bytes.
pub struct MachineKey {
    /// The secret half, PEM.
    pub key: String,
    /// The public half, for [`crate::certificates::new_node_for`].
    pub public: Vec<u8>,
}

impl fmt::Debug for MachineKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MachineKey")
    }
}

impl MachineKey {
    /// A new one.
    ///
    /// # Errors
    /// `Refused` when the system has no random bytes.
    pub fn generate() -> Result<Self, Error> {
        let key = rcgen::KeyPair::generate().map_err(refuse)?;
        Ok(Self { key: key.serialize_pem(), public: key.public_key_raw().to_vec() })
    }

    /// One that was made before, from PEM.
    ///
    /// # Errors
    /// `Refused` when it is no key.
    pub fn from_pem(key: &str) -> Result<Self, Error> {
        let pair = rcgen::KeyPair::from_pem(key).map_err(refuse)?;
        Ok(Self { key: key.to_owned(), public: pair.public_key_raw().to_vec() })
    }

    /// The proof that this end of a connection has the key, for [`proves`].
    ///
    /// # Errors
    /// `Refused` when it is no key of the kind that is made here.
    pub fn prove(&self, binding: &ChannelBinding) -> Result<Vec<u8>, Error> {
        let pair = rcgen::KeyPair::from_pem(&self.key).map_err(refuse)?;
        pair.sign(&binding.0).map_err(refuse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::{Certificate, new_authority, new_node, new_node_for};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::fs::OpenOptionsExt;
    use std::path::PathBuf;

    /// Files of an identity, by its authority.
    struct Files(PathBuf);

    impl Files {
        fn new(name: &str, authority: &Certificate, member: &Certificate) -> Self {
            let place = std::env::temp_dir().join(format!("weft-admission-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&place).unwrap();
            let texts = [("a.pem", &authority.certificate), ("c.pem", &member.certificate), ("c.key", &member.key)];
            for (file, text) in texts {
                let mut options = std::fs::File::options();
                let file = options.write(true).create(true).truncate(true).mode(0o600).open(place.join(file));
                file.unwrap().write_all(text.as_bytes()).unwrap();
            }
            Self(place)
        }

        fn tls(&self) -> AdmissionTls {
            AdmissionTls::from_files(&self.0.join("a.pem"), &self.0.join("c.pem"), &self.0.join("c.key")).unwrap()
        }
    }

    impl Drop for Files {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// What a client reads that trusts this authority.
    fn heard(tls: AdmissionTls, authority: &str, host: &str) -> Result<String, std::io::Error> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let serving = std::thread::spawn(move || {
            let mut stream = tls.accept(listener.accept().unwrap().0).unwrap();
            stream.write_all(b"welcome").and_then(|()| stream.flush())?;
            stream.conn.send_close_notify();
            stream.flush()
        });
        let mut stream = pinned(authority, host, TcpStream::connect(address).unwrap()).unwrap();
        let mut text = String::new();
        let read = stream.read_to_string(&mut text).map(|_| text);
        drop(stream);
        let _ = serving.join().unwrap();
        read
    }

    #[test]
    fn only_the_authoritys_server_is_believed() {
        let (authority, other) = (new_authority().unwrap(), new_authority().unwrap());
        let member = new_node(&authority.key, "node1", &["127.0.0.1".into()]).unwrap();
        let files = Files::new("server", &authority, &member);
        assert_eq!(heard(files.tls(), &authority.certificate, "127.0.0.1").unwrap(), "welcome");
        assert!(heard(files.tls(), &other.certificate, "127.0.0.1").is_err(), "another authority");
        assert!(heard(files.tls(), &authority.certificate, "127.0.0.2").is_err(), "another host");
    }

    #[test]
    fn a_certificate_is_made_for_a_key_that_stays_where_it_is() {
        let authority = new_authority().unwrap();
        let key = MachineKey::generate().unwrap();
        assert_eq!(MachineKey::from_pem(&key.key).unwrap().public, key.public);
        let certificate = new_node_for(&authority.key, &key.public, "node2", &["127.0.0.1".into()], true).unwrap();
        let files = Files::new("made", &authority, &Certificate { certificate, key: key.key });
        assert_eq!(crate::names_in(&files.0.join("c.pem")).unwrap()[0], "node2");
        assert_eq!(heard(files.tls(), &authority.certificate, "127.0.0.1").unwrap(), "welcome");
        assert!(new_node_for(&authority.key, &[4; 64], "node3", &[], true).is_err(), "no point of the curve");
    }

    #[test]
    fn a_clients_certificate_is_no_servers() {
        let authority = new_authority().unwrap();
        for serves in [true, false] {
            let key = MachineKey::generate().unwrap();
            let certificate = new_node_for(&authority.key, &key.public, "node2.example", &[], serves).unwrap();
            let files = Files::new("client", &authority, &Certificate { certificate, key: key.key });
            let path = files.0.join("c.pem");
            for (host, is) in [("node2.example", true), ("NODE2.example", true), ("node3.example", false)] {
                assert_eq!(crate::is_for_host(&path, host).unwrap(), is, "{host}");
            }
            assert_eq!(heard(files.tls(), &authority.certificate, "node2.example").is_ok(), serves);
        }
    }

    #[test]
    fn a_key_is_proved_on_one_connection_alone() {
        let authority = new_authority().unwrap();
        let member = new_node(&authority.key, "node1", &["127.0.0.1".into()]).unwrap();
        let files = Files::new("proof", &authority, &member);
        let ends = || {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let (address, tls) = (listener.local_addr().unwrap(), files.tls());
            let desk = std::thread::spawn(move || {
                channel_binding(&mut tls.accept(listener.accept().unwrap().0).unwrap()).unwrap()
            });
            let stream = TcpStream::connect(address).unwrap();
            let machine = channel_binding(&mut pinned(&authority.certificate, "127.0.0.1", stream).unwrap()).unwrap();
            (machine, desk.join().unwrap())
        };
        let ((machine, desk), (other, _)) = (ends(), ends());
        let (key, foreign) = (MachineKey::generate().unwrap(), MachineKey::generate().unwrap());
        assert!(machine == desk && machine != other);
        assert!(proves(&key.public, &desk, &key.prove(&machine).unwrap()));
        assert!(!proves(&key.public, &desk, &key.prove(&other).unwrap()), "a proof of another connection");
        assert!(!proves(&key.public, &desk, &foreign.prove(&machine).unwrap()), "a proof by another key");
        assert!(!proves(&key.public, &desk, &[]));
    }

    #[test]
    fn fingerprints_are_of_the_whole_certificate() {
        let (a, b) = (new_authority().unwrap().certificate, new_authority().unwrap().certificate);
        assert_eq!(fingerprint(&a).unwrap().len(), 64);
        assert_ne!(fingerprint(&a).unwrap(), fingerprint(&b).unwrap());
        assert!(fingerprint("nothing").is_err());
        assert_ne!(secret(16).unwrap(), secret(16).unwrap());
    }
}
