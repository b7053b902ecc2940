//! Opens targets by their addresses: targets of storage servers, and directories of this machine.

use crate::address::StoreAddress;
use crate::capability::Credentials;
use crate::store::{RemoteTarget, Stores};
use fs::{Directories, Error, Gauge, Places, Result};
use plan::Domain;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use volume::target::Target;

/// Opens both kinds of targets.
#[derive(Debug, Default)]
pub struct ClusterPlaces {
    stores: Arc<Stores>,
}

impl ClusterPlaces {
    /// For a client: it shows the stores the tokens that the metadata server gave it.
    pub(crate) fn of_client(credentials: Arc<dyn Credentials>) -> Self {
        Self { stores: Arc::new(Stores::new(crate::identity::client_tls(), Some(credentials))) }
    }

    /// The storage servers of the targets opened so far.
    pub fn stores(&self) -> &Arc<Stores> {
        &self.stores
    }

    fn remote(&self, place: &Path) -> Result<Option<RemoteTarget>> {
        let address = StoreAddress::of(place).transpose()?;
        Ok(address.map(|address| self.stores.target(&address)))
    }
}

fn failed(place: &Path, what: &str, why: &std::io::Error) -> Error {
    let text = format!("cannot {what} {}: {why}", place.display());
    match why.kind() {
        std::io::ErrorKind::NotFound => Error::NotFound(text),
        std::io::ErrorKind::AlreadyExists => Error::Conflict(text),
        _ => Error::Invalid(text),
    }
}

impl Places for ClusterPlaces {
    fn format(&self, place: &Path) -> Result<Arc<dyn Target>> {
        let Some(remote) = self.remote(place)? else { return Directories.format(place) };
        remote.format().map_err(|why| failed(place, "make", &why))?;
        Ok(Arc::new(remote))
    }

    /// A target of a store is not locked: a process that opens a volume for writing holds the lock
    /// of its directory.
    fn open(&self, place: &Path) -> Result<Arc<dyn Target>> {
        // No request goes to the store either: a store that is down may come back.
        let Some(remote) = self.remote(place)? else { return Directories.open(place) };
        Ok(Arc::new(remote))
    }

    fn domain(&self, place: &Path) -> Result<Option<Domain>> {
        let Some(remote) = self.remote(place)? else { return Directories.domain(place) };
        remote.domain().map_err(|why| failed(place, "ask", &why))
    }

    fn server(&self, place: &Path) -> Option<String> {
        Some(StoreAddress::of(place)?.ok()?.server)
    }

    fn arrange(&self, members: &[(PathBuf, Domain)]) {
        let store = |(path, domain): &(PathBuf, Domain)| Some((StoreAddress::of(path)?.ok()?.server, domain.clone()));
        self.stores.arrange(members.iter().filter_map(store));
    }

    fn gauge(&self, place: &Path) -> Option<Gauge> {
        let (server, target) = StoreAddress::parts_of(place)?;
        Some(self.stores.reports.gauge(server, target))
    }

    fn full(&self, place: &Path) -> Result<PathBuf> {
        match StoreAddress::of(place) {
            Some(address) => Ok(address?.to_path()),
            None => Directories.full(place),
        }
    }
}
