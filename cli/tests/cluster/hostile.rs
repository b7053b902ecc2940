//! Garbage on ports, and commands that are given wrongly.

use crate::lab::{Cluster, free_port, possible};
use crate::scratch::{Scratch, noise, run, weft};
use crate::starter;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Resident memory of a process in bytes.
fn memory(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/statm")).unwrap();
    status.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn garbage_and_idle_connections_harm_nobody() {
    let cluster = Cluster::new("rs:4+2", 6);
    let file = cluster.scratch.file("f", 3_000_000);
    run(weft().arg("cp").arg(&file).arg(cluster.at("before"))).good();
    let servers = [(cluster.port, cluster.meta.id().unwrap()), (cluster.ports[0], cluster.stores[0].id().unwrap())];
    // What a client says first, to be told wrongly.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("weft://{}/vol:/", listener.local_addr().unwrap());
    let mut client = weft();
    client.arg("ls").arg(url);
    let said = cluster.scratch.path.join("said");
    let mut client = starter::start(client, &said, &said).unwrap();
    let mut hello = vec![0; 4096];
    let read = listener.accept().unwrap().0.read(&mut hello).unwrap();
    hello.truncate(read);
    let _ = (client.kill(), client.wait());
    let mut random = fastrand::Rng::with_seed(11);
    for (port, process) in servers {
        let before = memory(process);
        let say = |bytes: &[u8]| {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            stream.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
            // Hanging up on it is right.
            let _ = stream.write_all(bytes);
            stream
        };
        let mut kept = Vec::new();
        for round in 0..60 {
            let mut bytes = noise(random.usize(1..100_000));
            if round % 3 != 0 {
                // A good beginning, and then nonsense, such as a length of 4 GiB in each place
                // where one could be.
                let mut begun = hello.clone();
                let at = random.usize(0..begun.len());
                let end = (at + 4).min(begun.len());
                begun[at..end].fill(0xff);
                if round % 3 == 1 {
                    begun = hello.clone();
                    bytes.iter_mut().take(64).for_each(|byte| *byte = 0xff);
                }
                bytes.splice(..0, begun);
            }
            kept.push(say(&bytes));
        }
        kept.extend((0..500).map(|number| if number % 2 == 0 { say(&[]) } else { say(&hello[..hello.len() / 2]) }));
        let begun = Instant::now();
        run(weft().arg("ls").arg(cluster.at(""))).good();
        assert!(run(weft().arg("cat").arg(cluster.at("before"))).good() == noise(3_000_000));
        run(weft().arg("cp").arg(&file).arg(cluster.at(&format!("with{port}")))).good();
        eprintln!(
            "port {port}: {:.2?} beside 560 connections, {} KiB more",
            begun.elapsed(),
            memory(process).saturating_sub(before) >> 10
        );
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        assert!(memory(process) < before + (64 << 20), "{} bytes", memory(process) - before);
        drop(kept);
    }
    cluster.is_healthy();
    // The metadata server first: what it has still to write goes to the stores.
    for process in [&cluster.meta].into_iter().chain(&cluster.stores) {
        let lines = process.log().lines().count();
        assert!(lines < 20, "{lines} lines: {}", process.log());
        assert!(process.end());
    }
}

/// Ten thousand connections that say nothing, to a store and to the metadata server: what they may
/// hold is bounded, and others are served beside them.
#[test]
fn ten_thousand_idle_connections_harm_nobody() {
    const CONNECTIONS: usize = 10_000;
    if volume::allow_many_open_files() < CONNECTIONS as u64 + 1000 {
        eprintln!("ten_thousand_idle_connections_harm_nobody is skipped: a process may not have so many files open");
        return;
    }
    let cluster = Cluster::new("rs:2+1", 3);
    let file = cluster.scratch.file("f", 1_000_000);
    run(weft().arg("cp").arg(&file).arg(cluster.at("f"))).good();
    let servers = [(cluster.port, cluster.meta.id().unwrap()), (cluster.ports[0], cluster.stores[0].id().unwrap())];
    for (port, process) in servers {
        let before = memory(process);
        let connect = || TcpStream::connect_timeout(&([127, 0, 0, 1], port).into(), Duration::from_secs(20)).ok();
        let kept: Vec<TcpStream> = (0..CONNECTIONS).filter_map(|_| connect()).collect();
        assert!(kept.len() > CONNECTIONS * 9 / 10, "{}", kept.len());
        let begun = Instant::now();
        assert!(run(weft().arg("cat").arg(cluster.at("f"))).good() == noise(1_000_000));
        run(weft().arg("cp").arg(&file).arg(cluster.at(&format!("with{port}")))).good();
        let more = memory(process).saturating_sub(before);
        eprintln!("port {port}: {:.2?} beside {} connections, {} KiB more", begun.elapsed(), kept.len(), more >> 10);
        assert!(more < 128 << 20, "{more} bytes");
        drop(kept);
    }
    cluster.is_healthy();
    for process in cluster.stores.iter().chain([&cluster.meta]) {
        assert!(process.log().lines().count() < 20, "{}", process.log());
    }
}

#[test]
fn what_is_given_wrongly_is_refused_in_one_line() {
    let cluster = Cluster::new("rs:4+2", 6);
    let scratch = &cluster.scratch.path;
    let within = |seconds: u64, command: &mut std::process::Command, status: i32| {
        let begun = Instant::now();
        let said = run(command).failed(status);
        assert!(begun.elapsed() < Duration::from_secs(seconds), "{:?}: {said}", begun.elapsed());
        said
    };
    let listen = |port: u16| format!("127.0.0.1:{port}");
    // Servers.
    let volume = scratch.join("vol");
    let disk = scratch.join("disk new");
    fs::create_dir(&disk).unwrap();
    let said = within(5, weft().args(["serve", "store", "--listen", &listen(cluster.ports[0])]).arg(&disk), 1);
    assert!(said.contains("cannot listen on") && said.contains(&cluster.ports[0].to_string()), "{said}");
    let said = within(5, weft().args(["serve", "meta", "--listen", &listen(cluster.port)]).arg(&volume), 1);
    assert!(said.contains("cannot listen on"), "{said}");
    let said = within(10, weft().args(["serve", "meta", "--listen", &listen(free_port())]).arg(&volume), 1);
    assert!(
        said.contains("in use") || said.contains("served on") || said.contains("open in another process"),
        "{said}"
    );
    let said = within(5, weft().args(["serve", "meta", "--listen", &listen(free_port())]).arg(&disk), 1);
    assert!(said.contains("no volume") || said.contains("not a volume"), "{said}");
    let said =
        within(5, weft().args(["serve", "store", "--listen", &listen(free_port())]).arg(scratch.join("disk0")), 1);
    assert!(said.contains("in use") || said.contains("served on") || said.contains("another process"), "{said}");
    let said =
        within(5, weft().args(["serve", "store", "--listen", &listen(free_port())]).arg(scratch.join("absent")), 1);
    assert!(said.contains("absent"), "{said}");
    for command in [["store", "0.0.0.0:0"], ["meta", "[::]:0"]] {
        let path = if command[0] == "store" { &disk } else { &volume };
        let ended = run(weft().args(["serve", command[0], "--listen", command[1]]).arg(path));
        assert!(matches!(ended.status, 1 | 2) && ended.errors.contains("can be reached by others"), "{}", ended.errors);
    }
    // Volumes.
    let nobody = free_port();
    let mut stores: Vec<String> = (0..5).map(|n| format!("store://127.0.0.1:{}/disk{n}", cluster.ports[n])).collect();
    stores.push(format!("store://127.0.0.1:{nobody}/disk5"));
    let said = within(20, weft().arg("create").arg(scratch.join("other")).args(["--code", "rs:4+2"]).args(&stores), 1);
    assert!(said.contains("store://"), "{said}");
    assert!(!scratch.join("other/volume.json").exists());
    stores[5] = format!("store://127.0.0.1:{}/absent", cluster.ports[5]);
    let said = within(20, weft().arg("create").arg(scratch.join("other")).args(["--code", "rs:4+2"]).args(&stores), 1);
    assert!(said.contains("store://"), "{said}");
    // Clients.
    let down = format!("weft://127.0.0.1:{nobody}/vol");
    let wrong = format!("weft://127.0.0.1:{}/films", cluster.port);
    let store = format!("weft://127.0.0.1:{}/vol", cluster.ports[0]);
    for (url, says) in [(&down, nobody.to_string()), (&wrong, "films".into()), (&store, cluster.ports[0].to_string())] {
        // Of two names, what looks after a volume needs only one of a server.
        for command in if url == &wrong { vec!["ls"] } else { vec!["ls", "status", "verify"] } {
            let at = if command == "ls" { format!("{url}:/") } else { url.clone() };
            let said = within(25, weft().arg(command).arg(at), 1);
            assert!(said.contains(&says), "{command} {url}: {said}");
        }
    }
    if possible("mounts of servers that are not there") {
        let point = scratch.join("point");
        fs::create_dir(&point).unwrap();
        for url in [&down, &wrong, &store] {
            let said = within(25, weft().env("TMPDIR", scratch).arg("mount").arg(url).arg(&point), 1);
            assert!(said.contains("127.0.0.1:"), "{said}");
        }
    }
    for bad in ["weft://h:", "weft://127.0.0.1:x/vol"] {
        let ended = run(weft().arg("status").arg(bad));
        assert!(matches!(ended.status, 1 | 2) && ended.errors.contains("is not an address"), "{}", ended.errors);
    }
    cluster.is_healthy();
}

#[test]
fn a_cluster_in_one_process_starts_and_goes_on() {
    let scratch = Scratch::new(0);
    let place = scratch.path.join("try");
    let port = loop {
        let first = free_port();
        if (first..=first + 6).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok()) {
            break first;
        }
    };
    let file = scratch.file("f", 5_000_000);
    let at = format!("weft://127.0.0.1:{port}/try:/f");
    for round in 0..2 {
        let mut command = weft();
        command.arg("cluster").arg(&place).args(["--stores", "6", "--code", "rs:4+2", "--port", &port.to_string()]);
        let cluster = crate::lab::Process::of(&format!("cluster{round}"), &mut command, &scratch.path);
        if round == 0 {
            run(weft().arg("cp").arg(&file).arg(&at)).good();
        }
        assert!(run(weft().arg("cat").arg(&at)).good() == noise(5_000_000));
        run(weft().arg("verify").arg(format!("weft://127.0.0.1:{port}/try"))).good();
        assert!(cluster.end(), "{}", cluster.log());
    }
}
