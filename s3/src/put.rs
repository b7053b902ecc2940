//! Bodies of requests become objects (`objects::store`), after what the client says of them has
//! been compared. What they take in memory is bounded.

use crate::digest::{Claims, Digest, Sums};
use crate::gateway::Gateway;
use crate::silence::{SILENCE, STOPPED};
use bytes::Bytes;
use futures::StreamExt;
use objects::about::About;
use objects::store::{SMALL, Source, Target, put_small, write};
use s3s::dto::StreamingBlob;
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};
use tokio::sync::mpsc::{Receiver, channel};

/// The pieces of a body that wait for its writer.
const PIECES: usize = 16;
/// What those may take, in bytes.
const PIECES_BYTES: u64 = 2 << 20;
/// The largest body of one request, in bytes: 5 GiB.
const MAX_BODY: u64 = 5 << 30;

/// What is to be stored.
pub struct Put {
    /// Where it goes.
    pub target: Target,
    /// What is kept of it; the ETag is filled in.
    pub about: About,
    /// What the client says of the bytes.
    pub claims: Claims,
    /// How many bytes there are, if the client says it.
    pub length: Option<u64>,
}

impl Gateway {
    /// Stores a body, and returns what is kept of it and its size when it is durable.
    ///
    /// # Errors
    /// `EntityTooLarge`, `IncompleteBody`, `BadDigest`, `PreconditionFailed` and those of
    /// [`objects::Objects::aim`].
    pub async fn store(&self, put: Put, body: Option<StreamingBlob>) -> S3Result<(About, u64)> {
        if put.length.is_some_and(|length| length > MAX_BODY) {
            return Err(s3_error!(EntityTooLarge));
        }
        match put.length {
            Some(length) if length <= SMALL => self.store_small(put, length, body).await,
            _ => self.store_large(put, body).await,
        }
    }

    async fn store_small(&self, put: Put, length: u64, body: Option<StreamingBlob>) -> S3Result<(About, u64)> {
        let _memory = self.take(length).await?;
        let mut data = Vec::with_capacity(length as usize);
        if let Some(mut body) = body {
            while let Some(piece) = next(&mut body).await? {
                if (data.len() + piece.len()) as u64 > length {
                    return Err(s3_error!(IncompleteBody, "the body is longer than the request says"));
                }
                data.extend_from_slice(&piece);
            }
        }
        complete(put.length, data.len() as u64)?;
        let mut digest = put.claims.digest(self.etag);
        digest.update(&data);
        let about = checked(&put, digest.finish())?;
        put_small(&self.objects, &self.batches, put.target, &about, &Bytes::from(data)).await?;
        Ok((about, length))
    }

    async fn store_large(&self, put: Put, body: Option<StreamingBlob>) -> S3Result<(About, u64)> {
        // Each holds a thread while it waits for its client; others are left for all the rest.
        let _place = self.large.clone().acquire_owned().await;
        let _memory = self.take(self.objects.fs.stripe_bytes() as u64 * 2 + PIECES_BYTES).await?;
        let Some(mut body) = body else { return Err(s3_error!(IncompleteBody)) };
        if let Target::Object { bucket, key, condition } = &put.target {
            // A condition that does not hold now is said before the body is taken.
            let (bucket, key, condition) = (bucket.clone(), key.clone(), condition.clone());
            self.beside(move |objects| Ok(objects.check(&condition, objects.find(&bucket, &key)?.as_ref())?)).await?;
        }
        let (sender, receiver) = channel(PIECES);
        let (declared, etag) = (put.length, self.etag);
        let writer = self.beside(move |objects| {
            let (target, digest) = (put.target.clone(), put.claims.digest(etag));
            write(objects, &target, declared, Pieces { put, digest, receiver })
        });
        let reader = async move {
            let mut length = 0;
            while let Some(piece) = next(&mut body).await? {
                length += piece.len() as u64;
                if length > MAX_BODY {
                    return Err(s3_error!(EntityTooLarge));
                }
                if !piece.is_empty() && sender.send(Some(piece)).await.is_err() {
                    return Ok(());
                }
            }
            complete(declared, length)?;
            // Without this word the writer gives everything up.
            let _ = sender.send(None).await;
            Ok(())
        };
        let (written, read) = tokio::join!(writer, reader);
        read?;
        written
    }
}

/// The next piece of a body. A client that says nothing for long is given up: what its body takes
/// in memory is for others.
async fn next(body: &mut StreamingBlob) -> S3Result<Option<Bytes>> {
    match tokio::time::timeout(SILENCE, body.next()).await {
        Ok(piece) => piece.transpose().map_err(broken),
        Err(_) => Err(s3_error!(RequestTimeout)),
    }
}

/// Whether a body has the length that was said.
fn complete(said: Option<u64>, length: u64) -> S3Result<()> {
    if said.is_some_and(|said| said != length) { Err(s3_error!(IncompleteBody)) } else { Ok(()) }
}

/// The answer when a body ends with an error.
fn broken(error: s3s::StdError) -> S3Error {
    let why = error.to_string();
    if why.contains(STOPPED) {
        return s3_error!(RequestTimeout);
    }
    let code = if why.contains("SignatureMismatch") {
        S3ErrorCode::SignatureDoesNotMatch
    } else if why.contains("Sha256Mismatch") {
        S3ErrorCode::Custom("XAmzContentSHA256Mismatch".into())
    } else {
        S3ErrorCode::IncompleteBody
    };
    let mut answer = S3Error::with_message(code, why);
    answer.set_status_code(hyper::StatusCode::BAD_REQUEST);
    if answer.code() == &S3ErrorCode::SignatureDoesNotMatch {
        answer.set_status_code(hyper::StatusCode::FORBIDDEN);
    }
    answer
}

/// What is kept of a body, after what was said of it has been compared.
fn checked(put: &Put, sums: Sums) -> S3Result<About> {
    put.claims.check(&sums)?;
    Ok(About { etag: sums.etag, checksums: sums.checksums, ..put.about.clone() })
}

/// The pieces of a body, and what they are.
struct Pieces {
    put: Put,
    digest: Digest,
    receiver: Receiver<Option<Bytes>>,
}

impl Source for Pieces {
    type Failure = S3Error;

    fn next(&mut self) -> S3Result<Option<Bytes>> {
        // The reader says why there is no word of the end.
        let piece = self.receiver.blocking_recv().ok_or_else(|| s3_error!(IncompleteBody))?;
        if let Some(piece) = &piece {
            self.digest.update(piece);
        }
        Ok(piece)
    }

    fn about(self) -> S3Result<About> {
        checked(&self.put, self.digest.finish())
    }
}
