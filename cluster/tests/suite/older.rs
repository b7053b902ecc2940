//! The version before is spoken. `older/store.txt` has what a store of 2026-11-24, which knows no
//! claims, answered to a client of that day: a name, the bytes that were sent, and those of the
//! answer. Neither side is made by this code, so what it changes is seen here.

use cluster::{ClusterPlaces, Store};
use fs::Places;
use plan::{Position, SetId};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use volume::target::{Allocation, ClaimRequest, Durable, Presence, ReadAt, ReadPart, TargetFile, Wait};
use wire::{Server, ServerOptions};

const HEADER: usize = 48;
const RESPONSE: u8 = 2;
const PING: u8 = 9;
const PONG: u8 = 10;
const TIMEOUT: Duration = Duration::from_secs(60);

struct Exchange {
    name: &'static str,
    asked: Vec<u8>,
    answered: Vec<u8>,
}

impl Exchange {
    fn all() -> VecDeque<Self> {
        let bytes = |hex: &str| -> Vec<u8> {
            let digits = (0..hex.len()).step_by(2).map(|at| &hex[at..at + 2]);
            digits.map(|digits| u8::from_str_radix(digits, 16).unwrap()).collect()
        };
        let line = |line: &'static str| {
            let mut words = line.split(' ');
            let mut next = || words.next().unwrap();
            Self { name: next(), asked: bytes(next()), answered: bytes(next()) }
        };
        include_str!("../older/store.txt").lines().map(line).collect()
    }
}

fn number(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
}

/// A message: its header, and body and payload.
fn message(from: &mut TcpStream) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let mut header = vec![0; HEADER];
    from.read_exact(&mut header)?;
    let mut content = vec![0; number(&header, 24) + number(&header, 28)];
    from.read_exact(&mut content)?;
    Ok((header, content))
}

/// The hello of the other side.
fn hello(from: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut hello = vec![0; HEADER];
    from.read_exact(&mut hello)?;
    let mut text = vec![0; usize::from(u16::from_le_bytes([hello[28], hello[29]]))];
    from.read_exact(&mut text)?;
    Ok(hello)
}

/// CRC-32C.
fn checksum(bytes: &[u8]) -> u32 {
    let bit = |crc: u32, _| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
    !bytes.iter().fold(!0, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), bit))
}

/// A header for another exchange than the recorded one.
fn for_exchange(mut header: Vec<u8>, id: &[u8]) -> Vec<u8> {
    header[16..24].copy_from_slice(id);
    let sum = checksum(&header[..44]);
    header[44..48].copy_from_slice(&sum.to_le_bytes());
    header
}

/// A store that answers as it was recorded, in this order. What it was asked otherwise, it notes.
struct Recorded {
    hello: Vec<u8>,
    left: Mutex<VecDeque<Exchange>>,
    odd: Mutex<Vec<String>>,
}

impl Recorded {
    fn start(self: &Arc<Self>) -> SocketAddr {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let store = self.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (store, stream) = (store.clone(), stream.unwrap());
                std::thread::spawn(move || store.serve(stream));
            }
        });
        address
    }

    /// Until the client closes the connection.
    fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        hello(&mut stream)?;
        stream.write_all(&self.hello)?;
        loop {
            let (mut header, content) = message(&mut stream)?;
            let id = header[16..24].to_vec();
            if header[4] == PING {
                header[4] = PONG;
                stream.write_all(&for_exchange(header, &id))?;
                continue;
            }
            let Some(Exchange { name, asked, answered }) = self.left.lock().unwrap().pop_front() else {
                self.odd.lock().unwrap().push("one request more".into());
                return Ok(());
            };
            // The body of today has a claim behind it, which such a store ignores.
            let body = number(&asked, 24);
            let same_body = content.starts_with(&asked[HEADER..HEADER + body]);
            let payload = &content[number(&header, 24)..];
            if header[6..8] != asked[6..8] || !same_body || payload != &asked[HEADER + body..] {
                self.odd.lock().unwrap().push(format!("{name}: {header:02x?} {content:02x?}"));
            }
            let (head, rest) = answered.split_at(HEADER);
            stream.write_all(&[for_exchange(head.to_vec(), &id), rest.to_vec()].concat())?;
        }
    }
}

#[test]
fn an_older_store_is_understood() {
    let mut all = Exchange::all();
    let hello = all.pop_front().unwrap().answered;
    // Those that make a target, and ask for its domain, are asked for elsewhere.
    all.drain(..2);
    let store = Arc::new(Recorded { hello, left: Mutex::new(all), odd: Mutex::default() });
    let address = store.start();
    let target = ClusterPlaces::default().open(Path::new(&format!("store://{address}/disk"))).unwrap();
    let data: Vec<u8> = (0..100).collect();
    let (new, chunk) = (
        TargetFile::NewChunk { set: SetId(7), position: Position(3) },
        TargetFile::Chunk { set: SetId(7), position: Position(3) },
    );
    let other = TargetFile::Chunk { set: SetId(8), position: Position(0) };
    assert!(target.write(new, 0, &[IoSlice::new(&data)], Durable::Later).unwrap() > Duration::ZERO);
    assert!(target.sync(new).unwrap() > Duration::ZERO);
    target.rename(new, chunk).unwrap();
    target.write(chunk, 100, &[IoSlice::new(&data[..20])], Durable::Now).unwrap();
    let mut read = [0; 64];
    assert_eq!(target.read_at(chunk, 90, &mut read).unwrap(), 30);
    assert_eq!(read[..30], [&data[90..], &data[..20]].concat());
    let (mut first, mut second) = ([0; 4], [0; 8]);
    let mut both = [ReadPart::new(0, &mut first), ReadPart::new(100, &mut second)];
    target.read(chunk, &mut both, Wait::Always).unwrap();
    assert_eq!(both.map(|part| part.read), [4, 8]);
    assert_eq!((&first[..], &second[..]), (&data[..4], &data[..8]));
    assert_eq!(target.list().unwrap(), [(chunk, 120)]);
    assert_eq!(target.look(&[chunk, other]).unwrap(), [Presence::There, Presence::Absent]);
    let space = target.space().unwrap();
    assert!(space.free > 0 && space.free < space.total, "{space:?}");
    target.allocate(chunk, Allocation::Reserve(8192)).unwrap();
    target.allocate(chunk, Allocation::Trim).unwrap();
    target.allocate(chunk, Allocation::Punch(0..4096)).unwrap();
    assert_eq!(target.read_at(other, 0, &mut read[..4]).unwrap_err().kind(), ErrorKind::NotFound);
    assert!(target.claim(&ClaimRequest::Read).is_err(), "it knows no claims");
    target.remove(chunk).unwrap();
    assert_eq!(*store.odd.lock().unwrap(), Vec::<String>::new());
    assert!(store.left.lock().unwrap().is_empty());
}

#[test]
fn an_older_client_is_answered() {
    let disk = std::env::temp_dir().join(format!("weft-older-{}/disk", std::process::id()));
    std::fs::create_dir_all(&disk).unwrap();
    let store = Store::open(&[PathBuf::from(&disk)]).unwrap();
    let server = Server::new(Arc::new(store), ServerOptions::default());
    let listener = cluster::runtime().block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    cluster::runtime().spawn(async move { server.serve(listener, std::future::pending()).await });
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    for Exchange { name, asked, answered } in Exchange::all() {
        stream.write_all(&asked).unwrap();
        if name == "hello" {
            let hello = hello(&mut stream).unwrap();
            assert_eq!((&hello[..4], hello[18]), (&b"WEFH"[..], 0), "it is not refused");
            continue;
        }
        let (header, content) = loop {
            let (header, content) = message(&mut stream).unwrap();
            if header[4] == RESPONSE {
                break (header, content);
            }
        };
        // Its kind, and for whom it is. The status of a claim differs: there is one today.
        assert_eq!((header[4], &header[16..24]), (answered[4], &answered[16..24]), "{name}");
        assert!(header[8..10] == answered[8..10] || name == "claim", "{name}: {header:?}");
        match name {
            // A time, a number of the boot of the machine, or space.
            "write" | "sync" | "write-durably" | "remove" | "space" | "claim" => {}
            _ => assert_eq!(content, answered[HEADER..], "{name}"),
        }
    }
    std::fs::remove_dir_all(disk.parent().unwrap()).unwrap();
}
