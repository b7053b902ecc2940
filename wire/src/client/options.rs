//! The options of a client.

use super::messages::Push;
use crate::frame::FrameLimits;
use crate::hello::{Role, VERSIONS};
use crate::stream::{Connect, TcpConnect};
use crate::tls::ClientTls;
use bytes::Bytes;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

/// Receives the server's pushed messages. It runs on the task that reads messages, so it must not
/// block.
pub type OnPush = Arc<dyn Fn(Push) + Send + Sync>;

/// The options of a client.
#[derive(Clone)]
pub struct ClientOptions {
    /// Maximum number of shared connections to the server, one for each channel.
    pub channels: usize,
    /// Maximum number of direct connections for each channel. On a direct connection the thread
    /// that waits for a short request's answer reads the answer itself.
    pub direct: usize,
    /// Maximum number of calls and streams in flight; further ones wait.
    pub in_flight: usize,
    /// Makes the connections.
    pub connect: Arc<dyn Connect>,
    /// TLS for the connections. None is only for networks that no other machine can reach.
    pub tls: Option<ClientTls>,
    /// The role of this process.
    pub role: Role,
    /// The feature bits that this side offers.
    pub features: u64,
    /// Credentials for the service, at most 4 KiB.
    pub credentials: Bytes,
    /// The longest answers that this side accepts.
    pub limits: FrameLimits,
    /// The protocol versions that this side speaks.
    pub versions: RangeInclusive<u16>,
    /// Receives the server's pushed messages.
    pub on_push: Option<OnPush>,
    /// Time limit for opening a connection, including the first messages.
    pub connect_timeout: Duration,
    /// The back-off before a new attempt to connect: it begins with the first value, doubles each
    /// time up to the second, and has jitter.
    pub backoff: RangeInclusive<Duration>,
    /// Whether calls fail at once during the back-off, and soon while an attempt to connect to a
    /// server that was down is running.
    pub fail_fast: bool,
    /// After this long a silence with calls in flight the client sends a ping.
    pub ping_after: Duration,
    /// After this long a silence with calls in flight the client gives up the connection.
    pub dead_after: Duration,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            channels: 4,
            direct: 4,
            in_flight: 1024,
            connect: Arc::new(TcpConnect),
            tls: None,
            role: Role::CLIENT,
            features: 0,
            credentials: Bytes::new(),
            limits: FrameLimits::default(),
            versions: VERSIONS,
            on_push: None,
            connect_timeout: Duration::from_secs(5),
            backoff: Duration::from_millis(20)..=Duration::from_secs(5),
            fail_fast: false,
            ping_after: Duration::from_secs(5),
            dead_after: Duration::from_secs(10),
        }
    }
}

impl fmt::Debug for ClientOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientOptions")
            .field("channels", &self.channels)
            .field("role", &self.role)
            .finish_non_exhaustive()
    }
}
