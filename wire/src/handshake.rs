//! The handshake: TLS, then the first message of each side.

use crate::error::Error;
use crate::frame::FrameLimits;
use crate::hello::{Agreed, HELLO_BYTES, Hello, MAGIC};
use crate::incoming::Incoming;
use crate::stream::Halves;
use crate::tls::{ClientTls, ServerTls, peer_names};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// How long, and for how many reads, the server keeps reading from a refused client, so that the
/// client can read the reason before the connection is reset.
const LINGER_TIME: Duration = Duration::from_millis(500);
const LINGER_READS: usize = 16;

/// Adds TLS to a connection to a server.
pub(crate) async fn client_tls(halves: Halves, tls: &ClientTls, host: &str) -> Result<Halves, Error> {
    let name = tls.name(host)?;
    let stream = tokio::io::join(halves.read, halves.write);
    let stream = tls.connector.connect(name, stream).await.map_err(|error| Error::from_io(&error, false))?;
    Ok(Halves::split(stream))
}

/// Adds TLS to an accepted connection; also returns the names in the client's certificate.
pub(crate) async fn server_tls(halves: Halves, tls: &ServerTls) -> Result<(Halves, Vec<String>), Error> {
    let stream = tokio::io::join(halves.read, halves.write);
    match tls.0.accept(stream).into_fallible().await {
        Ok(stream) => {
            let names = peer_names(stream.get_ref().1.peer_certificates());
            Ok((Halves::split(stream), names))
        }
        Err((error, mut stream)) => {
            let _ = tokio::time::timeout(LINGER_TIME, async {
                let _ = stream.shutdown().await;
                let mut ignored = [0; 512];
                for _ in 0..LINGER_READS {
                    if !matches!(stream.read(&mut ignored).await, Ok(1..)) {
                        break;
                    }
                }
            })
            .await;
            Err(Error::from_io(&error, false))
        }
    }
}

/// Reads the other side's first message.
pub(crate) async fn read_hello(incoming: &mut Incoming) -> Result<Hello, Error> {
    let ended = || Error::lost("the other side closed the connection in the handshake", false);
    let mut bytes = incoming.exactly(HELLO_BYTES, MAGIC).await?.ok_or_else(ended)?;
    let text_bytes = Hello::text_bytes(&bytes)?;
    if text_bytes > 0 {
        bytes.extend(incoming.exactly(text_bytes, b"").await?.ok_or_else(ended)?);
    }
    Ok(Hello::decode(&bytes)?)
}

/// What client and server agree on, according to the server's answer.
pub(crate) fn conclude(ours: &Hello, theirs: &Hello) -> Result<(Agreed, FrameLimits), Error> {
    if theirs.refused {
        return Err(Error::Refused(String::from_utf8_lossy(&theirs.text).into_owned()));
    }
    Ok((ours.agree(theirs)?, theirs.limits))
}
