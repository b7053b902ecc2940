//! The page about a volume: what it says, and who may do what on it.

use crate::lab::{Cluster, Process, WAIT_TIMEOUT, free_port};
use crate::scratch::{Scratch, run, weft};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Sends a request and returns the whole answer.
fn asked(address: &str, request: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let length = body.len();
    write!(stream, "{request}Connection: close\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

fn get(address: &str, path: &str) -> String {
    asked(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n"), "")
}

fn post(address: &str, path: &str, more: &str, body: &str) -> String {
    asked(address, &format!("POST {path} HTTP/1.1\r\nHost: {address}\r\nX-Weft: console\r\n{more}"), body)
}

fn state(address: &str) -> Value {
    let answer = get(address, "/state");
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

/// Waits for a state of which something is true.
#[track_caller]
fn wait(address: &str, what: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let state = state(address);
        if what(&state) {
            return state;
        }
        assert!(begun.elapsed() < WAIT_TIMEOUT, "{state:#}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn has_event(state: &Value, what: &str) -> bool {
    state["events"].as_array().into_iter().flatten().any(|event| event[1].as_str().unwrap().contains(what))
}

/// A console of a volume, and its address.
fn console(scratch: &Scratch, volume: &str, more: &[&str]) -> (Process, String) {
    let listen: &[&str] = if more.contains(&"--listen") { &[] } else { &["--listen", "127.0.0.1:0"] };
    let words = ["--json", "console", volume, "--every", "1"];
    let arguments: Vec<OsString> = words.iter().chain(listen).chain(more).map(OsString::from).collect();
    let process = Process::new("console".into(), arguments, &scratch.path);
    process.start();
    let ready: Value = serde_json::from_slice(&fs::read(scratch.path.join("console.out")).unwrap()).unwrap();
    (process, ready["listen"].as_str().unwrap().to_owned())
}

#[test]
fn a_cluster_is_shown_and_operators_act_with_the_key() {
    let cluster = Cluster::new("rs:2+1", 4);
    let key = cluster.scratch.path.join("key");
    let (_console, at) = console(&cluster.scratch, &cluster.url(), &["--key-file", key.to_str().unwrap()]);
    let shown = wait(&at, |state| state["words"]["level"] == "good");
    assert_eq!(shown["status"]["code"], "rs:2+1");
    assert!(get(&at, "/").contains("<main") && get(&at, "/uplot.txt").contains("MIT License"));
    assert!(get(&at, "/").contains("content-security-policy: default-src 'self'"));
    assert!(get(&at, "/etc/passwd").starts_with("HTTP/1.1 404 "));
    let elsewhere = asked(&at, "GET /state HTTP/1.1\r\nHost: elsewhere.example\r\n", "");
    assert!(elsewhere.starts_with("HTTP/1.1 421 ") && !elsewhere.contains("rs:2+1"), "{elsewhere}");
    // Live: the first line comes at once.
    let mut stream = TcpStream::connect(&at).unwrap();
    write!(stream, "GET /events HTTP/1.1\r\nHost: {at}\r\n\r\n").unwrap();
    let live = BufReader::new(stream).lines().map(Result::unwrap).find(|line| line.starts_with("data: ")).unwrap();
    assert!(live.contains("\"code\":\"rs:2+1\""), "{live}");
    // Without a login nothing is done.
    let pause = json!({ "do": "pause" }).to_string();
    assert!(post(&at, "/act", "", &pause).starts_with("HTTP/1.1 403 "));
    let forged = asked(&at, &format!("POST /login HTTP/1.1\r\nHost: {at}\r\n"), "x");
    assert!(forged.contains("only the console's own page"), "{forged}");
    let welcome = post(&at, "/login", "", &fs::read_to_string(&key).unwrap());
    let cookie = welcome.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect("a login");
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    let cookie = format!("Cookie: {}\r\n", cookie.split(';').next().unwrap());
    assert!(!cookie.contains("Secure"), "{cookie}");
    // Wrong keys keep nobody out who has the right one.
    let wrong = post(&at, "/login", "", "something else");
    assert!(wrong.starts_with("HTTP/1.1 403 "), "{wrong}");
    let proxied = post(&at, "/login", "X-Forwarded-Proto: https\r\n", &fs::read_to_string(&key).unwrap());
    assert!(proxied.starts_with("HTTP/1.1 200 ") && proxied.contains("; Secure"), "{proxied}");
    assert!(post(&at, "/act", &cookie, &json!({ "do": "rm" }).to_string()).starts_with("HTTP/1.1 400 "));
    assert!(post(&at, "/act", &cookie, &pause).starts_with("HTTP/1.1 202 "));
    wait(&at, |state| has_event(state, "pause rebalancing: done"));
    let told = run(weft().args(["--json", "rebalance", &cluster.url(), "status"])).json();
    assert_eq!(told["state"], "paused");
    // A store is lost.
    cluster.stores[0].kill();
    let lost = wait(&at, |state| has_event(state, "is down"));
    assert!(lost["words"]["sentence"].as_str().unwrap().contains("keeps everything"), "{}", lost["words"]);
    assert!(post(&at, "/logout", &cookie, "").starts_with("HTTP/1.1 200 "));
    assert!(post(&at, "/act", &cookie, &pause).starts_with("HTTP/1.1 403 "));
}

#[test]
fn a_metadata_server_has_a_console_for_reading() {
    let port = free_port().to_string();
    let cluster = Cluster::with("rs:2+1", 3, &["--console", &port, "--metrics", "0"]);
    let at = format!("127.0.0.1:{port}");
    let shown = wait(&at, |state| state["words"]["level"] == "good" && state["clients"] == 0.0);
    assert_eq!(shown["login"], false);
    assert!(post(&at, "/login", "", "").contains("this console is for reading"));
    assert!(cluster.meta.log().contains(&format!("http://{at}/")), "{}", cluster.meta.log());
}

#[test]
fn a_page_for_others_is_for_names_that_were_given() {
    let scratch = Scratch::new(3);
    let volume = scratch.path.join("vol");
    run(weft().args(["volume", "create", "--code", "rs:2+1"]).arg(&volume).args(&scratch.disks)).good();
    let more = ["--host", "console.example", "--listen", "0.0.0.0:0", "--plain-http"];
    let (_console, at) = console(&scratch, volume.to_str().unwrap(), &more);
    let at = at.replace("0.0.0.0", "127.0.0.1");
    let of = |host: &str| asked(&at, &format!("GET /state HTTP/1.1\r\nHost: {host}\r\n"), "");
    for host in ["console.example", "CONSOLE.example:443", "192.168.1.5:7680", "localhost"] {
        assert!(of(host).starts_with("HTTP/1.1 200 "), "{host}");
    }
    assert!(of("elsewhere.example").starts_with("HTTP/1.1 421 "));
    // Those that watch leave places for others.
    let watch = || {
        let mut stream = TcpStream::connect(&at).unwrap();
        write!(stream, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut line = String::new();
        BufReader::new(stream.try_clone().unwrap()).read_line(&mut line).unwrap();
        (stream, line)
    };
    let watching: Vec<_> = (0..60).map(|_| watch()).take_while(|(_, line)| line.contains(" 200 ")).collect();
    assert!(watching.len() < 60, "all places are taken by those that watch");
    assert!(of("localhost").starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_volume_that_nobody_has_open_is_shown_too() {
    let scratch = Scratch::new(3);
    let volume = scratch.path.join("vol");
    run(weft().args(["volume", "create", "--code", "rs:2+1"]).arg(&volume).args(&scratch.disks)).good();
    let (_console, at) = console(&scratch, volume.to_str().unwrap(), &[]);
    wait(&at, |state| state["words"]["level"] == "good");
    fs::rename(&volume, scratch.path.join("away")).unwrap();
    let gone = wait(&at, |state| state["problem"].as_str().is_some_and(|why| why.contains("vol")));
    let sentence = gone["words"]["sentence"].as_str().unwrap();
    assert!(sentence.starts_with("Nothing is known of "), "{sentence}");
    assert_eq!((&gone["words"]["level"], &gone["known"]), (&json!("bad"), &json!(false)));
    fs::rename(scratch.path.join("away"), &volume).unwrap();
    wait(&at, |state| state["words"]["level"] == "good" && state["known"] == true);
    let why = run(weft().args(["console", "v", "--listen", "0.0.0.0:0"])).failed(2);
    assert!(why.contains("--plain-http"), "{why}");
}
