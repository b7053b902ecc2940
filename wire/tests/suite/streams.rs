//! Streams of items: order, flow control, ends.

use crate::harness::{DEADLINE, METHODS, memory, until};
use std::sync::atomic::Ordering;
use std::time::Duration;
use wire::{ClientOptions, Error, ServerOptions};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_items_in_order_and_then_the_end() {
    let (client, _, _server) = memory(ServerOptions::default(), ClientOptions::default());
    for (count, window) in [(0u32, 1), (1, 1), (1000, 1), (1000, 7), (5000, 64)] {
        let mut items = client.open_stream(METHODS.count, &count.to_le_bytes(), &[], window, DEADLINE).await.unwrap();
        for number in 0..count {
            let item = items.next().await.unwrap().unwrap();
            assert_eq!((&item.body[..], &item.payload[..]), (&number.to_le_bytes()[..], &count.to_le_bytes()[..]));
        }
        assert!(items.next().await.unwrap().is_none());
        assert_eq!(items.take_end().unwrap().body, "end");
        assert!(items.next().await.unwrap().is_none());
    }
}

#[tokio::test]
async fn a_slow_consumer_holds_the_server_back() {
    let (client, service, _server) = memory(ServerOptions::default(), ClientOptions::default());
    let mut items = client.open_stream(METHODS.count, &100_000u32.to_le_bytes(), &[], 10, DEADLINE).await.unwrap();
    until(|| service.sent.load(Ordering::SeqCst) == 10).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(service.sent.load(Ordering::SeqCst), 10);
    for _ in 0..20 {
        items.next().await.unwrap().unwrap();
    }
    until(|| service.sent.load(Ordering::SeqCst) == 30).await;
    // Other calls on the same connection continue.
    client.call(METHODS.echo, b"x", &[], DEADLINE).await.unwrap();
    drop(items);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(service.sent.load(Ordering::SeqCst), 30);
    client.call(METHODS.echo, b"x", &[], DEADLINE).await.unwrap();
    assert_eq!(service.peers.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn errors_and_deadlines_end_a_stream() {
    let (client, _, _server) = memory(ServerOptions::default(), ClientOptions::default());
    let mut items = client.open_stream(METHODS.fail, b"why", &[], 5, DEADLINE).await.unwrap();
    assert_eq!(items.next().await.unwrap_err(), Error::Remote { status: 5, body: "why".into() });
    assert!(items.next().await.unwrap().is_none());
    let mut items = client.open_stream(METHODS.wait, &[], &[], 5, Duration::from_millis(50)).await.unwrap();
    assert_eq!(items.next().await.unwrap_err(), Error::Deadline);
}

#[tokio::test]
async fn a_lost_connection_ends_a_stream() {
    let (client, service, _server) = memory(ServerOptions::default(), ClientOptions::default());
    let mut items = client.open_stream(METHODS.count, &1000u32.to_le_bytes(), &[], 2, DEADLINE).await.unwrap();
    items.next().await.unwrap().unwrap();
    service.peers.lock().unwrap()[0].close();
    let error = loop {
        match items.next().await {
            Ok(item) => assert!(item.is_some()),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
}
