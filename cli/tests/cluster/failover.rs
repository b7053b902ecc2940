//! Several metadata servers of one volume as processes: one has it, and another one takes over when
//! that one is killed, stopped, or gives it away.

use crate::lab::{Cluster, Mount, Process, WAIT_TIMEOUT, free_port, possible};
use crate::meta::{are_whole, record};
use crate::scratch::{Ended, run, weft};
use rustix::io::Errno;
use rustix::process::Signal;
use serde_json::Value;
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A cluster with three metadata servers, `a`, `b` and `c`.
struct Servers {
    cluster: Cluster,
    others: Vec<Process>,
    ports: Vec<u16>,
}

impl Servers {
    fn new() -> Self {
        let cluster = Cluster::with("rs:2+1", 4, &["--name", "a"]);
        let mut servers = Self { ports: vec![cluster.port], cluster, others: Vec::new() };
        for name in ["b", "c"] {
            servers.join(name);
        }
        servers
    }

    /// One more server.
    fn join(&mut self, name: &str) {
        let path = &self.cluster.scratch.path;
        loop {
            let port = free_port();
            let listen = format!("127.0.0.1:{port}");
            let url = self.cluster.url();
            let arguments = ["--json", "serve", "meta", "--listen", &listen, "--name", name, "--join", &url];
            let mut arguments = arguments.map(OsString::from).to_vec();
            arguments.push(path.join(format!("vol-{name}")).into());
            let server = Process::new(format!("meta-{name}"), arguments, path);
            match server.try_start() {
                Ok(()) => {
                    self.ports.push(port);
                    self.others.push(server);
                    return;
                }
                Err(why) => assert!(why.contains("cannot listen"), "{why}"),
            }
        }
    }

    fn server(&self, name: &str) -> &Process {
        match name {
            "a" => &self.cluster.meta,
            "b" => &self.others[0],
            _ => &self.others[1],
        }
    }

    /// The address of the volume, with all servers.
    fn url(&self) -> String {
        let all: Vec<String> = self.ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("weft://{}/vol", all.join(","))
    }

    fn command(&self, words: &[&str], more: &[&str]) -> Ended {
        let mut command = weft();
        command.args(words).arg(self.url()).args(more);
        run(&mut command)
    }

    fn mount(&self, name: &str) -> Mount {
        self.cluster.mount_at(&self.url(), name)
    }

    /// The servers, as the one that has the volume knows them.
    fn status(&self) -> Option<Vec<Value>> {
        let ended = self.command(&["status", "--json"], &[]);
        let status: Value = serde_json::from_slice(&ended.output).ok()?;
        status["servers"].as_array().cloned().filter(|servers| !servers.is_empty())
    }

    /// Waits until there is something in the status.
    #[track_caller]
    fn waits_for<T>(&self, what: &str, found: impl Fn(&[Value]) -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            let status = self.status();
            if let Some(found) = status.as_deref().and_then(&found) {
                return found;
            }
            assert!(begun.elapsed() < WAIT_TIMEOUT, "{what} does not come: {status:?}");
            sleep(Duration::from_millis(50));
        }
    }

    /// The server that has the volume, once it is another than that one.
    #[track_caller]
    fn holder_after(&self, before: &str) -> String {
        self.waits_for("another holder", |servers| {
            let holder = servers.iter().find(|server| server["holder"] == true)?;
            holder["name"].as_str().filter(|name| *name != before).map(str::to_owned)
        })
    }

    /// Waits until all servers but the holder stand by.
    #[track_caller]
    fn all_stand_by(&self) {
        self.waits_for("a list of three that live", |servers| {
            (servers.len() == 3 && servers.iter().all(|server| server["up"] == true)).then_some(())
        });
    }
}

/// A machine with more disks than the code can lose dies with the server on it. Who votes has
/// changed since the others began to stand by.
#[test]
fn a_standby_takes_over_when_a_machine_with_many_disks_dies() {
    let servers = Servers::new();
    servers.all_stand_by();
    let holder = servers.holder_after("");
    for number in [0, 1] {
        servers.cluster.target("domain", &[&servers.cluster.store(number), "machine0"]);
    }
    let begun = Instant::now();
    let voters = || {
        let status: Value = serde_json::from_slice(&servers.command(&["status", "--json"], &[]).output).unwrap();
        status["metadata"]["voters"].clone()
    };
    while voters() != 3 {
        assert!(begun.elapsed() < WAIT_TIMEOUT, "the votes do not move: {}", voters());
        sleep(Duration::from_millis(200));
    }
    run(weft().arg("mkdir").arg(format!("{}:/before", servers.url()))).good();
    servers.cluster.stores[..2].iter().for_each(Process::kill);
    servers.server(&holder).kill();
    servers.holder_after(&holder);
    run(weft().arg("mkdir").arg(format!("{}:/after", servers.url()))).good();
    let listed = String::from_utf8(run(weft().arg("ls").arg(format!("{}:/", servers.url()))).good()).unwrap();
    assert!(listed.contains("before") && listed.contains("after"), "{listed}");
}

/// Waits until a counter has grown by `by`.
#[track_caller]
fn goes_on(counter: &AtomicU32, by: u32) {
    let (before, begun) = (counter.load(Ordering::SeqCst), Instant::now());
    while counter.load(Ordering::SeqCst) < before + by {
        assert!(begun.elapsed() < WAIT_TIMEOUT, "nothing goes on: {before} and no more");
        sleep(Duration::from_millis(5));
    }
}

/// Whether something was done. Unsynced data may be lost with a server, and the sync says so: then
/// the caller repeats it.
fn is_done(what: &str, done: io::Result<()>) -> bool {
    match done {
        Ok(()) => true,
        Err(why) if why.raw_os_error() == Some(Errno::IO.raw_os_error()) => false,
        Err(why) => panic!("{what}: {why}"),
    }
}

/// Makes files, each synced, and removes every other one; counts them.
fn make_and_remove(point: &Path, count: &AtomicU32, stop: &AtomicBool) {
    let make = |path: &Path, number: u32| {
        let mut file = fs::File::create(path)?;
        file.write_all(format!("{number}").as_bytes())?;
        file.sync_all()
    };
    let remove = |path: &Path| {
        match fs::remove_file(path) {
            Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why),
            _ => {}
        }
        fs::File::open(point)?.sync_all()
    };
    for number in 0.. {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let path = point.join(format!("new{number}"));
        while !is_done("make", make(&path, number)) {}
        while number % 2 == 1 && !is_done("remove", remove(&path)) {}
        count.store(number, Ordering::SeqCst);
    }
}

/// Appends numbered records, each synced; counts them, and returns how many.
fn append_records(path: &Path, who: u8, stop: &AtomicBool, count: &AtomicU32) -> u32 {
    let open = || OpenOptions::new().append(true).create(true).open(path);
    let mut file = open().unwrap();
    let mut length = 0;
    for number in 0.. {
        if stop.load(Ordering::SeqCst) {
            return number;
        }
        let record = record(who, number);
        while !is_done("append", file.write_all(&record).and_then(|()| file.sync_all())) {
            // It may be there or not.
            while !is_done("begin again", open().and_then(|again| again.set_len(length).map(|()| file = again))) {}
        }
        length += record.len() as u64;
        count.store(number + 1, Ordering::SeqCst);
    }
    unreachable!()
}

/// Every other file is there, and has what was written.
#[track_caller]
fn every_other_one_is_there(point: &Path, last: u32) {
    for number in 0..=last {
        let found = fs::read(point.join(format!("new{number}"))).ok();
        assert_eq!(found, (number % 2 == 0).then(|| format!("{number}").into_bytes()), "new{number} of {last}");
    }
}

/// Runs writers while `happens` does something to the servers, and checks that everything that was
/// acknowledged is there afterwards.
#[track_caller]
fn while_clients_write(servers: &Servers, happens: impl FnOnce(&AtomicU32, &AtomicU32)) {
    let (a, b) = (servers.mount("one"), servers.mount("two"));
    fs::create_dir(a.at("new")).unwrap();
    // The server may be killed before anything else is synced.
    fs::File::open(&a.point).unwrap().sync_all().unwrap();
    let (stop, made, appended) = (AtomicBool::new(false), AtomicU32::new(0), AtomicU32::new(0));
    let written = std::thread::scope(|scope| {
        let makes = scope.spawn(|| make_and_remove(&b.at("new"), &made, &stop));
        let appends = scope.spawn(|| append_records(&a.at("log"), 1, &stop, &appended));
        goes_on(&made, 5);
        goes_on(&appended, 5);
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| happens(&made, &appended)));
        stop.store(true, Ordering::SeqCst);
        makes.join().unwrap();
        let written = appends.join().unwrap();
        done.unwrap_or_else(|why| std::panic::resume_unwind(why));
        written
    });
    let fresh = servers.mount("three");
    for mount in [&a, &fresh] {
        are_whole(&fs::read(mount.at("log")).unwrap(), &[(1, written)]);
        every_other_one_is_there(&mount.at("new"), made.load(Ordering::SeqCst));
    }
    [a, b, fresh].into_iter().for_each(Mount::unmount);
}

#[test]
fn a_killed_holder_is_followed_by_another_and_comes_back_as_a_standby() {
    if !possible("a_killed_holder_is_followed_by_another_and_comes_back_as_a_standby") {
        return;
    }
    let servers = Servers::new();
    servers.all_stand_by();
    while_clients_write(&servers, |made, appended| {
        let (mut holder, mut kept) = ("a".to_owned(), 0);
        for _ in 0..2 {
            servers.server(&holder).kill();
            goes_on(made, 20);
            goes_on(appended, 20);
            let next = servers.holder_after(&holder);
            servers.server(&holder).start();
            servers.all_stand_by();
            // On a busy machine it may have gone on to the third.
            let after = servers.holder_after(&holder);
            kept += usize::from(after == next);
            holder = after;
        }
        assert!(kept > 0, "who comes back takes nothing away");
    });
    servers.cluster.heal_by(|words| servers.command(words, &[]));
}

/// As when its disk is full. It claimed the volume again and again, and the third server never
/// could.
#[test]
fn a_server_that_cannot_open_the_volume_leaves_it_to_another() {
    let servers = Servers::new();
    servers.all_stand_by();
    // The local WAL needs this name.
    fs::write(servers.cluster.scratch.path.join("vol-b/tail"), b"no directory").unwrap();
    servers.server("a").kill();
    assert_eq!(servers.holder_after("a"), "c");
}

#[test]
fn a_holder_that_slept_is_fenced_and_stands_by() {
    if !possible("a_holder_that_slept_is_fenced_and_stands_by") {
        return;
    }
    let servers = Servers::new();
    servers.all_stand_by();
    while_clients_write(&servers, |made, appended| {
        servers.server("a").stop();
        goes_on(made, 20);
        goes_on(appended, 20);
        servers.server("a").go_on();
        servers.all_stand_by();
        goes_on(made, 20);
        goes_on(appended, 20);
        servers.holder_after("a");
    });
    let log = servers.server("a").log();
    assert!(log.contains("has taken the volume over: this one stands by"), "{log}");
    // In the same process, which can take over again.
    let next = servers.holder_after("a");
    servers.server(&next).kill();
    let third = if next == "b" { "c" } else { "b" };
    servers.server(third).kill();
    assert_eq!(servers.holder_after(&next), "a");
}

#[test]
fn a_handover_is_an_error_to_nobody() {
    if !possible("a_handover_is_an_error_to_nobody") {
        return;
    }
    let servers = Servers::new();
    servers.all_stand_by();
    while_clients_write(&servers, |made, appended| {
        for name in ["b", "c", "a", "c"] {
            let said = servers.command(&["meta", "handover", "--json"], &[name]).good();
            let said: Value = serde_json::from_slice(&said).unwrap();
            assert_eq!(said["holder"], name);
            eprintln!("handover to {name}: {}", said["seconds"]);
            goes_on(made, 10);
            goes_on(appended, 10);
            servers.all_stand_by();
        }
    });
    // A server that is not there gets nothing, and nothing happens.
    servers.server("b").kill();
    servers.waits_for("silence", |servers| {
        servers.iter().find(|server| server["name"] == "b" && server["up"] == false).map(drop)
    });
    let said = servers.command(&["meta", "handover"], &["b"]).failed(1);
    assert!(said.contains("b does not answer"), "{said}");
    let said = servers.command(&["meta", "handover"], &["nobody"]).failed(1);
    assert!(said.contains("no metadata server of the volume has the name nobody"), "{said}");
    servers.command(&["meta", "forget"], &["b"]).good();
    servers.waits_for("a shorter list", |servers| (servers.len() == 2).then_some(()));
}

#[test]
fn a_server_that_is_ended_leaves_the_volume_to_another() {
    let servers = Servers::new();
    servers.all_stand_by();
    let file = servers.cluster.scratch.file("f", 300_000);
    let at = |name: &str| format!("{}:/{name}", servers.url());
    run(weft().arg("cp").arg(&file).arg(at("f"))).good();
    servers.server("a").signal(Signal::TERM);
    assert!(servers.server("a").ended(WAIT_TIMEOUT), "{}", servers.server("a").log());
    let next = servers.holder_after("a");
    assert!(run(weft().arg("cat").arg(at("f"))).good() == fs::read(&file).unwrap());
    // One that stands by tells of itself, and carries nothing out.
    let other = if next == "b" { "c" } else { "b" };
    let directory = servers.cluster.scratch.path.join(format!("vol-{other}"));
    // It learns from the targets who has the volume now. Until then its answer is nobody.
    let begun = Instant::now();
    loop {
        let status = run(weft().args(["status", "--json"]).arg(&directory));
        let said = status.json();
        assert_eq!((said["standby"].as_bool(), status.status), (Some(true), i32::from(said["holder"].is_null())));
        if said["holder"]["name"] == next.as_str() {
            break;
        }
        assert!(begun.elapsed() < WAIT_TIMEOUT, "{said}");
        sleep(Duration::from_millis(50));
    }
    let said = run(weft().arg("repair").arg(&directory)).failed(1);
    assert!(said.contains(&format!("stands by; {next} has the volume")), "{said}");
}

/// Files that were copied, and how far behind the standbys are.
#[test]
fn standbys_follow_the_one_that_has_the_volume() {
    let servers = Servers::new();
    servers.all_stand_by();
    let file = servers.cluster.scratch.file("f", 10_000);
    for round in 0..3 {
        for number in 0..5 {
            run(weft().arg("cp").arg(&file).arg(format!("{}:/{round}.{number}", servers.url()))).good();
        }
        servers.waits_for("standbys that are not behind", |servers| {
            let follows = |server: &Value| server["holder"] == true || server["transactions_behind"] == 0;
            (servers.len() == 3 && servers.iter().all(follows)).then_some(())
        });
        let holder = servers.holder_after("");
        let next = if holder == "b" { "c" } else { "b" };
        servers.command(&["meta", "handover"], &[next]).good();
    }
    for name in (0..3).flat_map(|round| (0..5).map(move |number| format!("{round}.{number}"))) {
        assert!(run(weft().arg("cat").arg(format!("{}:/{name}", servers.url()))).good() == fs::read(&file).unwrap());
    }
}
