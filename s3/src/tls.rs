//! Certificates for clients that use TLS.

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

/// Reads a certificate, with those above it, and its key: PEM files.
///
/// # Errors
/// When one cannot be read or used, or when other users can read the key.
pub fn tls(certificate: &Path, key: &Path) -> fs::Result<Arc<ServerConfig>> {
    let refuse = |path: &Path, why: &dyn std::fmt::Display| fs::Error::Invalid(format!("{}: {why}", path.display()));
    let mode = std::fs::metadata(key).map_err(|why| refuse(key, &why))?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(refuse(key, &format!("others can use this key (mode {:o}); chmod 600 it", mode & 0o777)));
    }
    let read = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = read.map_err(|why| refuse(certificate, &why))?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|why| refuse(key, &why))?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private));
    Ok(Arc::new(config.map_err(|why| refuse(certificate, &why))?))
}
