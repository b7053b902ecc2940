//! The client's half: a stripe goes to its Master in one message.

use super::{BUSY, DISTRIBUTE, Done, Stripe};
use crate::capability::Token;
use crate::store::protocol::{FAILED, REFUSED, decode_error, encode};
use crate::store::remote::RemoteTarget;
use std::io::{self, IoSlice};
use std::time::Duration;
use volume::target::TargetFile;
use volume::{Cost, Distributed, Master, NoMaster, Order};
use wire::Error;

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
        let ask = |token: Option<Token>| {
            let token = token.as_ref().map_or(&[][..], Token::as_bytes);
            self.client().call_blocking(DISTRIBUTE, &encode(&Stripe { token, ..stripe.clone() }), &parts, patience)
        };
        let file = TargetFile::Chunk { set: layout.set, position: 0 };
        let token = self.credentials().and_then(|shown| shown.token(file, true));
        let mut answer = ask(token);
        if let (Err(Error::Remote { status: REFUSED, .. }), Some(shown)) = (&answer, self.credentials())
            && let Some(another) = shown.renew(file, true, token)
        {
            answer = ask(Some(another));
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
