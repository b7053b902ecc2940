//! Direct connections: one thread uses such a connection while it waits for an answer. It writes
//! the request and reads the answer with plain system calls, so that the answer itself wakes it. On
//! a shared connection the answer first wakes the thread that reads messages, which then wakes the
//! caller.

use super::introduction::Introduced;
use super::messages::{Push, Response};
use super::options::ClientOptions;
use crate::error::Error;
use crate::frame::{FrameKind, FrameLimits, Header};
use crate::incoming::{Heard, Incoming};
use crate::outgoing::Outgoing;
use crate::stream::BlockingStream;
use std::io::IoSlice;
use std::sync::Arc;
use tokio::time::Instant;

/// Longer requests use a shared connection. The longest record that goes into the metadata, and a
/// record of the journal with it, are shorter; so are blocks up to this length. For longer ones the
/// wake-ups that a direct connection saves are not noticed.
pub(super) const MAX_DIRECT_BYTES: u64 = 64 << 10;

/// A connection that one thread uses at a time.
pub(super) struct Direct {
    stream: BlockingStream,
    incoming: Incoming,
    outgoing: Outgoing,
    heard: Arc<Heard>,
    /// The longest messages that the server accepts.
    pub limits: FrameLimits,
    options: Arc<ClientOptions>,
    /// The server sent Goodbye.
    pub retired: bool,
}

impl Direct {
    pub fn new(stream: BlockingStream, introduced: Introduced, options: Arc<ClientOptions>) -> Self {
        let Introduced { incoming, write, heard, limits, .. } = introduced;
        Self { stream, incoming, outgoing: Outgoing::new(write), heard, limits, options, retired: false }
    }

    /// Sends a request and waits for its answer. After an error that is not the service's own, the
    /// connection cannot be used again.
    pub fn call(
        &mut self,
        header: Header,
        body: &[u8],
        parts: &[IoSlice<'_>],
        until: Instant,
    ) -> Result<Response, Error> {
        self.heard.touch();
        let Self { stream, incoming, outgoing, heard, options, retired, .. } = self;
        let asked = async {
            outgoing.write(header, body, parts).await?;
            answer(header.id, incoming, outgoing, options, retired).await
        };
        let still = || {
            let silence = heard.silence();
            if silence >= options.dead_after {
                return Some(Err(Error::lost(format!("nothing came from the server for {silence:.1?}"), true)));
            }
            if silence >= options.ping_after {
                let ping = outgoing.write(Header::new(FrameKind::Ping, 0), &[], &[]);
                stream.finish(until, options.ping_after, ping, || None);
            }
            None
        };
        stream.finish(until, options.ping_after, asked, still).unwrap_or(Err(Error::Deadline))
    }
}

async fn answer(
    id: u64,
    incoming: &mut Incoming,
    outgoing: &Outgoing,
    options: &ClientOptions,
    retired: &mut bool,
) -> Result<Response, Error> {
    loop {
        let header = incoming.header(options.limits).await?;
        let header = header.ok_or_else(|| Error::lost("the server closed the connection", true))?;
        match header.kind {
            FrameKind::Response if header.id == id => {
                let (body, payload) = incoming.content(&header).await?;
                return match header.status {
                    0 => Ok(Response { body, payload }),
                    status => Err(Error::Remote { status, body }),
                };
            }
            FrameKind::OneWay => {
                let (body, payload) = incoming.content(&header).await?;
                if let Some(on_push) = &options.on_push {
                    on_push(Push { method: header.method, body, payload });
                }
            }
            FrameKind::Ping => outgoing.write(Header::new(FrameKind::Pong, header.id), &[], &[]).await?,
            FrameKind::Pong => {}
            FrameKind::Goodbye => *retired = true,
            kind => return Err(Error::Protocol(format!("a server sent {kind:?}"))),
        }
    }
}
