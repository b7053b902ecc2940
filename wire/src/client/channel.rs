//! A channel holds one connection to the server. Callers that find no connection all wait for the
//! same attempt to open one.

use super::connection::Connection;
use super::direct::Direct;
use super::directs::Directs;
use super::introduction::{Introduced, introduce};
use super::options::ClientOptions;
use crate::error::Error;
use crate::lock;
use crate::stream::Address;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::{Instant, sleep_until, timeout};

/// A connection that lasted this long counts as a success and resets the back-off.
const STEADY_AFTER: Duration = Duration::from_secs(5);

pub(super) struct Channel {
    address: Address,
    options: Arc<ClientOptions>,
    client: u64,
    /// Bytes in flight, for the comparison of channels.
    pub load: AtomicU64,
    current: Mutex<Option<Arc<Connection>>>,
    attempts: Mutex<Attempts>,
    /// Held while a connection is being opened.
    making: Arc<AsyncMutex<()>>,
}

#[derive(Default)]
struct Attempts {
    /// Number of attempts that have ended.
    ended: u64,
    /// Number of attempts since the last connection that lasted.
    failed: u32,
    last: Option<(Instant, Result<(), Error>)>,
    /// The next attempt begins no earlier.
    next: Option<Instant>,
}

impl Channel {
    pub fn new(address: Address, options: Arc<ClientOptions>, client: u64) -> Self {
        Self {
            address,
            options,
            client,
            load: AtomicU64::new(0),
            current: Mutex::default(),
            attempts: Mutex::default(),
            making: Arc::default(),
        }
    }

    /// The connection, if there is one that accepts requests.
    pub fn current(&self) -> Option<Arc<Connection>> {
        lock(&self.current).as_ref().filter(|connection| connection.is_usable()).cloned()
    }

    pub fn is_connected(&self) -> bool {
        lock(&self.current).as_ref().is_some_and(|connection| connection.is_usable())
    }

    /// When the last attempt ended, and its result.
    pub fn last_attempt(&self) -> Option<(Instant, Result<(), Error>)> {
        lock(&self.attempts).last.clone()
    }

    /// Returns the connection, or opens one. The attempt continues when the caller gives up.
    pub async fn connection(self: &Arc<Self>, runtime: &Handle) -> Result<Arc<Connection>, Error> {
        if let Some(connection) = self.current() {
            return Ok(connection);
        }
        let ended = lock(&self.attempts).ended;
        let making = self.making.clone().lock_owned().await;
        if let Some(connection) = self.current() {
            return Ok(connection);
        }
        let wait = {
            let attempts = lock(&self.attempts);
            match &attempts.last {
                Some((_, Err(error))) if attempts.ended > ended => return Err(error.clone()),
                Some((_, last))
                    if self.options.fail_fast && attempts.next.is_some_and(|next| next > Instant::now()) =>
                {
                    let why = last.clone().err().unwrap_or_else(|| Error::lost("the connection was lost", false));
                    return Err(why);
                }
                _ => attempts.next,
            }
        };
        let channel = self.clone();
        let attempt = runtime.spawn(async move {
            let _making = making;
            if let Some(next) = wait {
                sleep_until(next).await;
            }
            let made = timeout(channel.options.connect_timeout, Box::pin(channel.make())).await;
            let made = made.unwrap_or_else(|_| Err(Error::lost("no connection in time", false)));
            let made = made.map_err(|error| channel.explain(error));
            channel.note(&made);
            made
        });
        attempt.await.unwrap_or_else(|error| Err(Error::lost(error, false)))
    }

    async fn make(self: &Arc<Self>) -> Result<Arc<Connection>, Error> {
        let connecting = self.options.connect.connect(&self.address);
        let halves = connecting.await.map_err(|error| Error::from_io(&error, false))?;
        let Introduced { incoming, write, heard, agreed, limits } =
            introduce(halves, &self.options, &self.address, self.client).await?;
        let blocking = self.options.connect.blocking(&self.address);
        let channel = Arc::downgrade(self);
        let open = move || channel.upgrade().map(|channel| channel.make_direct());
        let directs = Directs::new(Box::new(open), if blocking.is_some() { self.options.direct } else { 0 });
        let connection = Arc::new(Connection::new(write, agreed, limits, heard, directs));
        tokio::spawn(connection.clone().drive(incoming, self.options.clone()));
        Ok(connection)
    }

    /// Opens a direct connection, which one thread at a time uses.
    fn make_direct(&self) -> Result<Direct, Error> {
        let timeout = self.options.connect_timeout;
        let until = Instant::now() + timeout;
        let connect = self.options.connect.blocking(&self.address);
        let connect = connect.ok_or_else(|| Error::Refused("this network has no streams that block".into()))?;
        let stream = connect(&self.address, timeout).map_err(|error| Error::from_io(&error, false))?;
        let introducing = introduce(stream.halves(), &self.options, &self.address, self.client);
        let introduced = stream.finish(until, timeout, introducing, || None);
        let introduced = introduced.unwrap_or_else(|| Err(Error::lost("no connection in time", false)))?;
        Ok(Direct::new(stream, introduced, self.options.clone()))
    }

    /// Adds the server's address to an error. No request was sent yet, whatever the error says.
    fn explain(&self, error: Error) -> Error {
        let address = self.address.as_str();
        match error {
            Error::Unavailable { why, .. } => Error::Unavailable { why: format!("{address}: {why}"), sent: false },
            Error::Refused(why) => Error::Refused(format!("{address}: {why}")),
            Error::Protocol(what) => Error::Protocol(format!("{address}: {what}")),
            other => other,
        }
    }

    fn note(&self, made: &Result<Arc<Connection>, Error>) {
        let mut attempts = lock(&self.attempts);
        let now = Instant::now();
        let lasted = matches!(&attempts.last, Some((begun, Ok(()))) if now.duration_since(*begun) > STEADY_AFTER);
        // A server that accepts connections and drops them is no better than one that accepts none.
        attempts.failed = if lasted { 0 } else { attempts.failed.saturating_add(1) };
        attempts.ended += 1;
        attempts.next = Some(now + self.delay(attempts.failed));
        attempts.last = Some((now, made.as_ref().map(|_| ()).map_err(Clone::clone)));
        if let Ok(connection) = made {
            *lock(&self.current) = Some(connection.clone());
        }
    }

    /// The back-off after this many failures: it doubles each time, and a random part of up to half
    /// of it is left out.
    fn delay(&self, failed: u32) -> Duration {
        let (first, longest) = (*self.options.backoff.start(), *self.options.backoff.end());
        let doubled = first.saturating_mul(1 << failed.saturating_sub(1).min(20));
        doubled.min(longest).mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if let Some(connection) = lock(&self.current).take() {
            connection.outgoing.close();
        }
    }
}
