//! A connection to a server: the exchanges that wait for answers, and the task that reads the
//! answers.

use super::directs::Directs;
use super::messages::{Push, Response};
use super::options::{ClientOptions, OnPush};
use crate::error::Error;
use crate::frame::{FrameKind, FrameLimits, Header};
use crate::hello::Agreed;
use crate::incoming::{Heard, Incoming};
use crate::lock;
use crate::outgoing::Outgoing;
use crate::stream::WriteHalf;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

pub(super) struct Connection {
    pub outgoing: Outgoing,
    pub agreed: Agreed,
    /// The longest messages that the server accepts.
    pub limits: FrameLimits,
    /// The direct connections of this channel.
    pub directs: Arc<Directs>,
    heard: Arc<Heard>,
    exchanges: Mutex<Exchanges>,
}

#[derive(Default)]
struct Exchanges {
    /// Ordered, so that only the network depends on chance: a simulation with the same seed gives
    /// the same run.
    waiting: BTreeMap<u64, Waiter>,
    /// Why the connection has ended.
    failed: Option<Error>,
    /// The server sent Goodbye.
    retired: bool,
}

/// What arrives of a stream.
pub(super) enum Arrival {
    Item(Response),
    End(Response),
    Failed(Error),
}

/// The receiver of an answer.
pub(super) enum Waiter {
    Call(oneshot::Sender<Result<Response, Error>>),
    Stream(mpsc::Sender<Arrival>),
}

/// One exchange, from before its request is written until its answer arrives.
pub(super) struct Waiting<'a> {
    connection: &'a Connection,
    id: u64,
    /// Whether the request was written. The server must then be told when the caller gives up.
    pub written: bool,
    is_answered: bool,
}

impl<'a> Waiting<'a> {
    pub fn new(connection: &'a Connection, id: u64, waiter: Waiter) -> Result<Self, Error> {
        connection.expect(id, waiter)?;
        Ok(Self { connection, id, written: false, is_answered: false })
    }

    /// Ends the exchange and returns its answer.
    pub fn done(
        mut self,
        answer: Result<Result<Response, Error>, oneshot::error::RecvError>,
    ) -> Result<Response, Error> {
        // The side that answered has removed the waiter.
        self.is_answered = true;
        answer.unwrap_or_else(|_| Err(Error::lost("the connection was lost", true)))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.connection.forget(self.id, self.written);
        }
    }
}

impl Connection {
    pub fn new(
        write: WriteHalf,
        agreed: Agreed,
        limits: FrameLimits,
        heard: Arc<Heard>,
        directs: Arc<Directs>,
    ) -> Self {
        Self { outgoing: Outgoing::new(write), agreed, limits, directs, heard, exchanges: Mutex::default() }
    }

    /// Whether the connection accepts requests.
    pub fn is_usable(&self) -> bool {
        if self.outgoing.is_closed() {
            return false;
        }
        let exchanges = lock(&self.exchanges);
        exchanges.failed.is_none() && !exchanges.retired
    }

    pub fn expect(&self, id: u64, waiter: Waiter) -> Result<(), Error> {
        let mut exchanges = lock(&self.exchanges);
        match &exchanges.failed {
            Some(Error::Unavailable { why, .. }) => return Err(Error::lost(why, false)),
            Some(error) => return Err(error.clone()),
            None => {}
        }
        if exchanges.waiting.is_empty() {
            // The silence so far was not that of a server that owes an answer.
            self.heard.touch();
        }
        exchanges.waiting.insert(id, waiter);
        Ok(())
    }

    /// Gives up an exchange. With `tell`, also sends the server a Cancel.
    pub fn forget(&self, id: u64, tell: bool) {
        let mut exchanges = lock(&self.exchanges);
        if exchanges.waiting.remove(&id).is_some() {
            let leave = exchanges.retired && exchanges.waiting.is_empty();
            drop(exchanges);
            if tell {
                self.outgoing.queue(Header::new(FrameKind::Cancel, id), &[]);
            }
            if leave {
                self.outgoing.close();
            }
        }
    }

    /// Reads messages and delivers answers until the connection ends, then fails all open
    /// exchanges.
    pub async fn drive(self: Arc<Self>, mut incoming: Incoming, options: Arc<ClientOptions>) {
        let error = tokio::select! {
            biased;
            error = self.read(&mut incoming, &options) => error,
            error = self.watch(&options) => error,
            error = self.outgoing.flush_always() => error,
            () = self.outgoing.closed() => Error::lost("the connection is closed", true),
        };
        self.outgoing.close();
        self.directs.end();
        let waiting = {
            let mut exchanges = lock(&self.exchanges);
            exchanges.failed = Some(error.clone());
            std::mem::take(&mut exchanges.waiting)
        };
        for waiter in waiting.into_values() {
            let error = match error.clone() {
                Error::Unavailable { why, .. } => Error::Unavailable { why, sent: true },
                other => other,
            };
            match waiter {
                Waiter::Call(sender) => drop(sender.send(Err(error))),
                // If the channel has no space for the error, its receiver finds the end of the
                // channel.
                Waiter::Stream(sender) => drop(sender.try_send(Arrival::Failed(error))),
            }
        }
        drop(incoming);
        self.outgoing.finish().await;
    }

    async fn read(&self, incoming: &mut Incoming, options: &ClientOptions) -> Error {
        loop {
            match self.read_one(incoming, options.limits, options.on_push.as_ref()).await {
                Ok(true) => {}
                Ok(false) => return Error::lost("the server closed the connection", true),
                Err(error) => return error,
            }
        }
    }

    async fn read_one(
        &self,
        incoming: &mut Incoming,
        limits: FrameLimits,
        on_push: Option<&OnPush>,
    ) -> Result<bool, Error> {
        let Some(header) = incoming.header(limits).await? else { return Ok(false) };
        match header.kind {
            FrameKind::Response | FrameKind::Item | FrameKind::End => {
                let (body, payload) = incoming.content(&header).await?;
                self.deliver(&header, Response { body, payload })?;
            }
            FrameKind::OneWay => {
                let (body, payload) = incoming.content(&header).await?;
                if let Some(on_push) = on_push {
                    on_push(Push { method: header.method, body, payload });
                }
            }
            FrameKind::Ping => drop(self.outgoing.queue(Header::new(FrameKind::Pong, header.id), &[])),
            FrameKind::Pong => {}
            FrameKind::Goodbye => {
                self.directs.end();
                let mut exchanges = lock(&self.exchanges);
                exchanges.retired = true;
                if exchanges.waiting.is_empty() {
                    return Ok(false);
                }
            }
            kind => return Err(Error::Protocol(format!("a server sent {kind:?}"))),
        }
        Ok(true)
    }

    fn deliver(&self, header: &Header, response: Response) -> Result<(), Error> {
        let mut exchanges = lock(&self.exchanges);
        // The exchange was given up; this answer came too late.
        let Some(waiter) = exchanges.waiting.remove(&header.id) else { return Ok(()) };
        let answer = match header.status {
            0 => Ok(response),
            status => Err(Error::Remote { status, body: response.body }),
        };
        let call = match (waiter, header.kind) {
            (Waiter::Call(sender), FrameKind::Response) => Some((sender, answer)),
            (Waiter::Stream(sender), FrameKind::Item | FrameKind::End) => {
                let arrival = match answer {
                    Ok(response) if header.kind == FrameKind::Item => Arrival::Item(response),
                    Ok(response) => Arrival::End(response),
                    Err(error) => Arrival::Failed(error),
                };
                if let Err(mpsc::error::TrySendError::Full(_)) = sender.try_send(arrival) {
                    return Err(Error::Protocol("a server sent more items than it may".into()));
                }
                if header.kind == FrameKind::Item {
                    exchanges.waiting.insert(header.id, Waiter::Stream(sender));
                }
                None
            }
            (waiter, kind) => {
                // Put it back: it fails together with all others.
                exchanges.waiting.insert(header.id, waiter);
                return Err(Error::Protocol(format!("{kind:?} is not the answer to what was asked")));
            }
        };
        let leave = exchanges.retired && exchanges.waiting.is_empty();
        drop(exchanges);
        if let Some((sender, answer)) = call {
            let _ = sender.send(answer);
        }
        if leave {
            self.outgoing.close();
        }
        Ok(())
    }

    /// Sends a ping to a silent server that owes an answer, and gives up the connection after a
    /// longer silence.
    async fn watch(&self, options: &ClientOptions) -> Error {
        let tick = options.ping_after.min(options.dead_after) / 4;
        loop {
            sleep(tick).await;
            let owed = !lock(&self.exchanges).waiting.is_empty();
            let silence = self.heard.silence();
            if owed && silence >= options.dead_after {
                return Error::lost(format!("nothing came from the server for {silence:.1?}"), true);
            }
            if owed && silence >= options.ping_after {
                self.outgoing.queue(Header::new(FrameKind::Ping, 0), &[]);
            }
        }
    }
}
