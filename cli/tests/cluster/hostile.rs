//! Garbage on ports, and commands that are given wrongly.

use crate::lab::{Cluster, free_port, possible};
use crate::scratch::{Scratch, noise, run, weft};
use crate::starter;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use wire::frame::{FrameKind, FrameLimits, Header};
use wire::hello::{HELLO_BYTES, Hello};
use wire::{Role, VERSIONS};

/// Nothing is waited for: seconds at most, on a machine that is ten times too busy.
const SOON: Duration = Duration::from_secs(120);

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
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
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

/// Connections that announce a request of 60 MiB each and send ten bytes of it now and then. Those
/// that the server hangs up on come back. Runs until `stop`; `whole` counts rounds.
fn trickle(ports: &[u16], stop: &AtomicBool, whole: &AtomicUsize) {
    const CONNECTIONS: usize = 84;
    let hello = Hello {
        versions: (*VERSIONS.start(), *VERSIONS.end()),
        features: 0,
        role: Role::CLIENT,
        refused: false,
        limits: FrameLimits::default(),
        client: 1,
        text: Vec::new(),
    };
    let mut request = Header::new(FrameKind::Request, 1);
    (request.payload_bytes, request.deadline_ms) = (60 << 20, 60_000);
    let begin = |port: u16| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        stream.write_all(&hello.encode()).ok()?;
        stream.read_exact(&mut [0; HELLO_BYTES]).ok()?;
        stream.write_all(&[&request.encode(), &[0; 5000][..]].concat()).ok()?;
        stream.set_nonblocking(true).ok()?;
        Some(stream)
    };
    let mut all: Vec<(u16, Option<TcpStream>)> =
        ports.iter().flat_map(|&port| (0..CONNECTIONS).map(move |_| (port, None))).collect();
    while !stop.load(Ordering::SeqCst) {
        for (port, stream) in &mut all {
            let sent = stream.as_mut().map(|stream| stream.write_all(&[0; 10]));
            if sent.is_none_or(|sent| sent.is_err()) {
                *stream = begin(*port);
            }
        }
        whole.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Announced bytes are not memory, and clients that send nothing of them keep nobody from syncing.
#[test]
fn who_announces_much_and_sends_little_fails_nobodys_fsync() {
    if !possible("who_announces_much_and_sends_little_fails_nobodys_fsync") {
        return;
    }
    let cluster = Cluster::new("rs:2+1", 3);
    let mount = cluster.mount("a");
    let ports: Vec<u16> = cluster.ports.iter().copied().chain([cluster.port]).collect();
    let servers: Vec<u32> = cluster.stores.iter().chain([&cluster.meta]).map(|server| server.id().unwrap()).collect();
    let before: Vec<u64> = servers.iter().map(|&server| memory(server)).collect();
    let (stop, whole) = (AtomicBool::new(false), AtomicUsize::new(0));
    let write = |name: &str| {
        let mut file = fs::File::create(mount.at(name))?;
        file.write_all(&noise(1_000_000))?;
        file.sync_all()
    };
    let (done, more) = std::thread::scope(|scope| {
        scope.spawn(|| trickle(&ports, &stop, &whole));
        let begun = Instant::now();
        while whole.load(Ordering::SeqCst) < 2 && begun.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let done: Vec<_> = (0..20).map(|number| write(&format!("f{number}"))).collect();
        let more = servers.iter().zip(&before).map(|(&server, &before)| memory(server).saturating_sub(before)).max();
        stop.store(true, Ordering::SeqCst);
        (done, more.unwrap())
    });
    assert!(whole.load(Ordering::SeqCst) >= 2, "nobody announces anything");
    assert!(done.iter().all(|done| done.is_ok()), "{done:?}");
    // All that is announced to a server is 5 GiB.
    assert!(more < 256 << 20, "{more} bytes more");
    for number in 0..20 {
        assert!(fs::read(mount.at(format!("f{number}"))).unwrap() == noise(1_000_000));
    }
    mount.unmount();
    cluster.is_healthy();
}

#[test]
fn what_is_given_wrongly_is_refused_in_one_line() {
    let cluster = Cluster::new("rs:4+2", 6);
    let scratch = &cluster.scratch.path;
    let soon = |command: &mut std::process::Command, status: i32| {
        let begun = Instant::now();
        let said = run(command).failed(status);
        assert!(begun.elapsed() < SOON, "{:?}: {said}", begun.elapsed());
        said
    };
    let listen = |port: u16| format!("127.0.0.1:{port}");
    // Servers.
    let volume = scratch.join("vol");
    let disk = scratch.join("disk new");
    fs::create_dir(&disk).unwrap();
    let said = soon(weft().args(["serve", "store", "--listen", &listen(cluster.ports[0])]).arg(&disk), 1);
    assert!(said.contains("cannot listen on") && said.contains(&cluster.ports[0].to_string()), "{said}");
    let said = soon(weft().args(["serve", "meta", "--listen", &listen(cluster.port)]).arg(&volume), 1);
    assert!(said.contains("cannot listen on"), "{said}");
    let said = soon(weft().args(["serve", "meta", "--listen", &listen(free_port())]).arg(&volume), 1);
    assert!(
        said.contains("in use") || said.contains("served on") || said.contains("open in another process"),
        "{said}"
    );
    let said = soon(weft().args(["serve", "meta", "--listen", &listen(free_port())]).arg(&disk), 1);
    assert!(said.contains("no volume") || said.contains("not a volume"), "{said}");
    let said = soon(weft().args(["serve", "store", "--listen", &listen(free_port())]).arg(scratch.join("disk0")), 1);
    assert!(said.contains("in use") || said.contains("served on") || said.contains("another process"), "{said}");
    let said = soon(weft().args(["serve", "store", "--listen", &listen(free_port())]).arg(scratch.join("absent")), 1);
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
    let said = soon(weft().arg("create").arg(scratch.join("other")).args(["--code", "rs:4+2"]).args(&stores), 1);
    assert!(said.contains("store://"), "{said}");
    assert!(!scratch.join("other/volume.json").exists());
    stores[5] = format!("store://127.0.0.1:{}/absent", cluster.ports[5]);
    let said = soon(weft().arg("create").arg(scratch.join("other")).args(["--code", "rs:4+2"]).args(&stores), 1);
    assert!(said.contains("store://"), "{said}");
    // Clients.
    let down = format!("weft://127.0.0.1:{nobody}/vol");
    let wrong = format!("weft://127.0.0.1:{}/films", cluster.port);
    let store = format!("weft://127.0.0.1:{}/vol", cluster.ports[0]);
    for (url, says) in [(&down, nobody.to_string()), (&wrong, "films".into()), (&store, cluster.ports[0].to_string())] {
        // Of two names, what looks after a volume needs only one of a server.
        for command in if url == &wrong { vec!["ls"] } else { vec!["ls", "status", "verify"] } {
            let at = if command == "ls" { format!("{url}:/") } else { url.clone() };
            let said = soon(weft().arg(command).arg(at), 1);
            assert!(said.contains(&says), "{command} {url}: {said}");
        }
    }
    if possible("mounts of servers that are not there") {
        let point = scratch.join("point");
        fs::create_dir(&point).unwrap();
        for url in [&down, &wrong, &store] {
            let said = soon(weft().env("TMPDIR", scratch).arg("mount").arg(url).arg(&point), 1);
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
