//! What an operator's monitoring sees of servers and a mount.

use crate::lab::{Cluster, Process, WAIT_TIMEOUT, free_port, possible};
use crate::scratch::{Scratch, run, weft};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// The status and the text of an answer.
pub fn get(port: u16, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, text) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), text.into())
}

/// The number of a sample.
#[track_caller]
fn sample(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in\n{text}")).parse().unwrap()
}

/// Waits until it can be used, or cannot be.
#[track_caller]
fn wait_until(port: u16, ready: bool) {
    let begun = Instant::now();
    loop {
        let (status, text) = get(port, "/ready");
        if (status == 200) == ready {
            return;
        }
        assert!(begun.elapsed() < WAIT_TIMEOUT, "still {status}: {text}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// The status of a volume; `temporary` is where a mount of it has its socket.
fn status(volume: &OsStr, temporary: &Path) -> Value {
    run(weft().args(["status", "--json"]).arg(volume).env("TMPDIR", temporary)).json()
}

#[test]
fn a_store_tells_before_it_has_a_volume() {
    let scratch = Scratch::new(0);
    fs::create_dir(scratch.path.join("disk")).unwrap();
    let port = free_port();
    let mut command = weft();
    command.args(["--json", "serve", "store", "--listen", "127.0.0.1:0", "--metrics", &port.to_string()]);
    let _store = Process::of("store", command.arg(scratch.path.join("disk")), &scratch.path);
    assert_eq!(get(port, "/health").0, 200);
    wait_until(port, true);
    let (status, metrics) = get(port, "/metrics");
    assert_eq!((status, sample(&metrics, "weft_store_requests_total{operation=\"write\"}")), (200, 0.0));
    let disk = scratch.path.join("disk");
    let up = format!("weft_store_target_up{{target=\"disk\",path=\"{}\",domain=\"\"}}", disk.display());
    assert_eq!(sample(&metrics, &up), 0.0);
    assert!(sample(&metrics, "process_resident_memory_bytes") > 0.0);
    assert_eq!(get(port, "/nothing").0, 404);
}

#[test]
fn a_mount_and_its_servers_tell_what_they_do() {
    if !possible("a_mount_and_its_servers_tell_what_they_do") {
        return;
    }
    let (meta, mounted) = (free_port().to_string(), free_port().to_string());
    let cluster = Cluster::with("rs:2+1", 3, &["--metrics", &meta, "--repair-limit", "64M"]);
    let (meta, port) = (meta.parse().unwrap(), mounted.parse().unwrap());
    let mount = cluster.mount_with("mnt", &["--metrics", &mounted]);
    wait_until(port, true);
    wait_until(meta, true);
    let data = vec![7; 12 << 20];
    let mut file = fs::File::create(mount.point.join("film")).unwrap();
    file.write_all(&data).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let metrics = get(port, "/metrics").1;
    assert!(sample(&metrics, "weft_file_bytes_total{operation=\"write\"}") >= data.len() as f64);
    assert!(sample(&metrics, "weft_file_operation_seconds_count{operation=\"sync\"}") >= 1.0);
    let steps = [
        "client_tasks",
        "metadata_tasks",
        "master_process",
        "parity_calculation",
        "data_distribution",
        "slave_process",
    ];
    for step in steps {
        let seconds = sample(&metrics, &format!("weft_write_step_seconds_total{{step=\"{step}\"}}"));
        assert!(seconds > 0.0, "{step}\n{metrics}");
    }
    assert_eq!(sample(&metrics, "weft_write_step_seconds_total{step=\"transfer\"}"), 0.0);
    // The mount point is as good a name as the volume's, and the status has what the mount knows.
    let shown = status(mount.point.as_os_str(), &cluster.scratch.path);
    assert_eq!((&shown["connected"], &shown["targets"][2]["problem"]), (&true.into(), &Value::Null), "{shown}");
    assert!(shown["write_cost"]["steps"][6]["seconds"].as_f64().unwrap() > 0.0, "{shown}");
    let begun = Instant::now();
    loop {
        let shown = status(cluster.url().as_ref(), &cluster.scratch.path);
        let stores = shown["stores"].as_array().unwrap();
        assert_eq!((stores.len(), &shown["repair_limit"]), (3, &(64 << 20).into()), "{shown}");
        // It takes two reports to say how busy a store is.
        let told = |store: &Value| store["processor_idle"].is_number() && store["targets"][0]["free"].is_number();
        if stores.iter().all(told) {
            break;
        }
        assert!(begun.elapsed() < WAIT_TIMEOUT, "{shown}");
        std::thread::sleep(Duration::from_millis(200));
    }
    let metrics = get(meta, "/metrics").1;
    assert!(sample(&metrics, "weft_meta_requests_total{operation=\"change_contents\"}") >= 1.0);
    assert_eq!(sample(&metrics, "weft_meta_clients"), 1.0);
    let up = metrics.lines().find(|line| line.starts_with("weft_target_up{target=\"0\",")).unwrap();
    let (_, address) = up.split_once("path=\"store://").unwrap();
    let (address, _) = address.split_once('/').unwrap();
    assert!(up.contains(&format!("address=\"{address}\",")) && up.ends_with(" 1"), "{up}");
    // How the volume is, is found in the background.
    let begun = Instant::now();
    loop {
        let text = get(meta, "/metrics").1;
        if text.contains("\nweft_volume_healthy ")
            && sample(&text, "weft_volume_chunk_sets{losses_survived=\"1\"}") >= 1.0
        {
            assert_eq!(sample(&text, "weft_volume_chunk_sets_lost"), 0.0);
            assert!(sample(&text, "weft_volume_free_bytes") <= sample(&text, "weft_volume_size_bytes"));
            break;
        }
        assert!(begun.elapsed() < WAIT_TIMEOUT, "{text}");
        std::thread::sleep(Duration::from_millis(200));
    }
    // With two of three stores away nothing can be read.
    cluster.stores[..2].iter().for_each(Process::kill);
    wait_until(meta, false);
    cluster.stores[..2].iter().for_each(Process::start);
    wait_until(meta, true);
    mount.unmount();
}
