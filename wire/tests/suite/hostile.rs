//! Messages of outsiders and broken networks: the server refuses them and continues. Requests that
//! do not fit wait, and memory does not grow.

use crate::harness;
use crate::harness::{DEADLINE, METHODS, client, parts, raw, rest, serve, until};
use std::io::IoSlice;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use wire::frame::{FrameKind, FrameLimits, HEADER_BYTES, Header};
use wire::hello::{HELLO_BYTES, Hello};
use wire::{Address, ClientOptions, Error, ServerOptions};

fn request(body: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut header = Header::new(FrameKind::Request, 1).with_content(body, &[IoSlice::new(payload)]);
    header.deadline_ms = 10_000;
    [&header.encode(), body, payload].concat()
}

/// Whether the service still answers.
async fn assert_well(address: &Address) {
    let client = client(address, ClientOptions::default());
    assert_eq!(client.call(METHODS.echo, b"well", &[], DEADLINE).await.unwrap().body, "well");
}

#[tokio::test]
async fn garbage_instead_of_a_hello() {
    let (address, service, server) = serve(ServerOptions::default()).await;
    let (http, tls) = (b"GET / HTTP/1.1\r\n\r\n".as_slice(), [0x16, 3, 1, 2, 0, 1].as_slice());
    for garbage in [http, tls, &[0xFF; 10_000], &[0; 48], b"WEFH but nothing else that makes any sense to anybody"] {
        let mut stream = TcpStream::connect(address.as_str()).await.unwrap();
        stream.write_all(garbage).await.unwrap();
        assert!(rest(&mut stream).await.is_empty());
    }
    assert!(service.peers.lock().unwrap().is_empty());
    until(|| server.connections() == 0).await;
    assert_well(&address).await;
}

#[tokio::test]
async fn garbage_after_the_hello_and_a_frame_of_4_gib() {
    let (address, service, _server) = serve(ServerOptions::default()).await;
    let mut huge = Header::new(FrameKind::Request, 1);
    (huge.body_bytes, huge.payload_bytes) = (u32::MAX, u32::MAX);
    let wrong =
        [FrameKind::Response, FrameKind::Item, FrameKind::End].map(|kind| Header::new(kind, 1).encode().to_vec());
    let twice = [request(b"a", &[]), request(b"a", &[])].map(|mut frame| {
        frame[6] = 1;
        let checksum = wire::frame::crc32c(&frame[..44]);
        frame[44..48].copy_from_slice(&checksum.to_le_bytes());
        frame
    });
    for garbage in
        [b"nonsense".to_vec(), vec![0; 5000], huge.encode().to_vec(), twice.concat()].into_iter().chain(wrong)
    {
        let mut stream = raw(&address).await;
        stream.write_all(&garbage).await.unwrap();
        rest(&mut stream).await;
    }
    until(|| service.left.load(Ordering::SeqCst) == 7).await;
    assert_well(&address).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flipped_bit_anywhere_in_a_request_is_never_served() {
    let (address, service, _server) = serve(ServerOptions::default()).await;
    let frame = request(b"body", b"some payload");
    let mut stream = raw(&address).await;
    stream.write_all(&frame).await.unwrap();
    let mut answer = vec![0; frame.len()];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer[HEADER_BYTES..], frame[HEADER_BYTES..]);
    for bit in 0..frame.len() * 8 {
        let mut flipped = frame.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let mut stream = raw(&address).await;
        stream.write_all(&flipped).await.unwrap();
        assert!(rest(&mut stream).await.is_empty(), "bit {bit}");
    }
    assert_eq!(service.called.load(Ordering::SeqCst), 1);
}

/// A server that answers the first request with these bytes instead of its own.
async fn liar(change: impl Fn(Vec<u8>) -> Vec<u8> + Send + 'static) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().into();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut theirs = [0; HELLO_BYTES];
        stream.read_exact(&mut theirs).await.unwrap();
        stream.write_all(&Hello::decode(&theirs).unwrap().encode()).await.unwrap();
        let mut head = [0; HEADER_BYTES];
        stream.read_exact(&mut head).await.unwrap();
        let request = Header::decode(&head, FrameLimits::default()).unwrap();
        let answer = Header::new(FrameKind::Response, request.id).with_content(b"body", &parts(&[b"payload"]));
        let bytes = change([&answer.encode(), b"body".as_slice(), b"payload"].concat());
        stream.write_all(&bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        rest(&mut stream).await;
    });
    address
}

#[tokio::test]
async fn a_flipped_bit_anywhere_in_an_answer_is_an_error() {
    let call = async |address: Address| client(&address, ClientOptions::default()).call(0, &[], &[], DEADLINE).await;
    assert_eq!(call(liar(|bytes| bytes).await).await.unwrap().payload[..], b"payload"[..]);
    for bit in 0..(HEADER_BYTES + 11) * 8 {
        let address = liar(move |mut bytes| {
            bytes[bit / 8] ^= 1 << (bit % 8);
            bytes
        });
        let error = call(address.await).await.unwrap_err();
        assert!(matches!(error, Error::Protocol(_)), "bit {bit}: {error}");
    }
    for length in [0, 1, 47, 48, 50, 58] {
        let error = call(liar(move |bytes| bytes[..length].to_vec()).await).await.unwrap_err();
        assert!(matches!(error, Error::Unavailable { sent: true, .. }), "{length}: {error}");
    }
    // A client ignores an answer to nothing, but not a frame of another kind.
    let other = |kind, id| move |bytes: Vec<u8>| [Header::new(kind, id).encode().to_vec(), bytes].concat();
    call(liar(other(FrameKind::Response, 77)).await).await.unwrap();
    call(liar(other(FrameKind::Item, 77)).await).await.unwrap();
    assert!(matches!(call(liar(other(FrameKind::End, 1)).await).await, Err(Error::Protocol(_))));
    assert!(matches!(call(liar(other(FrameKind::Open, 1)).await).await, Err(Error::Protocol(_))));
}

#[tokio::test]
async fn slow_handshakes_and_slow_frames_are_given_up() {
    let timeout = Duration::from_millis(200);
    let (address, _, server) =
        serve(ServerOptions { handshake_timeout: timeout, frame_timeout: timeout, ..Default::default() }).await;
    let hello = harness::hello((1, 1)).encode();
    for bytes in [&[], &hello[..10]] {
        let mut stream = TcpStream::connect(address.as_str()).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let begun = Instant::now();
        rest(&mut stream).await;
        assert!(begun.elapsed() < Duration::from_secs(5));
    }
    let mut stream = raw(&address).await;
    stream.write_all(&request(&[], &[0; 10_000])[..5000]).await.unwrap();
    until(|| server.bytes_in_flight() > 0).await;
    rest(&mut stream).await;
    until(|| server.connections() == 0 && server.bytes_in_flight() == 0).await;
}

#[tokio::test]
async fn the_limit_of_connections() {
    let (address, _, server) = serve(ServerOptions { connections: 3, ..Default::default() }).await;
    let mut streams = Vec::new();
    for _ in 0..3 {
        streams.push(raw(&address).await);
    }
    let mut one_more = TcpStream::connect(address.as_str()).await.unwrap();
    assert!(rest(&mut one_more).await.is_empty());
    streams.pop();
    until(|| server.connections() == 2).await;
    assert_well(&address).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_hold_clients_back_and_nothing_grows() {
    let options = ServerOptions { bytes: 4 << 20, requests_per_connection: 8, ..Default::default() };
    let (address, service, server) = serve(options).await;
    let payload = bytes::Bytes::from(vec![5; 1 << 20]);
    let calls: Vec<_> = (0..30)
        .map(|number| {
            let (client, payload) = (client(&address, ClientOptions::default()), payload.clone());
            tokio::spawn(async move {
                let size = if number % 3 == 0 { payload.len() } else { 100 };
                client.call(METHODS.wait, &[], &parts(&[&payload[..size]]), DEADLINE).await
            })
        })
        .collect();
    until(|| server.bytes_in_flight() > 3 << 20).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(server.bytes_in_flight() <= 4 << 20);
    assert!(service.waiting.load(Ordering::SeqCst) < 30);
    service.go.add_permits(30);
    for call in calls {
        call.await.unwrap().unwrap();
    }
    until(|| server.bytes_in_flight() == 0).await;
    // Requests beyond the connection's limit wait in it.
    let one = client(&address, ClientOptions { channels: 1, ..Default::default() });
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let one = one.clone();
            tokio::spawn(async move { one.call(METHODS.wait, &[], &[], DEADLINE).await })
        })
        .collect();
    until(|| service.waiting.load(Ordering::SeqCst) == 8).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(service.waiting.load(Ordering::SeqCst), 8);
    service.go.add_permits(20);
    for call in calls {
        call.await.unwrap().unwrap();
    }
}

/// Short requests with long answers wait like long requests, per connection and in total.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_answers_hold_clients_back_too() {
    let options = ServerOptions { reply_bytes: 4 << 20, reply_bytes_per_connection: 2 << 20, ..Default::default() };
    let (address, service, _) = serve(options).await;
    let ask = |mebibytes: usize| {
        let client = client(&address, ClientOptions { channels: 1, ..Default::default() });
        tokio::spawn(async move { client.call(METHODS.wait, &vec![7; mebibytes], &[], DEADLINE).await })
    };
    let mut calls: Vec<_> = (0..11).map(|_| ask(1)).collect();
    until(|| service.waiting.load(Ordering::SeqCst) >= 3).await;
    // More than there ever is; all later requests wait behind it.
    calls.push(ask(50));
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(service.waiting.load(Ordering::SeqCst) <= 4);
    // Requests with short answers continue meanwhile.
    assert_well(&address).await;
    service.go.add_permits(12);
    for call in calls {
        call.await.unwrap().unwrap();
    }
    let one = client(&address, ClientOptions { channels: 1, ..Default::default() });
    let calls: Vec<_> = (0..6)
        .map(|_| {
            let one = one.clone();
            tokio::spawn(async move { one.call(METHODS.wait, b"x", &[], DEADLINE).await })
        })
        .collect();
    until(|| service.waiting.load(Ordering::SeqCst) == 2).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(service.waiting.load(Ordering::SeqCst), 2);
    service.go.add_permits(6);
    for call in calls {
        call.await.unwrap().unwrap();
    }
}

/// Announces a request of this many bytes, and sends a few of them.
async fn trickle(mut stream: impl AsyncWrite + Unpin, bytes: u32) {
    let mut header = Header::new(FrameKind::Request, 1);
    (header.payload_bytes, header.deadline_ms) = (bytes, 60_000);
    let mut sent = stream.write_all(&[&header.encode(), &[0; 5000][..]].concat()).await;
    while sent.is_ok() {
        tokio::time::sleep(Duration::from_millis(100)).await;
        sent = stream.write_all(&[0; 10]).await;
    }
}

fn as_in_service() -> ServerOptions {
    ServerOptions { bytes: 128 << 20, bytes_per_connection: 64 << 20, ..Default::default() }
}

/// How long a mebibyte takes for the round trip.
async fn mebibyte(address: &Address) -> Duration {
    let (client, begun, payload) = (client(address, ClientOptions::default()), Instant::now(), vec![7; 1 << 20]);
    let echoed = client.call(METHODS.echo, &[], &parts(&[&payload]), DEADLINE).await.unwrap();
    assert_eq!(echoed.payload.len(), payload.len());
    begun.elapsed()
}

/// Clients that send too slowly keep their space for a moment, however much they announce, and are
/// disconnected when another client waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_announces_much_and_sends_little_stalls_nobody() {
    for (bytes, takes) in [(60 << 20, 50 << 20), (4 << 20, 120 << 20)] {
        let (address, _, server) = serve(as_in_service()).await;
        for _ in 0..84 {
            tokio::spawn(trickle(raw(&address).await, bytes));
        }
        until(|| server.bytes_in_flight() > takes).await;
        // Without the limit it took more than a minute.
        let took = mebibyte(&address).await;
        assert!(took < Duration::from_secs(20), "{took:?}");
    }
}

/// A message that is announced and does not arrive takes no memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn announced_bytes_are_not_memory() {
    let (address, _, server) = serve(as_in_service()).await;
    let mut header = Header::new(FrameKind::Request, 1);
    (header.payload_bytes, header.deadline_ms) = (60 << 20, 60_000);
    let mut streams = Vec::new();
    for _ in 0..84 {
        let mut stream = raw(&address).await;
        stream.write_all(&header.encode()).await.unwrap();
        streams.push(stream);
    }
    let took = mebibyte(&address).await;
    assert!(took < Duration::from_secs(20), "{took:?}");
    until(|| server.bytes_in_flight() == 0).await;
    assert!(streams.len() == 84 && server.load().refused == 0);
}
