//! Sends prepared HTTP requests for `bench/s3.py`: a client that takes little of the processors
//! that it shares with the servers that are measured.
//!
//! `requests ADDRESS THREADS LENGTH [BODY]`: the heads of the requests come on standard input, each
//! behind its length (four bytes, the lowest first). Each thread has a connection. `LENGTH` is that
//! of the body of each answer, in bytes; the file `BODY` has the body of each request. Prints the
//! seconds that it took.

use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// A body up to here is sent with the head of its request.
const SHORT: usize = 64 << 10;
const BUFFER_BYTES: usize = 1 << 20;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> ExitCode {
    match run() {
        Ok(seconds) => {
            println!("{seconds}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("requests: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<f64> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [address, threads, length, body @ ..] = &words[..] else {
        return Err("usage: requests ADDRESS THREADS LENGTH [BODY]".into());
    };
    let (threads, length): (usize, usize) = (threads.parse()?, length.parse()?);
    let body = body.first().map_or(Ok(Vec::new()), fs::read)?;
    let mut heads = Vec::new();
    io::stdin().read_to_end(&mut heads)?;
    let heads = split(&heads)?;
    let (next, begun) = (AtomicUsize::new(0), Instant::now());
    let send_all = || -> Result<()> {
        let mut connection = None;
        while let Some(head) = heads.get(next.fetch_add(1, Ordering::Relaxed)) {
            send(&mut connection, address, head, &body, length)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(send_all)).collect();
        all.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
    })?;
    Ok(begun.elapsed().as_secs_f64())
}

fn split(mut all: &[u8]) -> Result<Vec<&[u8]>> {
    let mut heads = Vec::new();
    while let Some((length, rest)) = all.split_first_chunk() {
        let (head, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or("a request is short")?;
        heads.push(head);
        all = rest;
    }
    Ok(heads)
}

/// A connection, and the buffer that what comes on it is read into.
struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

fn send(place: &mut Option<Connection>, address: &str, head: &[u8], body: &[u8], length: usize) -> Result<()> {
    let mut connection = match place.take() {
        Some(connection) => connection,
        None => {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            Connection { stream, buffer: vec![0; BUFFER_BYTES] }
        }
    };
    let Connection { stream, buffer } = &mut connection;
    if body.len() <= SHORT {
        stream.write_all(&[head, body].concat())?;
    } else {
        stream.write_all(head)?;
        stream.write_all(body)?;
    }
    let mut read = 0;
    let end = loop {
        match stream.read(&mut buffer[read..])? {
            0 => return Err("the connection was closed".into()),
            more => read += more,
        }
        if let Some(end) = buffer[..read].windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            break end;
        }
    };
    let answer = String::from_utf8_lossy(&buffer[..end]).to_ascii_lowercase();
    let field = |name: &str| answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
    let said: usize = field("content-length").ok_or("an answer without a length")?.parse()?;
    if answer.as_bytes().get(9) != Some(&b'2') || said != length {
        return Err(format!("{}: {answer}", String::from_utf8_lossy(head).lines().next().unwrap_or_default()).into());
    }
    let closes = field("connection") == Some("close");
    let mut rest = (length + end + 4).checked_sub(read).ok_or("more than a body came")?;
    while rest > 0 {
        match stream.read(buffer)? {
            0 => return Err("a body is short".into()),
            more => rest = rest.checked_sub(more).ok_or("more than a body came")?,
        }
    }
    *place = (!closes).then_some(connection);
    Ok(())
}
