//! Calls, one-way messages, pushes, deadlines and cancellation, over loopback and in memory.

use crate::harness;
use crate::harness::{DEADLINE, METHODS, client, client_of, memory, parts, serve, slow_reader};
use std::io::IoSlice;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;
use wire::frame::FrameLimits;
use wire::{Client, ClientOptions, Error, Payload, Role, STATUS_PANICKED, STATUS_TOO_LONG, ServerOptions};

/// Long enough that a busy machine does not cause such a silence by itself.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn round_trips_of_many_lengths_over_tcp_and_memory() {
    let (address, _, _server) = serve(ServerOptions::default()).await;
    let clients =
        [client(&address, ClientOptions::default()), memory(ServerOptions::default(), ClientOptions::default()).0];
    for client in clients {
        for length in [0, 1, 47, 4000, 4096, 70_000, 1 << 20, (3 << 20) + 17] {
            let bytes: Vec<u8> = (0..length).map(|at| (at * 7 % 251) as u8).collect();
            let (first, second) = bytes.split_at(length / 3);
            let answer = client.call(METHODS.echo, b"body", &parts(&[first, second]), DEADLINE).await.unwrap();
            assert_eq!((&answer.body[..], &answer.payload[..]), (&b"body"[..], &bytes[..]));
            assert!(length == 0 || (answer.payload.as_ptr() as usize).is_multiple_of(4096));
        }
        let body = vec![3; 1 << 20];
        assert_eq!(client.call(METHODS.echo, &body, &[], DEADLINE).await.unwrap().body, body);
        assert_eq!(client.load(), wire::Load::default());
    }
}

#[test]
fn calls_from_threads() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (address, _, _server) = runtime.block_on(serve(ServerOptions::default()));
    let client = Client::new(runtime.handle().clone(), address, ClientOptions::default());
    std::thread::scope(|scope| {
        for number in 0..8u8 {
            let client = &client;
            scope.spawn(move || {
                for _ in 0..50 {
                    let bytes = vec![number; 1 << (10 + number)];
                    let answer = client.call_blocking(METHODS.echo, &[number], &parts(&[&bytes]), DEADLINE).unwrap();
                    assert!(answer.body[..] == [number] && answer.payload[..] == bytes[..]);
                }
            });
        }
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_in_flight_are_answered_out_of_order() {
    let (client, service, _server) =
        memory(ServerOptions::default(), ClientOptions { channels: 1, ..Default::default() });
    let slow = tokio::spawn({
        let client = client.clone();
        async move { client.call(METHODS.wait, &[], &[], DEADLINE).await }
    });
    while service.waiting.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let calls: Vec<_> = (0..200u32)
        .map(|number| {
            let client = client.clone();
            tokio::spawn(async move {
                let answer = client.call(METHODS.echo, &number.to_le_bytes(), &[], DEADLINE).await.unwrap();
                assert_eq!(answer.body[..], number.to_le_bytes());
            })
        })
        .collect();
    for call in calls {
        call.await.unwrap();
    }
    assert!(!slow.is_finished());
    service.go.add_permits(1);
    slow.await.unwrap().unwrap();
}

#[tokio::test]
async fn one_way_messages_and_pushes_arrive() {
    let pushed = Arc::new(Mutex::new(Vec::new()));
    let on_push: wire::OnPush = Arc::new({
        let pushed = pushed.clone();
        move |push| pushed.lock().unwrap().push((push.method, push.body.to_vec(), push.payload.to_vec()))
    });
    let options =
        ClientOptions { on_push: Some(on_push), role: Role::META, credentials: "me".into(), ..Default::default() };
    let (client, service, _server) = memory(ServerOptions::default(), options);
    client.send(METHODS.push_back, b"a", &parts(&[b"b"]), DEADLINE).await.unwrap();
    harness::until(|| !pushed.lock().unwrap().is_empty()).await;
    assert_eq!(*pushed.lock().unwrap(), [(9, b"a".to_vec(), b"b".to_vec())]);
    let peers = service.peers.lock().unwrap();
    assert!(peers.len() == 1 && peers[0].role == Role::META && peers[0].credentials == "me" && peers[0].client != 0);
}

#[tokio::test]
async fn the_services_errors_panics_and_too_long_answers() {
    let options = ClientOptions { limits: FrameLimits { body_bytes: 100, payload_bytes: 1000 }, ..Default::default() };
    let (client, _, _server) = memory(ServerOptions::default(), options);
    let error = client.call(METHODS.fail, b"why", &[], DEADLINE).await.unwrap_err();
    assert_eq!(error, Error::Remote { status: 5, body: "why".into() });
    let error = client.call(METHODS.panic, &[], &[], DEADLINE).await.unwrap_err();
    assert!(matches!(error, Error::Remote { status: STATUS_PANICKED, .. }));
    let error = client.call(METHODS.echo, &[], &parts(&[&[0; 1001]]), DEADLINE).await.unwrap_err();
    assert!(matches!(error, Error::Remote { status: STATUS_TOO_LONG, .. }));
    assert_eq!(client.call(METHODS.echo, &[], &parts(&[&[0; 1000]]), DEADLINE).await.unwrap().payload.len(), 1000);
}

#[tokio::test]
async fn what_is_longer_than_the_server_takes_is_not_sent() {
    let options = ServerOptions { limits: FrameLimits { body_bytes: 10, payload_bytes: 20 }, ..Default::default() };
    let (client, _, _server) = memory(options, ClientOptions::default());
    for (body, payload) in [(11, 0), (0, 21)] {
        let (body, payload) = (vec![0; body], vec![0; payload]);
        let error = client.call(METHODS.echo, &body, &parts(&[&payload]), DEADLINE).await.unwrap_err();
        assert!(matches!(error, Error::Refused(_)), "{error}");
    }
    client.call(METHODS.echo, &[0; 10], &parts(&[&[0; 20]]), DEADLINE).await.unwrap();
}

#[tokio::test]
async fn a_deadline_ends_the_call_and_cancels_it_at_the_server() {
    let (client, service, _server) =
        memory(ServerOptions::default(), ClientOptions { channels: 1, ..Default::default() });
    let begun = Instant::now();
    let error = client.call(METHODS.wait, &[], &[], Duration::from_millis(50)).await.unwrap_err();
    assert_eq!(error, Error::Deadline);
    assert!(begun.elapsed() < Duration::from_secs(2));
    harness::until(|| service.waiting.load(Ordering::SeqCst) == 0).await;
    // Dropping a call cancels it, too, and the connection remains.
    let call = tokio::spawn({
        let client = client.clone();
        async move { client.call(METHODS.wait, &[], &[], DEADLINE).await }
    });
    harness::until(|| service.waiting.load(Ordering::SeqCst) == 1).await;
    call.abort();
    harness::until(|| service.waiting.load(Ordering::SeqCst) == 0).await;
    service.go.add_permits(1);
    client.call(METHODS.echo, b"x", &[], DEADLINE).await.unwrap();
    assert_eq!(service.peers.lock().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn giving_up_in_the_middle_of_a_frame_closes_the_connection() {
    // The server reads the hello and nothing more, so that a long frame cannot be written
    // completely.
    let (address, dropped) = slow_reader().await;
    let client = client(&address, ClientOptions { channels: 1, ..Default::default() });
    let payload = Payload::new(40 << 20);
    let error = client.call(0, &[], &[IoSlice::new(&payload)], Duration::from_millis(300)).await.unwrap_err();
    assert_eq!(error, Error::Deadline);
    assert!(!client.is_connected());
    dropped.await.unwrap();
}

#[tokio::test]
async fn a_silent_server_is_found_out() {
    let (address, _dropped) = slow_reader().await;
    let times = (Duration::from_millis(100), SILENCE_TIMEOUT);
    let options = ClientOptions { ping_after: times.0, dead_after: times.1, ..Default::default() };
    let client = client(&address, options);
    let error = client.call(0, &[], &[], DEADLINE).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { sent: true, .. }), "{error}");
    // A slow but live server is not given up.
    let (address, service, _server) = serve(ServerOptions::default()).await;
    let client = client_of(&address, times);
    let call = tokio::spawn(async move { client.call(METHODS.wait, &[], &[], DEADLINE).await });
    tokio::time::sleep(SILENCE_TIMEOUT + SILENCE_TIMEOUT / 2).await;
    service.go.add_permits(1);
    call.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_silent_client_is_found_out() {
    let times = (Duration::from_millis(100), SILENCE_TIMEOUT);
    let (address, _, server) =
        serve(ServerOptions { ping_after: times.0, dead_after: times.1, ..Default::default() }).await;
    let alive = client(&address, ClientOptions { channels: 1, ..Default::default() });
    alive.call(METHODS.echo, &[], &[], DEADLINE).await.unwrap();
    let silent = harness::raw(&address).await;
    assert_eq!(server.connections(), 2);
    harness::until(|| server.connections() == 1).await;
    tokio::time::sleep(SILENCE_TIMEOUT / 2).await;
    assert!(alive.is_connected());
    drop(silent);
}

#[tokio::test]
async fn clients_leave_when_the_last_clone_is_dropped() {
    let (address, service, server) = serve(ServerOptions::default()).await;
    let client = client(&address, ClientOptions::default());
    client.clone().call(METHODS.echo, &[], &[], DEADLINE).await.unwrap();
    assert_eq!(server.connections(), 1);
    drop(client);
    harness::until(|| server.connections() == 0 && service.left.load(Ordering::SeqCst) == 1).await;
}
