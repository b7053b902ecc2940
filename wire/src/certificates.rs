//! Certificates of a cluster: one authority, and a certificate for every node and client, all as
//! PEM texts. The caller stores them; keys belong in files of mode 0600.

use crate::error::Error;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PublicKeyData, SignatureAlgorithm,
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
    let key = KeyPair::generate().map_err(refuse)?.serialize_pem();
    Ok(Certificate { certificate: authority_of(&key)?, key })
}

/// A certificate (PEM) of the authority that has this key.
///
/// # Errors
/// `Refused` when it is no key.
pub fn authority_of(key: &str) -> Result<String, Error> {
    let key = KeyPair::from_pem(key).map_err(refuse)?;
    Ok(authority_params()?.self_signed(&key).map_err(refuse)?.pem())
}

/// Creates a certificate for a node or a client, signed with this authority's key. Peers see `name`
/// as `Peer::name`. `addresses` are the other host names and IP addresses at which clients reach
/// the node.
///
/// # Errors
/// `Refused` when the key or a name cannot be used.
pub fn new_node(authority_key: &str, name: &str, addresses: &[String]) -> Result<Certificate, Error> {
    let key = KeyPair::generate().map_err(refuse)?;
    let certificate = signed(authority_key, &key, name, addresses, true)?;
    Ok(Certificate { certificate, key: key.serialize_pem() })
}

/// The public half of a key of the kind that [`new_node`] makes: a point of the curve P-256, as its
/// 65 bytes.
struct Point<'a>(&'a [u8]);

impl PublicKeyData for Point<'_> {
    fn der_bytes(&self) -> &[u8] {
        self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &rcgen::PKCS_ECDSA_P256_SHA256
    }
}

/// The same certificate (PEM) for the public half of a key that somebody else has. Only with
/// `serves` do peers believe it as that of a server (RFC 5280, section 4.2.1.12).
///
/// # Errors
/// `Refused` when a key or a name cannot be used.
pub fn new_node_for(
    authority_key: &str,
    public_key: &[u8],
    name: &str,
    addresses: &[String],
    serves: bool,
) -> Result<String, Error> {
    if public_key.len() != 65 || public_key[0] != 4 {
        return Err(Error::Refused("this is not a public key of the curve P-256".into()));
    }
    signed(authority_key, &Point(public_key), name, addresses, serves)
}

fn signed(
    authority_key: &str,
    public_key: &impl PublicKeyData,
    name: &str,
    addresses: &[String],
    serves: bool,
) -> Result<String, Error> {
    let authority_key = KeyPair::from_pem(authority_key).map_err(refuse)?;
    let issuer = Issuer::new(authority_params()?, authority_key);
    let names: Vec<String> = std::iter::once(name.to_owned()).chain(addresses.iter().cloned()).collect();
    let mut params = CertificateParams::new(names).map_err(refuse)?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.use_authority_key_identifier_extension = true;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.extended_key_usages.extend(serves.then_some(ExtendedKeyUsagePurpose::ServerAuth));
    Ok(params.signed_by(public_key, &issuer).map_err(refuse)?.pem())
}
