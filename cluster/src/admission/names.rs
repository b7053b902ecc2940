//! Which machine has a name or an address already. A name in a certificate is a host name for those
//! that connect: nobody else may have it, in whatever case, whether as a name or as an address.

use super::Machine;
use crate::identity::{authority_file, is_same_host};
use fs::Error;
use std::ffi::OsStr;
use std::net::IpAddr;
use std::path::Path;

/// The other member that has a name or an address, of the machines that joined and of the
/// certificates of the authority in its directory: those that `init --member` made, too.
///
/// # Errors
/// When the directory or the authority's certificate cannot be read.
pub fn owner(directory: &Path, known: &[Machine], own: &str, wanted: &str) -> fs::Result<Option<String>> {
    let has = |machine: &&Machine| {
        let names = std::iter::once(&machine.name).chain(&machine.addresses);
        machine.name != own && names.into_iter().any(|name| is_same_host(name, wanted))
    };
    if let Some(machine) = known.iter().find(has) {
        return Ok(Some(machine.name.clone()));
    }
    // An address of IPv4 has a second form, in IPv6.
    let canonical = wanted.parse::<IpAddr>().map_or_else(|_| wanted.to_owned(), |ip| ip.to_canonical().to_string());
    let authority = directory.join(authority_file("pem"));
    let failed = |why: std::io::Error| Error::Invalid(format!("cannot read {}: {why}", directory.display()));
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_stem().and_then(OsStr::to_str).unwrap_or_default();
        if path.extension() != Some(OsStr::new("pem")) || name == own {
            continue;
        }
        // Others lie there, too, such as that of an S3 gateway.
        let invalid = |why: wire::Error| Error::Invalid(why.to_string());
        if !wire::is_issued_by(&path, &authority).map_err(invalid)? {
            continue;
        }
        let is = [wanted, &canonical].into_iter().map(|host| wire::is_for_host(&path, host));
        if is.collect::<Result<Vec<_>, _>>().map_err(invalid)?.contains(&true) || is_same_host(name, wanted) {
            return Ok(Some(name.to_owned()));
        }
    }
    Ok(None)
}
