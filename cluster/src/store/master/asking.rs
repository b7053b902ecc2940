//! The requesting side: one message sends a stripe to its Master, one message orders a rebuild.

use super::{
    BUSY, DISTRIBUTE, Lost, PROBE_DIVISOR, PROBE_TIMEOUT, REBUILD, REBUILDER_TIMEOUT, REBUILDS, Stripe, decode_done,
};
use crate::capability::Token;
use crate::store::protocol::{FAILED, REFUSED, decode_error, encode, method};
use crate::store::remote::RemoteTarget;
use plan::Position;
use std::io::{self, IoSlice};
use std::time::Duration;
use volume::target::TargetFile;
use volume::{Cost, Distributed, Master, NoMaster, Order, RebuildOrder, RebuildReport};
use wire::{Client, Error, Response};

/// Sends a request to a Master. A live Master may take as long as `timeout`, because it waits for
/// late stores. A Master that is stopped or cut off does not get that long: after each part
/// (`PROBE_DIVISOR`) of that time this asks it for a report, which costs it nothing, and gives up
/// when no answer comes within `says_so`.
async fn ask(
    client: &Client,
    method: u16,
    body: &[u8],
    parts: &[IoSlice<'_>],
    timeout: Duration,
    says_so: Duration,
) -> Result<Response, Error> {
    let lives = async {
        loop {
            tokio::time::sleep(timeout / PROBE_DIVISOR).await;
            if client.call(method::REPORT, &[], &[], says_so).await.is_err_and(|error| error == Error::Deadline) {
                return;
            }
        }
    };
    tokio::select! {
        answer = client.call(method, body, parts, timeout) => answer,
        () = lives => Err(Error::Deadline),
    }
}

/// Turns a Master's failure into what it means for the requesting side.
fn no_master(error: Error) -> NoMaster {
    match error {
        Error::Remote { status: BUSY, .. } => NoMaster::Unwilling("it has as many stripes as it takes".into()),
        Error::Remote { status: FAILED, body } => NoMaster::Unwilling(decode_error(&body).to_string()),
        Error::Remote { .. } | Error::Refused(_) => NoMaster::Unwilling(error.to_string()),
        Error::Deadline => NoMaster::Silent(io::ErrorKind::TimedOut.into()),
        // What it has is still there when it is reached again.
        Error::Unavailable { .. } => NoMaster::Silent(io::Error::new(io::ErrorKind::NotConnected, error.to_string())),
        Error::Protocol(_) => NoMaster::Silent(io::Error::other(error.to_string())),
    }
}

impl RemoteTarget {
    /// Sends a request to a Master, and once more with another token if the Master refuses the
    /// first one. `body` encodes the message with a token.
    fn ask_master(
        &self,
        method: u16,
        file: TargetFile,
        body: impl Fn(&[u8]) -> Vec<u8>,
        parts: &[IoSlice<'_>],
        (timeout, says_so): (Duration, Duration),
    ) -> Result<Response, NoMaster> {
        let order = |token: Option<Token>| {
            let body = body(token.as_ref().map_or(&[][..], Token::as_bytes));
            crate::runtime().block_on(ask(self.client(), method, &body, parts, timeout, says_so))
        };
        let token = self.credentials().and_then(|shown| shown.token(file, true));
        let mut answer = order(token);
        if let (Err(Error::Remote { status: REFUSED, .. }), Some(shown)) = (&answer, self.credentials())
            && let Some(another) = shown.renew(file, true, token)
        {
            answer = order(Some(another));
        }
        answer.map_err(no_master)
    }
}

fn unreadable() -> NoMaster {
    NoMaster::Silent(io::Error::other("an answer that cannot be read"))
}

impl Master for RemoteTarget {
    fn distribute(
        &self,
        order: &Order<'_>,
        addresses: &[Option<String>],
        timeout: Duration,
    ) -> Result<Distributed, NoMaster> {
        let (layout, code) = (order.layout, order.layout.code.spec().to_string());
        let stripe = Stripe {
            volume: layout.volume.0,
            set: layout.set,
            code: &code,
            created: (order.created.seconds, order.created.nanoseconds),
            record: order.record,
            sequence: order.sequence,
            manifest_bytes: order.manifest_bytes as u32,
            spare: order.spare as u16,
            checksum: order.checksum,
            token: &[],
            server: self.server(),
            places: addresses.iter().map(|address| address.as_deref().unwrap_or_default()).collect(),
        };
        let parts = [IoSlice::new(order.data)];
        let body = |token: &[u8]| encode(&Stripe { token, ..stripe.clone() });
        let file = TargetFile::Chunk { set: layout.set, position: Position(0) };
        let answer = self.ask_master(DISTRIBUTE, file, body, &parts, (timeout, PROBE_TIMEOUT))?;
        let (done, boots) = decode_done(&answer.body).ok_or_else(unreadable)?;
        let failed = |(position, error): &(Position, Vec<u8>)| (*position, decode_error(error));
        let [master, parity, distribution, slave] = done.cost.map(Duration::from_nanos);
        Ok(Distributed {
            failed: done.failed.iter().map(failed).collect(),
            boots: Position::all(boots.len()).zip(boots).filter(|(_, boot)| *boot > 0).collect(),
            cost: Cost { master, parity, distribution, slave },
        })
    }

    fn wrote(&self, file: TargetFile, boot: u64) -> io::Result<()> {
        self.note_write(file, boot)
    }

    fn rebuild(
        &self,
        order: &RebuildOrder<'_>,
        sources: &[Option<String>],
        destinations: &[String],
    ) -> Result<RebuildReport, NoMaster> {
        let (layout, code) = (order.layout, order.layout.code.spec().to_string());
        let positions = order.wanted.iter().map(|&(position, _)| position);
        let lost = Lost {
            volume: layout.volume.0,
            set: layout.set,
            code: &code,
            stripes: order.stripes.to_vec(),
            token: &[],
            server: self.server(),
            places: sources.iter().map(|address| address.as_deref().unwrap_or_default()).collect(),
            wanted: positions.zip(destinations.iter().map(String::as_str)).collect(),
        };
        let body = |token: &[u8]| encode(&Lost { token, ..lost.clone() });
        let file = TargetFile::NewChunk { set: layout.set, position: Position(0) };
        let answer = self.ask_master(REBUILD, file, body, &[], (REBUILDS, REBUILDER_TIMEOUT))?;
        let (bytes, witnessed, unwitnessed) = postcard::from_bytes(&answer.body).map_err(|_| unreadable())?;
        Ok(RebuildReport { bytes, witnessed, unwitnessed, ..RebuildReport::default() })
    }
}
