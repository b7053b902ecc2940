//! TLS 1.3 with certificates on both sides, all from the authority of one cluster. The handshake
//! refuses a peer without such a certificate.

use crate::error::Error;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// The TLS settings of a server.
#[derive(Clone)]
pub struct ServerTls(pub(crate) TlsAcceptor);

/// The TLS settings of a client.
#[derive(Clone)]
pub struct ClientTls {
    pub(crate) connector: TlsConnector,
    /// The name that the server's certificate must contain, if it is not the host of the address.
    pub(crate) server_name: Option<String>,
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerTls")
    }
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientTls")
    }
}

/// The contents of the files.
pub(crate) struct Identity {
    roots: RootCertStore,
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

impl ServerTls {
    /// Reads PEM files: the authority, this side's certificate and its key. Clients must have a
    /// certificate from the same authority.
    ///
    /// # Errors
    /// `Refused`, with the file, when one cannot be read or used, or when other users can read the
    /// key.
    pub fn from_files(authority: &Path, certificate: &Path, key: &Path) -> Result<Self, Error> {
        let identity = Identity::read(authority, certificate, key)?;
        let provider = Arc::new(ring::default_provider());
        let refuse = |error: &dyn fmt::Display| Error::Refused(format!("{}: {error}", certificate.display()));
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(identity.roots), provider.clone())
            .build()
            .map_err(|error| refuse(&error))?;
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| refuse(&error))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(identity.chain, identity.key)
            .map_err(|error| refuse(&error))?;
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }
}

impl ClientTls {
    /// Reads PEM files: the authority, this side's certificate and its key. Servers must have a
    /// certificate from the same authority.
    ///
    /// # Errors
    /// `Refused`, with the file, when one cannot be read or used, or when other users can read the
    /// key.
    pub fn from_files(authority: &Path, certificate: &Path, key: &Path) -> Result<Self, Error> {
        let identity = Identity::read(authority, certificate, key)?;
        let refuse = |error: rustls::Error| Error::Refused(format!("{}: {error}", certificate.display()));
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(refuse)?
            .with_root_certificates(identity.roots)
            .with_client_auth_cert(identity.chain, identity.key)
            .map_err(refuse)?;
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), server_name: None })
    }

    /// Requires this name in the server's certificate instead of the host of its address.
    #[must_use]
    pub fn with_server_name(mut self, name: &str) -> Self {
        self.server_name = Some(name.to_owned());
        self
    }

    pub(crate) fn name(&self, host: &str) -> Result<ServerName<'static>, Error> {
        let name = self.server_name.as_deref().unwrap_or(host);
        ServerName::try_from(name.to_owned()).map_err(|_| Error::Refused(format!("{name} cannot be in a certificate")))
    }
}

impl Identity {
    pub(crate) fn read(authority: &Path, certificate: &Path, key: &Path) -> Result<Self, Error> {
        let refuse = |path: &Path, error: &dyn fmt::Display| Error::Refused(format!("{}: {error}", path.display()));
        let mode = fs::metadata(key).map_err(|error| refuse(key, &error))?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(refuse(key, &format!("others can use this key (mode {:o}); chmod 600 it", mode & 0o777)));
        }
        let read = |path: &Path| -> Result<Vec<CertificateDer<'static>>, Error> {
            let certificates: Vec<_> = CertificateDer::pem_file_iter(path)
                .map_err(|error| refuse(path, &error))?
                .collect::<Result<_, _>>()
                .map_err(|error| refuse(path, &error))?;
            if certificates.is_empty() { Err(refuse(path, &"there is no certificate in it")) } else { Ok(certificates) }
        };
        let mut roots = RootCertStore::empty();
        for root in read(authority)? {
            roots.add(root).map_err(|error| refuse(authority, &error))?;
        }
        let chain = read(certificate)?;
        let key = PrivateKeyDer::from_pem_file(key).map_err(|error| refuse(key, &error))?;
        Ok(Self { roots, chain, key })
    }
}

/// The names in the peer's certificate.
pub(crate) fn peer_names(certificates: Option<&[CertificateDer<'_>]>) -> Vec<String> {
    let Some(Ok(certificate)) = certificates.and_then(|all| all.first()).map(webpki::EndEntityCert::try_from) else {
        return Vec::new();
    };
    certificate.valid_dns_names().map(str::to_owned).collect()
}

/// The names in a certificate, as peers see them.
///
/// # Errors
/// `Refused` when the file cannot be read or is not a certificate.
pub fn names_in(certificate: &Path) -> Result<Vec<String>, Error> {
    let read = CertificateDer::from_pem_file(certificate);
    let read = read.map_err(|error| Error::Refused(format!("{}: {error}", certificate.display())))?;
    Ok(peer_names(Some(&[read])))
}

/// Whether a file is a certificate that an authority (PEM files both) gave to a member.
///
/// # Errors
/// `Refused` when the authority's file cannot be read or is not a certificate.
pub fn is_issued_by(certificate: &Path, authority: &Path) -> Result<bool, Error> {
    let refuse = |error: &dyn fmt::Display| Error::Refused(format!("{}: {error}", authority.display()));
    let authority = CertificateDer::from_pem_file(authority).map_err(|error| refuse(&error))?;
    let anchor = webpki::anchor_from_trusted_cert(&authority).map_err(|error| refuse(&error))?;
    let Ok(read) = CertificateDer::from_pem_file(certificate) else { return Ok(false) };
    let Ok(read) = webpki::EndEntityCert::try_from(&read) else { return Ok(false) };
    let (anchors, usage) = ([anchor], webpki::KeyUsage::client_auth());
    let verified =
        read.verify_for_usage(webpki::ALL_VERIFICATION_ALGS, &anchors, &[], UnixTime::now(), usage, None, None);
    Ok(verified.is_ok())
}

/// Whether peers take a certificate for that of this host: an IP address, or a name in whatever
/// case.
///
/// # Errors
/// As [`names_in`].
pub fn is_for_host(certificate: &Path, host: &str) -> Result<bool, Error> {
    let refuse = |error: &dyn fmt::Display| Error::Refused(format!("{}: {error}", certificate.display()));
    let read = CertificateDer::from_pem_file(certificate).map_err(|error| refuse(&error))?;
    let read = webpki::EndEntityCert::try_from(&read).map_err(|error| refuse(&error))?;
    if read.valid_dns_names().any(|name| name.eq_ignore_ascii_case(host)) {
        return Ok(true);
    }
    Ok(ServerName::try_from(host).is_ok_and(|host| read.verify_is_valid_for_subject_name(&host).is_ok()))
}
