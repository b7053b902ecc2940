//! Chunks of `aws-chunked` bodies. The library keeps each one whole before it passes it on, and
//! some clients send an object of gigabytes as one. Chunks without a signature are cut as they
//! come; the others have a limit.

use bytes::Bytes;
use hyper::HeaderMap;
use hyper::body::{Body, Frame, SizeHint};
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The longest chunk with a signature, in bytes. Clients send 64 KiB to 1 MiB.
pub const MAX_SIGNED_BYTES: u64 = 64 << 20;
/// The highest length that is followed.
const MAX_BYTES: u64 = 1 << 48;
/// The kind of body whose chunks have no signatures.
const UNSIGNED: &str = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";

/// Where in a body its next byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// In the length of a chunk, of which this was read.
    Length(u64),
    /// Behind the length of a chunk.
    Extension(u64),
    /// In a chunk of which so much is left.
    Data(u64),
    /// Behind a chunk.
    Gap,
    /// In the trailers.
    Trailers,
}

/// What is done with the chunks of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// It has none.
    Plain,
    Signed,
    Unsigned,
}

/// A body whose chunks take little memory.
pub struct Bounded<B> {
    body: B,
    kind: Kind,
    at: At,
    /// What is passed on next.
    next: VecDeque<Bytes>,
}

impl<B> Bounded<B> {
    /// The body of a request with these headers.
    pub fn new(headers: &HeaderMap, body: B) -> Self {
        let said = headers.get("x-amz-content-sha256").and_then(|value| value.to_str().ok()).unwrap_or_default();
        let kind = match said {
            UNSIGNED => Kind::Unsigned,
            _ if said.starts_with("STREAMING-") => Kind::Signed,
            _ => Kind::Plain,
        };
        Self { body, kind, at: At::Length(0), next: VecDeque::new() }
    }
}

impl At {
    /// Follows some bytes, and calls `found` with what is in them. No chunk may have more than
    /// `most` bytes. An error says what is wrong.
    fn follow(mut self, bytes: &Bytes, most: u64, mut found: impl FnMut(Found)) -> Result<Self, &'static str> {
        let mut from = 0;
        while from < bytes.len() {
            match self {
                Self::Data(left) => {
                    let taken = (bytes.len() - from).min(usize::try_from(left).unwrap_or(usize::MAX));
                    found(Found::Data(bytes.slice(from..from + taken)));
                    from += taken;
                    self = if left == taken as u64 { Self::Gap } else { Self::Data(left - taken as u64) };
                    continue;
                }
                Self::Trailers => {
                    found(Found::Trailers(bytes.slice(from..)));
                    return Ok(self);
                }
                _ => {}
            }
            let byte = bytes[from];
            from += 1;
            self = match (self, byte, char::from(byte).to_digit(16)) {
                (Self::Length(length) | Self::Extension(length), b'\n', _) => {
                    if length == 0 {
                        found(Found::Trailers(Bytes::new()));
                    }
                    if length == 0 { Self::Trailers } else { Self::Data(length) }
                }
                (Self::Length(length), _, Some(digit)) => Self::Length(length * 16 + u64::from(digit)),
                (Self::Length(length), ..) => Self::Extension(length),
                (Self::Gap, _, Some(digit)) => Self::Length(digit.into()),
                (Self::Gap, b'\r' | b'\n', _) => Self::Gap,
                (Self::Gap, ..) => return Err("the framing of an aws-chunked body is wrong"),
                (other, ..) => other,
            };
            if matches!(self, Self::Length(length) if length > most) {
                return Err("a chunk of an aws-chunked body is too long");
            }
        }
        Ok(self)
    }
}

/// What is found in a body.
enum Found {
    Data(Bytes),
    /// Behind the last chunk; empty where they begin.
    Trailers(Bytes),
}

impl<B> Bounded<B> {
    /// Takes bytes of a body with chunks, and puts what is passed on in `next`.
    fn take(&mut self, bytes: &Bytes) -> Result<(), &'static str> {
        if self.kind == Kind::Signed {
            self.at = self.at.follow(bytes, MAX_SIGNED_BYTES, |_| {})?;
            self.next.push_back(bytes.clone());
            return Ok(());
        }
        let next = &mut self.next;
        self.at = self.at.follow(bytes, MAX_BYTES, |found| match found {
            Found::Data(data) => {
                next.push_back(format!("{:x}\r\n", data.len()).into());
                next.extend([data, Bytes::from_static(b"\r\n")]);
            }
            Found::Trailers(begin) if begin.is_empty() => next.push_back(Bytes::from_static(b"0\r\n")),
            Found::Trailers(rest) => next.push_back(rest),
        })?;
        Ok(())
    }
}

impl<B: Body<Data = Bytes, Error = io::Error> + Unpin> Body for Bounded<B> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = self.get_mut();
        loop {
            if let Some(bytes) = this.next.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            let frame = ready!(Pin::new(&mut this.body).poll_frame(context));
            let bytes = match &frame {
                Some(Ok(frame)) if this.kind != Kind::Plain => frame.data_ref(),
                _ => None,
            };
            let Some(bytes) = bytes else { return Poll::Ready(frame) };
            if let Err(why) = this.take(bytes) {
                return Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::InvalidData, why))));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.next.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.kind == Kind::Unsigned { SizeHint::default() } else { self.body.size_hint() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounded(kind: Kind) -> Bounded<()> {
        Bounded { body: (), kind, at: At::Length(0), next: VecDeque::new() }
    }

    const BODY: &[u8] =
        b"5;chunk-signature=ab\r\nfffff\r\n10\r\n0123456789abcdef\r\n0\r\nx-amz-checksum-crc32:ffffffffff\r\n\r\n";

    /// The content and the trailers of a body that was cut.
    fn unframed(mut body: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let mut content = Vec::new();
        loop {
            let end = body.windows(2).position(|pair| pair == b"\r\n").unwrap();
            let length = usize::from_str_radix(std::str::from_utf8(&body[..end]).unwrap(), 16).unwrap();
            body = &body[end + 2..];
            if length == 0 {
                return (content, body.to_vec());
            }
            content.extend_from_slice(&body[..length]);
            assert_eq!(&body[length..length + 2], b"\r\n");
            body = &body[length + 2..];
        }
    }

    #[test]
    fn chunks_without_a_signature_are_cut_as_they_come() {
        for cut in 0..BODY.len() {
            let mut body = bounded(Kind::Unsigned);
            let (one, other) = BODY.split_at(cut);
            [one, other].into_iter().for_each(|part| body.take(&Bytes::copy_from_slice(part)).unwrap());
            assert_eq!(body.at, At::Trailers);
            let passed: Vec<u8> = body.next.into_iter().flatten().collect();
            let (content, trailers) = unframed(&passed);
            assert_eq!(content, b"fffff0123456789abcdef", "{cut}");
            assert_eq!(trailers, b"x-amz-checksum-crc32:ffffffffff\r\n\r\n", "{cut}");
        }
        // One chunk of 4 GiB: what has come is passed on.
        let mut body = bounded(Kind::Unsigned);
        body.take(&Bytes::from_static(b"ffffffff\r\nabc")).unwrap();
        assert_eq!(body.next.iter().flatten().copied().collect::<Vec<u8>>(), b"3\r\nabc\r\n");
    }

    #[test]
    fn chunks_with_a_signature_pass_as_they_are_up_to_their_limit() {
        for cut in 0..BODY.len() {
            let mut body = bounded(Kind::Signed);
            let (one, other) = BODY.split_at(cut);
            [one, other].into_iter().for_each(|part| body.take(&Bytes::copy_from_slice(part)).unwrap());
            assert_eq!((body.at, body.next.into_iter().flatten().collect::<Vec<u8>>()), (At::Trailers, BODY.to_vec()));
        }
        bounded(Kind::Signed).take(&Bytes::from_static(b"4000000;x\r\nabc")).unwrap();
        for wrong in [&b"4000001\r\n"[..], b"ffffffff\r\n", b"1\r\nx\r\nffffffffffffffffffffffffffffffff", b"1\r\nxy"] {
            bounded(Kind::Signed).take(&Bytes::copy_from_slice(wrong)).unwrap_err();
        }
    }
}
