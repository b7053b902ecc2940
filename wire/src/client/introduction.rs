//! The first messages on a stream.

use super::options::ClientOptions;
use crate::error::Error;
use crate::frame::FrameLimits;
use crate::handshake::{client_tls, conclude, read_hello};
use crate::hello::{Agreed, Hello};
use crate::incoming::{Heard, Incoming};
use crate::stream::{Address, Halves, WriteHalf};
use std::sync::Arc;
use tokio::io::AsyncWriteExt;

/// A stream on which both sides have exchanged their first messages.
pub(super) struct Introduced {
    pub incoming: Incoming,
    pub write: WriteHalf,
    pub heard: Arc<Heard>,
    pub agreed: Agreed,
    /// The longest messages that the server accepts.
    pub limits: FrameLimits,
}

/// Adds TLS to a stream if the options have it, and exchanges the first messages.
pub(super) async fn introduce(
    mut halves: Halves,
    options: &ClientOptions,
    address: &Address,
    client: u64,
) -> Result<Introduced, Error> {
    if let Some(tls) = &options.tls {
        halves = client_tls(halves, tls, address.host()).await?;
    }
    let ours = Hello {
        versions: (*options.versions.start(), *options.versions.end()),
        features: options.features,
        role: options.role,
        refused: false,
        limits: options.limits,
        client,
        text: options.credentials.to_vec(),
    };
    // A server that refuses may already have closed the connection; its message must still be
    // read.
    let sent = async {
        halves.write.write_all(&ours.encode()).await?;
        halves.write.flush().await
    }
    .await;
    let heard = Arc::new(Heard::new());
    let mut incoming = Incoming::new(halves.read, heard.clone());
    let theirs = match (read_hello(&mut incoming).await, sent) {
        (Ok(theirs), _) => theirs,
        (Err(refused @ Error::Refused(_)), _) => return Err(refused),
        (Err(_), Err(error)) => return Err(Error::from_io(&error, false)),
        (Err(error), Ok(())) => return Err(error),
    };
    let (agreed, limits) = conclude(&ours, &theirs)?;
    Ok(Introduced { incoming, write: halves.write, heard, agreed, limits })
}
