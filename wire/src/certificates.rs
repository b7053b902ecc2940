//! Certificates of a cluster: one authority, and a certificate for every node and client, all as
//! PEM texts. The caller stores them; keys belong in files of mode 0600.

use crate::error::Error;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

/// A certificate and its key, both PEM.
#[derive(Clone)]
pub struct Certificate {
    /// The certificate, which is public.
    pub certificate: String,
    /// The key, which is secret.
    pub key: String,
}

impl std::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Certificate")
    }
}

fn refuse(error: rcgen::Error) -> Error {
    Error::Refused(format!("certificate: {error}"))
}

/// The subject is always the same, so that the key suffices to sign.
fn authority_params() -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::new(Vec::new()).map_err(refuse)?;
    params.distinguished_name.push(DnType::CommonName, "Weft cluster authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

/// Creates an authority for a cluster.
///
/// # Errors
/// `Refused` when the system has no random bytes.
pub fn new_authority() -> Result<Certificate, Error> {
    let key = KeyPair::generate().map_err(refuse)?;
    let certificate = authority_params()?.self_signed(&key).map_err(refuse)?;
    Ok(Certificate { certificate: certificate.pem(), key: key.serialize_pem() })
}

/// Creates a certificate for a node or a client, signed with this authority's key. Peers see `name`
/// as `Peer::name`. `addresses` are the other host names and IP addresses at which clients reach
/// the node.
///
/// # Errors
/// `Refused` when the key or a name cannot be used.
pub fn new_node(authority_key: &str, name: &str, addresses: &[String]) -> Result<Certificate, Error> {
    let authority_key = KeyPair::from_pem(authority_key).map_err(refuse)?;
    let issuer = Issuer::new(authority_params()?, authority_key);
    let names: Vec<String> = std::iter::once(name.to_owned()).chain(addresses.iter().cloned()).collect();
    let mut params = CertificateParams::new(names).map_err(refuse)?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.use_authority_key_identifier_extension = true;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().map_err(refuse)?;
    let certificate = params.signed_by(&key, &issuer).map_err(refuse)?;
    Ok(Certificate { certificate: certificate.pem(), key: key.serialize_pem() })
}
