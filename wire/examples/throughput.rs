//! Measures the cost of bytes and messages over loopback: mebibytes per second, processor seconds
//! per gibibyte of the whole process (both sides), and microseconds per round trip. `cargo run
//! --release -p wire --example throughput [MiB in all]`

use bytes::Bytes;
use std::fs;
use std::io::IoSlice;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use wire::{Client, ClientOptions, Reply, Request, Server, ServerOptions, Service};

const DEADLINE: Duration = Duration::from_secs(30);
const MIB: usize = 1 << 20;
const WRITE: u16 = 1;
const READ: u16 = 2;

struct Store(Bytes);

impl Service for Store {
    async fn call(&self, request: Request) -> Reply {
        match request.method {
            READ => Reply::ok(Vec::new()).with_payload(self.0.clone()),
            _ => Reply::ok(request.body.to_vec()),
        }
    }
}

/// Processor time of the process, in seconds.
fn processor() -> f64 {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

fn report(name: &str, mebibytes: usize, run: impl FnOnce()) {
    let (begun, used) = (Instant::now(), processor());
    run();
    let (time, used) = (begun.elapsed().as_secs_f64(), processor() - used);
    let gibibytes = mebibytes as f64 / 1024.0;
    println!("{name:28} {:7.0} MiB/s {:6.2} processor seconds/GiB", mebibytes as f64 / time, used / gibibytes);
}

fn main() {
    let mebibytes: usize = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(64);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::new(Arc::new(Store(vec![7; MIB].into())), ServerOptions::default());
    runtime.spawn(async move { server.serve(listener, std::future::pending()).await });
    let client = Client::new(runtime.handle().clone(), address, ClientOptions::default());
    let data = vec![7; MIB];

    let transfer = |method: u16, parts: usize, flights: usize| {
        let each = mebibytes / flights;
        std::thread::scope(|scope| {
            for _ in 0..flights {
                scope.spawn(|| {
                    let parts: Vec<_> = (0..parts).map(|_| IoSlice::new(&data)).collect();
                    for _ in 0..each {
                        let answer = client.call_blocking(method, b"header", &parts, DEADLINE).unwrap();
                        assert_eq!(answer.payload.len(), if method == READ { MIB } else { 0 });
                    }
                });
            }
        });
    };
    transfer(WRITE, 1, 4);
    report("write 1 MiB, 4 in flight", mebibytes, || transfer(WRITE, 1, 4));
    report("write 1 MiB, 1 in flight", mebibytes, || transfer(WRITE, 1, 1));
    report("read 1 MiB, 4 in flight", mebibytes, || transfer(READ, 0, 4));
    report("read 1 MiB, 1 in flight", mebibytes, || transfer(READ, 0, 1));
    let tasks = || {
        runtime.block_on(async {
            let mut running = tokio::task::JoinSet::new();
            for _ in 0..4 {
                let (client, data) = (client.clone(), data.clone());
                running.spawn(async move {
                    for _ in 0..mebibytes / 4 {
                        client.call(WRITE, b"header", &[IoSlice::new(&data)], DEADLINE).await.unwrap();
                    }
                });
            }
            running.join_all().await;
        });
    };
    report("write 1 MiB, 4 tasks", mebibytes, tasks);

    let rounds = mebibytes * 20;
    let message = [1; 100];
    let (begun, used) = (Instant::now(), processor());
    for _ in 0..rounds {
        client.call_blocking(0, &message, &[], DEADLINE).unwrap();
    }
    let (time, used) =
        (begun.elapsed().as_secs_f64() * 1e6 / rounds as f64, (processor() - used) * 1e6 / rounds as f64);
    println!("100 bytes, call_blocking     {time:7.1} µs a round trip, {used:.1} µs of processor");
    let (begun, used) = (Instant::now(), processor());
    runtime.block_on(async {
        let mut running = tokio::task::JoinSet::new();
        for _ in 0..64 {
            let client = client.clone();
            running.spawn(async move {
                for _ in 0..rounds / 16 {
                    client.call(0, &message, &[], DEADLINE).await.unwrap();
                }
            });
        }
        running.join_all().await;
    });
    let calls = rounds as f64 * 4.0;
    let (rate, used) = (calls / begun.elapsed().as_secs_f64(), (processor() - used) * 1e6 / calls);
    println!("100 bytes, 64 tasks          {rate:7.0} calls/s, {used:.1} µs of processor a call");
}
