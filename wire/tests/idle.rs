//! The cost of an idle connection. This test has a process of its own, so that the memory is that
//! of the connections.

mod harness;

use harness::{DEADLINE, METHODS, client, raw, serve};
use std::time::Duration;
use wire::{ClientOptions, ServerOptions};

const CONNECTIONS: usize = 2000;

/// Memory of this process, in bytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_idle_connections_take_little_memory() {
    let (address, service, server) = serve(ServerOptions::default()).await;
    // The first connections pay for what all share.
    let mut streams = Vec::with_capacity(CONNECTIONS + 50);
    for _ in 0..50 {
        streams.push(raw(&address).await);
    }
    let before = resident();
    for _ in 0..CONNECTIONS {
        streams.push(raw(&address).await);
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(server.connections(), CONNECTIONS + 50);
    let each = resident().saturating_sub(before) / CONNECTIONS;
    println!("{each} bytes a connection, with the test's end of it");
    assert!(each < 8 << 10, "{each} bytes a connection");
    let client = client(&address, ClientOptions::default());
    assert_eq!(client.call(METHODS.echo, b"x", &[], DEADLINE).await.unwrap().body, "x");
    drop(streams);
    service.peers.lock().unwrap().clear();
    harness::until(|| server.connections() == 1).await;
}
