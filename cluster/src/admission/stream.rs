//! Messages of an admission: a length and as many bytes, until a deadline.

use fs::Error;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// No message is longer, in bytes.
const LENGTH: u32 = 64 << 10;

/// A connection that ends at a time, however slow its other end is.
pub struct Timed {
    stream: TcpStream,
    ends: Instant,
}

impl Timed {
    pub fn new(stream: TcpStream, limit: Duration) -> Self {
        Self { stream, ends: Instant::now() + limit }
    }

    fn left(&self) -> io::Result<Duration> {
        let left = self.ends.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

impl Read for Timed {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(bytes)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Sends bytes with their length.
pub fn send_bytes(stream: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    stream.write_all(&length.to_be_bytes())?;
    stream.write_all(bytes)?;
    stream.flush()
}

/// Receives such bytes.
pub fn receive_bytes(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length);
    if length > LENGTH {
        return Err(io::Error::new(ErrorKind::InvalidData, "a message is too long"));
    }
    let mut bytes = vec![0; length as usize];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Sends a message.
pub fn send(stream: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    send_bytes(stream, &postcard::to_stdvec(message).map_err(io::Error::other)?)
}

/// Receives one.
pub fn receive<T: DeserializeOwned>(stream: &mut impl Read) -> io::Result<T> {
    let bytes = receive_bytes(stream)?;
    postcard::from_bytes(&bytes).map_err(|_| io::Error::new(ErrorKind::InvalidData, "a message makes no sense"))
}

/// An error of the connection with the other end, as one of the program.
pub fn failed(address: &str, why: &io::Error) -> Error {
    let why = match why.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => "it does not answer".to_owned(),
        ErrorKind::UnexpectedEof => "it hung up".to_owned(),
        _ => why.to_string(),
    };
    Error::Unavailable(format!("{address}: {why}"))
}
