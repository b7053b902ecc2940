//! The store's side of a repair: it rebuilds blocks from those of other stores and writes them to
//! new chunks, its own and those of other stores. It accepts orders only from servers.

use super::answering::{MAX_REBUILT_KIB, Masters};
use super::peers::{Peers, bad};
use super::{BUSY, Lost};
use crate::store::protocol::encode;
use plan::{Position, TargetId};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};
use volume::format::VolumeId;
use volume::target::Target;
use volume::{Error, RebuildOrder, SetLayout};
use wire::{Reply, Request};

/// The minimum charge for a short stripe, in KiB: each has a thread.
const MIN_CHARGE_KIB: usize = MAX_REBUILT_KIB / 16;
/// How long an order waits for space.
const SPACE_TIMEOUT: Duration = Duration::from_secs(10);

/// The token and the volume of a server's order to rebuild.
///
/// # Errors
/// When it cannot be read.
pub(in crate::store) fn lost(body: &[u8]) -> io::Result<(&[u8], [u8; 16])> {
    let lost = read(body)?;
    Ok((lost.token, lost.volume))
}

fn read(body: &[u8]) -> io::Result<Lost<'_>> {
    postcard::from_bytes(body).map_err(|_| bad("an order to rebuild that cannot be read"))
}

impl Masters {
    /// Rebuilds blocks for a server. `local` finds a target of this store.
    pub async fn rebuild(
        &self,
        request: Request,
        local: impl Fn(&str) -> Option<Arc<dyn Target>> + Send,
    ) -> io::Result<Reply> {
        let lost = read(&request.body)?;
        // At most one stripe with all of its blocks is in memory at a time.
        let longest = lost.stripes.iter().map(|&(_, block)| block as usize).max().unwrap_or(0);
        let bytes = longest.saturating_mul(lost.places.len());
        if bytes.div_ceil(1024) > MAX_REBUILT_KIB {
            return Err(bad(format!("{} blocks of {longest} bytes are too much at a time", lost.places.len())));
        }
        let kib = bytes.div_ceil(1024).clamp(MIN_CHARGE_KIB, MAX_REBUILT_KIB) as u32;
        let Ok(space) = timeout(SPACE_TIMEOUT, self.rebuilds.clone().acquire_many_owned(kib)).await else {
            return Ok(Reply::error(BUSY, Vec::new()));
        };
        let space = space.map_err(io::Error::other)?;
        let peers = self.servers.peers();
        let sources = peers.numbers(lost.volume, &lost.places, lost.server, &local)?;
        let destinations: Vec<&str> = lost.wanted.iter().map(|(_, address)| *address).collect();
        let destinations = peers.numbers(lost.volume, &destinations, lost.server, &local)?;
        let done = tokio::task::spawn_blocking(move || {
            let _space = space;
            carry_out(&read(&request.body)?, &peers, sources, &destinations, request.deadline)
        });
        Ok(Reply::ok(done.await.map_err(io::Error::other)??))
    }
}

fn carry_out(
    lost: &Lost<'_>,
    peers: &Peers,
    sources: Vec<Option<TargetId>>,
    destinations: &[Option<TargetId>],
    deadline: Instant,
) -> io::Result<Vec<u8>> {
    let targets = &peers.targets;
    let positions = lost.wanted.iter().map(|(position, _)| *position);
    let wanted: Option<Vec<(Position, TargetId)>> =
        positions.zip(destinations).map(|(position, id)| Some((position, (*id)?))).collect();
    let wanted = wanted.ok_or_else(|| bad("a block that is wanted nowhere"))?;
    for id in sources.iter().chain(destinations).flatten() {
        // The requesting server knows better which targets work now. A target that hangs would only
        // cause a wait.
        if !targets.hangs(*id) {
            targets.forgive(*id);
        }
    }
    let layout = SetLayout {
        volume: VolumeId(lost.volume),
        set: lost.set,
        code: ec::parse(lost.code).map_err(|why| bad(why.to_string()))?,
        places: sources.into_iter().map(|id| id.filter(|&id| !targets.hangs(id))).collect(),
    };
    let order = RebuildOrder { layout: &layout, stripes: &lost.stripes, wanted: &wanted };
    // The requesting server then rebuilds the rest.
    let go_on = || if Instant::now() < deadline { Ok(()) } else { Err(Error::Interrupted) };
    let done = order.carry_out(targets, go_on).map_err(|why| io::Error::other(why.to_string()))?;
    Ok(encode(&(done.bytes, done.witnessed, done.unwitnessed)))
}
