//! Direct connections, which one thread uses while it waits.

use crate::harness;
use crate::harness::{DEADLINE, Echo, METHODS, client, hello, parts, serve, until};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use wire::hello::HELLO_BYTES;
use wire::{Address, Client, ClientOptions, Error, Server, ServerOptions};

const SHORT_WAIT: Duration = Duration::from_millis(200);
/// Longer than a busy machine delays a thread.
const LONG_WAIT: Duration = Duration::from_millis(1500);

/// Runs work on a thread that does not belong to the runtime.
async fn blocking<T: Send + 'static>(client: &Client, work: impl FnOnce(&Client) -> T + Send + 'static) -> T {
    let client = client.clone();
    tokio::task::spawn_blocking(move || work(&client)).await.unwrap()
}

/// The number of the connection that a call uses.
fn peer(client: &Client) -> u64 {
    let answer = client.call_blocking(METHODS.peer, &[], &[], DEADLINE).unwrap();
    u64::from_le_bytes(answer.body[..].try_into().unwrap())
}

/// A client with one shared connection, which makes calls until it has a direct one; returns their
/// numbers.
async fn with_direct(address: &Address, options: ClientOptions) -> (Client, u64, u64) {
    let client = client(address, ClientOptions { channels: 1, ..options });
    let (shared, direct) = blocking(&client, |client| {
        let (shared, begun) = (peer(client), Instant::now());
        loop {
            match peer(client) {
                direct if direct != shared => return (shared, direct),
                _ => assert!(begun.elapsed() < DEADLINE, "no direct connection is made"),
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    })
    .await;
    (client, shared, direct)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn threads_have_connections_of_their_own_and_every_answer_is_right() {
    let (address, _, server) = serve(ServerOptions::default()).await;
    let (client, shared, direct) = with_direct(&address, ClientOptions { direct: 3, ..Default::default() }).await;
    assert_eq!(blocking(&client, peer).await, direct, "it is used again");
    let threads: Vec<_> = (0..8_usize)
        .map(|thread| {
            let client = client.clone();
            std::thread::spawn(move || {
                for round in 0..200 {
                    // Lengths around what one read takes, around the longest request of a direct
                    // connection, and zero.
                    let length =
                        [0, 1, 47, 4096, 12_000 + thread, 16_384, 100_000, 300_000][(round + thread) % 8] + round % 3;
                    let payload: Vec<u8> = (0..length).map(|at| (at * 7 + round + thread) as u8).collect();
                    let (first, second) = payload.split_at(length / 3);
                    let body = [thread as u8; 20];
                    let answer = client.call_blocking(METHODS.echo, &body, &parts(&[first, second]), DEADLINE).unwrap();
                    assert_eq!(answer.body, body[..]);
                    assert!(*answer.payload == payload, "{length} bytes came back different");
                    let error = client.call_blocking(METHODS.fail, b"no", &[], DEADLINE).unwrap_err();
                    assert_eq!(error, Error::Remote { status: 5, body: "no".into() });
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(server.connections(), 1 + 3, "no more than were allowed");
    assert_eq!(client.load(), wire::Load::default());
    let error = blocking(&client, |client| client.call_blocking(METHODS.panic, &[], &[], DEADLINE)).await.unwrap_err();
    assert!(matches!(error, Error::Remote { status: wire::STATUS_PANICKED, .. }), "{error}");
    // A call that waits on the runtime uses the shared connection.
    let answer = client.call(METHODS.peer, &[], &[], DEADLINE).await.unwrap();
    assert_eq!(answer.body, shared.to_le_bytes()[..]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn none_are_made_where_none_are_wanted_or_where_there_is_no_tcp() {
    let (address, _, server) = serve(ServerOptions::default()).await;
    let client = client(&address, ClientOptions { channels: 1, direct: 0, ..Default::default() });
    blocking(&client, |client| (0..50).for_each(|_| _ = peer(client))).await;
    assert_eq!(server.connections(), 1);
    let (memory, _, server) =
        harness::memory(ServerOptions::default(), ClientOptions { channels: 1, ..Default::default() });
    blocking(&memory, |client| (0..50).for_each(|_| _ = peer(client))).await;
    assert_eq!(server.connections(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deadlines_hold_and_what_comes_late_is_nobodys_answer() {
    let (address, service, _server) = serve(ServerOptions::default()).await;
    let (client, _, direct) = with_direct(&address, ClientOptions::default()).await;
    let begun = Instant::now();
    let error =
        blocking(&client, |client| client.call_blocking(METHODS.wait, b"late", &[], SHORT_WAIT)).await.unwrap_err();
    assert_eq!(error, Error::Deadline);
    assert!((SHORT_WAIT..LONG_WAIT * 3).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    // The server gives up the request, too.
    until(|| service.waiting.load(Ordering::SeqCst) == 0).await;
    for _ in 0..20 {
        let answer = blocking(&client, |client| client.call_blocking(METHODS.echo, b"next", &[], DEADLINE)).await;
        assert_eq!(answer.unwrap().body, "next");
    }
    assert_ne!(blocking(&client, peer).await, direct, "the connection with the late answer is not used again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_server_is_asked_whether_it_lives_and_waited_for() {
    let (address, service, _server) = serve(ServerOptions::default()).await;
    let times = ClientOptions { ping_after: SHORT_WAIT, dead_after: LONG_WAIT, ..Default::default() };
    let (client, ..) = with_direct(&address, times).await;
    let call = blocking(&client, |client| client.call_blocking(METHODS.wait, b"slow", &[], DEADLINE));
    let go = async {
        tokio::time::sleep(LONG_WAIT * 2).await;
        service.go.add_permits(1);
    };
    assert_eq!(tokio::join!(call, go).0.unwrap().body, "slow");
    // The server sends pings, too, and the waiting thread answers them.
    let times = ServerOptions { ping_after: SHORT_WAIT, dead_after: LONG_WAIT, ..Default::default() };
    let (address, service, _server) = serve(times).await;
    let (client, ..) = with_direct(&address, ClientOptions::default()).await;
    let call = blocking(&client, |client| client.call_blocking(METHODS.wait, b"slow", &[], DEADLINE));
    let go = async {
        tokio::time::sleep(LONG_WAIT * 2).await;
        service.go.add_permits(1);
    };
    assert_eq!(tokio::join!(call, go).0.unwrap().body, "slow");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = Address::from(listener.local_addr().unwrap());
    // The server answers on the shared connection and on no other one.
    let service = Arc::new(Echo::default());
    let server = Server::new(service, ServerOptions::default());
    tokio::spawn(async move {
        let (stream, address) = listener.accept().await.unwrap();
        tokio::spawn(async move { server.serve_stream(stream.into(), address.to_string()).await });
        let mut hung = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut theirs = [0; HELLO_BYTES];
            stream.read_exact(&mut theirs).await.unwrap();
            stream.write_all(&hello((1, 1)).encode()).await.unwrap();
            hung.push(stream);
        }
    });
    let times = ClientOptions { channels: 1, ping_after: SHORT_WAIT / 4, dead_after: SHORT_WAIT, ..Default::default() };
    let client = client(&address, times);
    let lost = blocking(&client, |client| {
        let begun = Instant::now();
        loop {
            assert!(begun.elapsed() < DEADLINE, "it is not given up");
            let called = Instant::now();
            match client.call_blocking(METHODS.echo, &[], &[], DEADLINE) {
                Ok(_) => std::thread::sleep(Duration::from_millis(1)),
                Err(error) => return (error, called.elapsed()),
            }
        }
    });
    let (error, took) = lost.await;
    assert!(matches!(error, Error::Unavailable { sent: true, .. }), "{error}");
    assert!((SHORT_WAIT..LONG_WAIT * 3).contains(&took), "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_goes_is_not_held_up_and_the_next_one_is_found() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let mut listener = Some(listener);
    let (backoff, address) = (Duration::from_millis(20)..=SHORT_WAIT, Address::from(at));
    let client = client(&address, ClientOptions { channels: 1, backoff, ..Default::default() });
    for round in 0..3 {
        let listener = match listener.take() {
            Some(listener) => listener,
            None => TcpListener::bind(at).await.unwrap(),
        };
        let service = Arc::new(Echo::default());
        let (stop, stopped) = oneshot::channel::<()>();
        let server = tokio::spawn(wire::serve(listener, service.clone(), ServerOptions::default(), async {
            let _ = stopped.await;
        }));
        let begun = Instant::now();
        while blocking(&client, |client| client.call_blocking(METHODS.echo, &[], &[], DEADLINE)).await.is_err() {
            assert!(begun.elapsed() < DEADLINE, "round {round}");
        }
        while service.peers.lock().unwrap().len() < 2 {
            blocking(&client, peer).await;
        }
        // A request in flight is answered; idle connections delay nothing.
        let call = blocking(&client, |client| client.call_blocking(METHODS.wait, b"last", &[], DEADLINE));
        let stop = async {
            until(|| service.waiting.load(Ordering::SeqCst) == 1).await;
            stop.send(()).unwrap();
            tokio::time::sleep(SHORT_WAIT).await;
            service.go.add_permits(1);
        };
        assert_eq!(tokio::join!(call, stop).0.unwrap().body, "last");
        let stopped = Instant::now();
        server.await.unwrap().unwrap();
        assert!(stopped.elapsed() < LONG_WAIT * 3, "round {round}: {:?}", stopped.elapsed());
        until(|| !client.is_connected()).await;
    }
}
