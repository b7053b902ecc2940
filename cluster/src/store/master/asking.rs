//! The client's half: a stripe goes to its Master in one message.

use super::{BUSY, DISTRIBUTE, Done, LIVES, Stripe, UNASKED};
use crate::capability::Token;
use crate::store::protocol::{FAILED, REFUSED, decode_error, encode, method};
use crate::store::remote::RemoteTarget;
use std::io::{self, IoSlice};
use std::time::Duration;
use volume::target::TargetFile;
use volume::{Cost, Distributed, Master, NoMaster, Order};
use wire::{Client, Error, Response};

/// Has a Master do something. It may take as long as `patience` says while it lives: it waits for stores that are late. One that is stopped or cut off is not
/// waited for that long: after a part of it the Master is asked for something that costs it nothing.
async fn ask(client: &Client, body: &[u8], parts: &[IoSlice<'_>], patience: Duration) -> Result<Response, Error> {
    let lives = async {
        loop {
            tokio::time::sleep(patience / UNASKED).await;
            if client.call(method::REPORT, &[], &[], LIVES).await.is_err_and(|error| error == Error::Deadline) {
                return;
            }
        }
    };
    tokio::select! {
        answer = client.call(DISTRIBUTE, body, parts, patience) => answer,
        () = lives => Err(Error::Deadline),
    }
}

impl Master for RemoteTarget {
    fn distribute(
        &self,
        order: &Order<'_>,
        addresses: &[Option<String>],
        patience: Duration,
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
        let order = |token: Option<Token>| {
            let token = token.as_ref().map_or(&[][..], Token::as_bytes);
            let body = encode(&Stripe { token, ..stripe.clone() });
            crate::runtime().block_on(ask(self.client(), &body, &parts, patience))
        };
        let file = TargetFile::Chunk { set: layout.set, position: 0 };
        let token = self.credentials().and_then(|shown| shown.token(file, true));
        let mut answer = order(token);
        if let (Err(Error::Remote { status: REFUSED, .. }), Some(shown)) = (&answer, self.credentials())
            && let Some(another) = shown.renew(file, true, token)
        {
            answer = order(Some(another));
        }
        let answer = answer.map_err(|error| match error {
            Error::Remote { status: BUSY, .. } => NoMaster::Unwilling("it has as many stripes as it takes".into()),
            Error::Remote { status: FAILED, body } => NoMaster::Unwilling(decode_error(&body).to_string()),
            Error::Remote { .. } | Error::Refused(_) => NoMaster::Unwilling(error.to_string()),
            Error::Deadline => NoMaster::Silent(io::ErrorKind::TimedOut.into()),
            Error::Unavailable { .. } | Error::Protocol(_) => NoMaster::Silent(io::Error::other(error.to_string())),
        })?;
        let done: Done = postcard::from_bytes(&answer.body)
            .map_err(|_| NoMaster::Silent(io::Error::other("an answer that cannot be read")))?;
        let failed = |(position, error): &(u16, Vec<u8>)| (usize::from(*position), decode_error(error));
        let [master, parity, distribution, slave] = done.cost.map(Duration::from_nanos);
        Ok(Distributed {
            failed: done.failed.iter().map(failed).collect(),
            cost: Cost { master, parity, distribution, slave },
        })
    }
}
