//! Opening, losing and reopening connections; versions, credentials, draining.

use crate::harness::{Cut, DEADLINE, Echo, METHODS, client, memory, parts, serve, until};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::oneshot;
use tokio::time::Instant;
use wire::{Address, ClientOptions, Error, Server, ServerOptions};

#[tokio::test]
async fn a_server_that_is_not_there_and_comes_back() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    drop(listener);
    let backoff = Duration::from_millis(20)..=Duration::from_millis(200);
    let options = ClientOptions { channels: 2, backoff, ..Default::default() };
    let client = client(&Address::from(at), options);
    let begun = Instant::now();
    for _ in 0..6 {
        let error = client.call(METHODS.echo, &[], &[], DEADLINE).await.unwrap_err();
        assert!(matches!(&error, Error::Unavailable { sent: false, why } if why.contains(&at.to_string())), "{error}");
    }
    // The attempts waited at least half of 20, 40, 80, 160, 200 ms, on one channel or the other.
    assert!(begun.elapsed() >= Duration::from_millis(70), "{:?}", begun.elapsed());
    for round in 0..3 {
        let listener = TcpListener::bind(at).await.unwrap();
        let service = Arc::new(Echo::default());
        let (stop, stopped) = oneshot::channel::<()>();
        let server = tokio::spawn(wire::serve(listener, service.clone(), ServerOptions::default(), async {
            let _ = stopped.await;
        }));
        let begun = Instant::now();
        while client.call(METHODS.echo, &[], &[], DEADLINE).await.is_err() {
            assert!(begun.elapsed() < Duration::from_secs(10), "round {round}");
        }
        assert!(client.is_connected());
        stop.send(()).unwrap();
        server.await.unwrap().unwrap();
        until(|| !client.is_connected()).await;
    }
}

#[tokio::test]
async fn callers_share_one_attempt_and_those_in_a_hurry_do_not_wait() {
    let options = ClientOptions {
        channels: 1,
        backoff: Duration::from_secs(5)..=Duration::from_secs(5),
        fail_fast: true,
        ..Default::default()
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = Address::from(listener.local_addr().unwrap());
    drop(listener);
    let client = client(&address, options);
    let begun = Instant::now();
    let calls: Vec<_> = (0..50)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.call(METHODS.echo, &[], &[], DEADLINE).await.is_err() })
        })
        .collect();
    for call in calls {
        assert!(call.await.unwrap());
    }
    assert!(client.call(METHODS.echo, &[], &[], DEADLINE).await.is_err());
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn nobody_in_a_hurry_waits_for_another_attempt_at_a_link_that_is_cut() {
    let (address, _service, _server) = serve(ServerOptions::default()).await;
    let cut = Cut::default();
    let options = ClientOptions {
        connect: Arc::new(cut.clone()),
        connect_timeout: Duration::from_secs(3),
        backoff: Duration::from_millis(1)..=Duration::from_millis(1),
        fail_fast: true,
        ..Default::default()
    };
    let client = client(&address, options);
    let took = async || {
        let begun = Instant::now();
        let error = client.call(METHODS.echo, &[], &[], DEADLINE).await.unwrap_err();
        assert!(matches!(&error, Error::Unavailable { sent: false, .. }), "{error}");
        begun.elapsed()
    };
    assert!(took().await >= Duration::from_secs(3));
    tokio::time::sleep(Duration::from_millis(10)).await;
    let again = took().await;
    assert!(again < Duration::from_secs(2), "{again:?}");
    let (other, begun) = (client.clone(), Instant::now());
    let thread = std::thread::spawn(move || other.call_blocking(METHODS.echo, &[], &[], DEADLINE).is_err());
    until(|| thread.is_finished()).await;
    assert!(thread.join().unwrap() && begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert!(!client.is_connected());
    cut.heal();
    let begun = Instant::now();
    while client.call(METHODS.echo, &[], &[], DEADLINE).await.is_err() {
        assert!(begun.elapsed() < Duration::from_secs(30));
    }
}

#[tokio::test]
async fn calls_in_flight_learn_that_the_connection_is_lost() {
    let (client, service, _server) = memory(ServerOptions::default(), ClientOptions::default());
    let call = tokio::spawn({
        let client = client.clone();
        async move { client.call(METHODS.wait, &[], &[], DEADLINE).await }
    });
    until(|| service.waiting.load(Ordering::SeqCst) == 1).await;
    service.peers.lock().unwrap()[0].close();
    let error = call.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Unavailable { sent: true, .. }), "{error}");
    until(|| service.waiting.load(Ordering::SeqCst) == 0).await;
    client.call(METHODS.echo, &[], &[], DEADLINE).await.unwrap();
    assert_eq!(service.peers.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn no_common_version_is_said_on_both_sides() {
    let (client, service, _server) = memory(
        ServerOptions { versions: 3..=4, ..Default::default() },
        ClientOptions { versions: 1..=2, ..Default::default() },
    );
    let error = client.call(METHODS.echo, &[], &[], DEADLINE).await.unwrap_err();
    assert!(
        matches!(&error, Error::Refused(why) if why.contains("the other side speaks 3 to 4, this one 1 to 2")),
        "{error}"
    );
    assert!(service.peers.lock().unwrap().is_empty());
}

#[tokio::test]
async fn the_highest_common_version_and_the_common_features() {
    let (client, service, _server) = memory(
        ServerOptions { versions: 1..=3, features: 0b110, ..Default::default() },
        ClientOptions { versions: 2..=9, features: 0b011, ..Default::default() },
    );
    assert_eq!(client.peer_features(), 0);
    client.call(METHODS.echo, &[], &[], DEADLINE).await.unwrap();
    assert_eq!(client.peer_features(), 0b010);
    let peers = service.peers.lock().unwrap();
    assert_eq!((peers[0].version, peers[0].features), (3, 0b010));
}

#[tokio::test]
async fn wrong_credentials_are_refused_with_the_services_words() {
    let options = ClientOptions { credentials: "wrong".into(), ..Default::default() };
    let (client, service, server) = memory(ServerOptions::default(), options);
    let error = client.call(METHODS.echo, &[], &[], DEADLINE).await.unwrap_err();
    assert!(matches!(&error, Error::Refused(why) if why.contains("unknown credentials")), "{error}");
    until(|| server.connections() == 0).await;
    assert_eq!(service.left.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn draining_answers_what_is_in_flight_and_takes_nothing_new() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = Address::from(listener.local_addr().unwrap());
    let service = Arc::new(Echo::default());
    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(wire::serve(listener, service.clone(), ServerOptions::default(), async {
        let _ = stopped.await;
    }));
    let (busy, idle) = (client(&address, ClientOptions::default()), client(&address, ClientOptions::default()));
    idle.call(METHODS.echo, &[], &[], DEADLINE).await.unwrap();
    let call = tokio::spawn({
        let busy = busy.clone();
        async move { busy.call(METHODS.wait, b"late", &[], DEADLINE).await }
    });
    until(|| service.waiting.load(Ordering::SeqCst) == 1).await;
    stop.send(()).unwrap();
    until(|| !idle.is_connected() && !busy.is_connected()).await;
    assert!(matches!(idle.call(METHODS.echo, &[], &[], DEADLINE).await, Err(Error::Unavailable { sent: false, .. })));
    assert!(!server.is_finished() && !call.is_finished());
    service.go.add_permits(1);
    assert_eq!(call.await.unwrap().unwrap().body, "late");
    server.await.unwrap().unwrap();
}

#[tokio::test]
async fn draining_ends_in_time() {
    let options = ServerOptions { drain: Duration::from_millis(100), ..Default::default() };
    let (client, service, server) = memory(options, ClientOptions::default());
    let call = tokio::spawn(async move { client.call(METHODS.wait, &[], &[], DEADLINE).await });
    until(|| service.waiting.load(Ordering::SeqCst) == 1).await;
    let begun = Instant::now();
    server.drain().await;
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert!(matches!(call.await.unwrap(), Err(Error::Unavailable { sent: true, .. })));
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn load_goes_to_further_channels() {
    let (address, service, _server) = serve(ServerOptions::default()).await;
    let client = client(&address, ClientOptions { channels: 3, ..Default::default() });
    let payload = vec![0; 1 << 20];
    let calls: Vec<_> = (0..9)
        .map(|_| {
            let (client, payload) = (client.clone(), payload.clone());
            tokio::spawn(async move { client.call(METHODS.wait, &[], &parts(&[&payload]), DEADLINE).await })
        })
        .collect();
    until(|| service.waiting.load(Ordering::SeqCst) == 9).await;
    assert_eq!(client.load(), wire::Load { requests: 9, bytes: 9 << 20 });
    service.go.add_permits(9);
    for call in calls {
        call.await.unwrap().unwrap();
    }
    let peers = service.peers.lock().unwrap();
    assert!(peers.len() == 3 && peers.iter().all(|peer| peer.client == peers[0].client));
}

#[tokio::test]
async fn unix_sockets() {
    let path = std::env::temp_dir().join(format!("weft-wire-{}.sock", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();
    let server = Server::new(Arc::new(Echo::default()), ServerOptions::default());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let server = server.clone();
            tokio::spawn(async move { server.serve_stream(stream.into(), "unix".into()).await });
        }
    });
    let client = client(&format!("unix:{}", path.display()).into(), ClientOptions::default());
    assert_eq!(client.call(METHODS.echo, b"x", &[], DEADLINE).await.unwrap().body, "x");
    std::fs::remove_file(path).unwrap();
}
