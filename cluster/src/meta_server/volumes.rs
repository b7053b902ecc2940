//! Several volumes in one process: a connection is for the volume that the client names when it
//! connects. A client that names none gets the only one that there is.

use super::entrance::EntranceService;
use super::post::Post;
use std::sync::Arc;
use wire::{Peer, Reply, Request, Service};

/// The status of an answer to a request for a volume that is not here. Clients learn it when they
/// connect.
const NO_VOLUME: u16 = 6;

/// The service of all volumes of a process.
pub struct VolumesService(Vec<(String, EntranceService)>);

impl VolumesService {
    /// Of these volumes, by name.
    pub fn new<'a>(posts: impl IntoIterator<Item = (&'a str, &'a Post)>) -> Arc<Self> {
        Arc::new(Self(posts.into_iter().map(|(name, post)| (name.to_owned(), post.service())).collect()))
    }

    /// The service of the volume with this name.
    fn of(&self, name: &[u8]) -> Result<&EntranceService, String> {
        let found = match &self.0[..] {
            [(_, only)] if name.is_empty() => Some(only),
            all => all.iter().find(|(own, _)| own.as_bytes() == name).map(|(_, service)| service),
        };
        found.ok_or_else(|| {
            let names: Vec<&str> = self.0.iter().map(|(name, _)| name.as_str()).collect();
            let has = if names.len() == 1 { "the volume" } else { "the volumes" };
            let not = match String::from_utf8_lossy(name) {
                name if name.is_empty() => "give weft://HOST:PORT/NAME".to_owned(),
                name => format!("not {name:?}"),
            };
            format!("it has {has} {}, {not}", names.join(", "))
        })
    }
}

impl Service for VolumesService {
    async fn call(&self, request: Request) -> Reply {
        match self.of(&request.peer.credentials) {
            Ok(service) => service.call(request).await,
            Err(why) => Reply::error(NO_VOLUME, why.into_bytes()),
        }
    }

    fn connected(&self, peer: &Arc<Peer>) -> Result<(), String> {
        self.of(&peer.credentials).map(drop)
    }
}
