//! Bytes become objects. A small object is held in memory and joins a batch; a large one goes into
//! stripes as it comes, at most a stripe of it in memory. Either way the file is whole before it
//! has a name, and a body that breaks off leaves nothing.

use crate::about::About;
use crate::batch::{add, described};
use crate::digest::{Claims, Sums};
use crate::failure::failed;
use crate::gateway::Gateway;
use crate::objects::{Condition, Objects, now, whole};
use crate::silence::{SILENCE, STOPPED};
use bytes::Bytes;
use fs::Ino;
use futures::StreamExt;
use s3s::dto::StreamingBlob;
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};
use tokio::sync::mpsc::{Receiver, channel};

/// Objects up to this size join a batch, in bytes.
const SMALL: u64 = 1 << 20;
/// The pieces of a body that wait for its writer.
const PIECES: usize = 16;
/// What those may take, in bytes.
const PIECES_BYTES: u64 = 2 << 20;
/// The largest body of one request, in bytes: 5 GiB.
const MAX_BODY: u64 = 5 << 30;
/// How often a small object is tried under a name that others take meanwhile.
const ATTEMPTS: usize = 32;

/// Where a body goes.
#[derive(Clone, Debug)]
pub enum Target {
    /// It is an object.
    Object {
        /// Its bucket.
        bucket: String,
        /// Its key.
        key: String,
        /// What must hold when it becomes visible.
        condition: Condition,
    },
    /// It is a file with a name of its own.
    File {
        /// Its directory.
        parent: Ino,
        /// A name that nothing has.
        name: Vec<u8>,
    },
}

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
    /// [`Objects::aim`].
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
        let mut digest = put.claims.digest();
        digest.update(&data);
        let about = checked(&put, digest.finish())?;
        let data = Bytes::from(data);
        let stored = |done: Result<Option<Ino>, String>| {
            done.map_err(|why| S3Error::with_message(S3ErrorCode::InternalError, why))
        };
        let (bucket, key, condition) = match put.target {
            Target::File { parent, name } => {
                return match stored(self.batches.put(parent, name, about.clone(), data).await)? {
                    Some(_) => Ok((about, length)),
                    None => Err(s3_error!(NoSuchUpload, "its directory is gone")),
                };
            }
            Target::Object { bucket, key, condition } => (bucket, key, condition),
        };
        for _ in 0..ATTEMPTS {
            let asked = (bucket.clone(), key.clone(), condition.clone());
            let aim = self.beside(move |objects| objects.aim(&asked.0, &asked.1, &asked.2)).await?;
            if aim.replaced.is_none() {
                let put = self.batches.put(aim.parent, aim.name, about.clone(), data.clone());
                let Some(own) = stored(put.await)? else { continue };
                let asked = key.clone();
                if self.beside(move |objects| objects.alone(aim.parent, &asked, own, None)).await? {
                    return Ok((about, length));
                }
                continue;
            }
            let temporary = self.objects.unique();
            let home = self.objects.home.temporary;
            stored(self.batches.put(home, temporary.clone(), about.clone(), data).await)?;
            self.beside(move |objects| objects.name(&temporary, &bucket, &key, &condition)).await?;
            return Ok((about, length));
        }
        Err(s3_error!(OperationAborted, "others change the same key"))
    }

    async fn store_large(&self, put: Put, body: Option<StreamingBlob>) -> S3Result<(About, u64)> {
        // Each holds a thread while it waits for its client; others are left for all the rest.
        let _place = self.large.clone().acquire_owned().await;
        let _memory = self.take(self.objects.fs.stripe_bytes() as u64 * 2 + PIECES_BYTES).await?;
        let Some(mut body) = body else { return Err(s3_error!(IncompleteBody)) };
        if let Target::Object { bucket, key, condition } = &put.target {
            // A condition that does not hold now is said before the body is taken.
            let (bucket, key, condition) = (bucket.clone(), key.clone(), condition.clone());
            self.beside(move |objects| objects.check(&condition, objects.find(&bucket, &key)?.as_ref())).await?;
        }
        let (sender, receiver) = channel(PIECES);
        let declared = put.length;
        let writer = self.beside(move |objects| write(objects, put, receiver));
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
    Ok(About { etag: sums.etag(), checksums: sums.checksums, ..put.about.clone() })
}

/// Writes a large body into stripes, and gives the file its name.
fn write(objects: &Objects, put: Put, mut pieces: Receiver<Option<Bytes>>) -> S3Result<(About, u64)> {
    let fs = &objects.fs;
    let fail = |error: fs::Error| failed(&error);
    let (parent, name) = match &put.target {
        Target::Object { .. } => (objects.home.temporary, objects.unique()),
        Target::File { parent, name } => (*parent, name.clone()),
    };
    let ino = fs.new_inos(1).map_err(fail)?;
    let mut load = fs.bulk_load().map_err(fail)?;
    let begun = whole(ino, parent, name.clone(), About::default(), put.length.unwrap_or(0), now());
    load.begin(ino, described(&begun));
    let (mut digest, mut size) = (put.claims.digest(), 0);
    loop {
        match pieces.blocking_recv() {
            Some(Some(piece)) => {
                digest.update(&piece);
                add(&mut load, size, &piece).map_err(fail)?;
                size += piece.len() as u64;
            }
            Some(None) => break,
            // The reader says why.
            None => return Err(s3_error!(IncompleteBody)),
        }
    }
    let about = checked(&put, digest.finish())?;
    load.finish(whole(ino, parent, name.clone(), about.clone(), size, now()));
    let refused = load.commit().map_err(fail)?.refused;
    if !refused.is_empty() {
        return Err(s3_error!(NoSuchUpload, "its directory is gone"));
    }
    if let Target::Object { bucket, key, condition } = &put.target {
        objects.name(&name, bucket, key, condition)?;
    }
    Ok((about, size))
}
