//! Masters over a network: the storage servers run in this process and count their requests.

use cluster::{ClusterPlaces, Store};
use fs::Places as _;
use plan::coding::Coder;
use plan::topology::{Network, Places, Torus};
use plan::{Position, RecordOffset, SetId, Span, StripeSeq, TargetId};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use volume::format::{CHUNK_HEADER_BYTES, VolumeId};
use volume::{Appended, BufferPool, Control, SetLayout, SetWriter, Targets, read, rebuild};
use wire::{Client, ClientOptions, Reply, Request, Server, ServerOptions, Service};

const WRITE: u16 = 1;
const REPORT: u16 = 32;
const DISTRIBUTE: u16 = 64;
const REBUILD: u16 = 65;
const READ: u16 = 2;

/// A store that counts its requests.
struct Counted {
    store: Store,
    number: usize,
    /// Which stores were asked to code, one entry for each stripe.
    masters: Arc<Mutex<Vec<usize>>>,
    methods: Arc<Mutex<Vec<u16>>>,
    answers: Arc<Mutex<Answers>>,
}

/// How stores answer.
#[derive(Clone, Copy, PartialEq)]
enum Answers {
    AtOnce,
    /// Coding takes them this long.
    Late(Duration),
    /// Masters never answer.
    Never,
}

impl Service for Counted {
    async fn call(&self, request: Request) -> Reply {
        self.methods.lock().unwrap().push(request.method);
        if request.method == DISTRIBUTE {
            self.masters.lock().unwrap().push(self.number);
        }
        let answers = *self.answers.lock().unwrap();
        match (answers, request.method) {
            (Answers::Late(time), DISTRIBUTE) => tokio::time::sleep(time).await,
            (Answers::Never, DISTRIBUTE | REPORT) => std::future::pending().await,
            _ => {}
        }
        self.store.call(request).await
    }
}

/// Stores with a number of disks each, and a set on all disks.
struct Lab {
    path: PathBuf,
    servers: Vec<String>,
    methods: Arc<Mutex<Vec<u16>>>,
    masters: Arc<Mutex<Vec<usize>>>,
    answers: Arc<Mutex<Answers>>,
    targets: Arc<Targets>,
    pool: Arc<BufferPool>,
    writer: SetWriter,
}

impl Lab {
    fn new(code: &str, stores: usize, disks: usize) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("weft-masters-{}-{number}", std::process::id()));
        let (places, methods) = (ClusterPlaces::default(), Arc::<Mutex<Vec<u16>>>::default());
        let (answers, masters) = (Arc::new(Mutex::new(Answers::AtOnce)), Arc::<Mutex<Vec<usize>>>::default());
        let (targets, mut servers) = (Arc::new(Targets::new()), Vec::new());
        for store in 0..stores {
            let all: Vec<PathBuf> = (0..disks).map(|disk| path.join(format!("{store}/disk{disk}"))).collect();
            all.iter().for_each(|disk| std::fs::create_dir_all(disk).unwrap());
            let opened = Store::open(&all).unwrap();
            let service = Counted {
                store: opened,
                number: store,
                masters: masters.clone(),
                methods: methods.clone(),
                answers: answers.clone(),
            };
            let server = Server::new(Arc::new(service), ServerOptions::default());
            let listener = cluster::runtime().block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
            servers.push(listener.local_addr().unwrap().to_string());
            cluster::runtime().spawn(async move { server.serve(listener, std::future::pending()).await });
            for disk in 0..disks {
                let place = format!("store://{}/disk{disk}", servers[store]).into();
                targets.add(TargetId((store * disks + disk) as u16), places.format(&place as &PathBuf).unwrap());
            }
        }
        let code = ec::parse(code).unwrap();
        let all = (0..code.shape().blocks()).map(|number| Some(TargetId(number as u16))).collect();
        let pool = Arc::new(BufferPool::new(&*code, fs::full_stripe_bytes(code.shape().k), 4));
        let layout = SetLayout { volume: VolumeId([9; 16]), set: SetId(3), code, places: all };
        let writer = SetWriter::create(targets.clone(), pool.clone(), layout, 64 << 20, 1);
        methods.lock().unwrap().clear();
        Self { path, servers, methods, masters, answers, targets, pool, writer }
    }

    fn append(&self, by: Coder, length: usize, sequence: u64) -> Appended {
        let mut buffer = self.pool.take();
        buffer.extend_from_slice(&pattern(length, sequence));
        self.writer.append_by(by, buffer, StripeSeq(sequence), b"a manifest").map_err(|(error, _)| error).unwrap()
    }

    /// How many requests the stores got since the last call.
    fn asked(&self, method: u16) -> usize {
        self.methods.lock().unwrap().iter().filter(|&&asked| asked == method).count()
    }

    /// The content of a position's chunk after its header, read from its disk.
    fn chunk(&self, position: usize, disks: usize) -> Vec<u8> {
        let disk = self.path.join(format!("{}/disk{}", position / disks, position % disks));
        let mut found = Vec::new();
        let mut left = vec![disk];
        while let Some(place) = left.pop() {
            for entry in std::fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().path()) {
                match entry.is_dir() {
                    true => left.push(entry),
                    false => found.push(entry),
                }
            }
        }
        let chunks: Vec<Vec<u8>> = found.iter().map(|file| std::fs::read(file).unwrap()).collect();
        let chunk = chunks.into_iter().find(|bytes| bytes.starts_with(b"\x89WFTC")).expect("a chunk");
        chunk[CHUNK_HEADER_BYTES..].to_vec()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

fn pattern(length: usize, sequence: u64) -> Vec<u8> {
    (0..length).map(|at| (at as u64 * 31 + sequence * 7 + (at as u64 >> 8)) as u8).collect()
}

#[test]
fn a_small_write_is_one_request_of_the_client_and_the_bytes_are_the_same() {
    let (here, there) = (Lab::new("rs:4+2", 6, 1), Lab::new("rs:4+2", 6, 1));
    let small = here.append(Coder::Here, 4096, 0);
    assert_eq!((here.asked(WRITE), here.asked(DISTRIBUTE), small.by), (6, 0, Coder::Here));
    let small = there.append(Coder::Master, 4096, 0);
    // The Master has a disk of its own.
    assert_eq!((there.asked(DISTRIBUTE), there.asked(WRITE), small.by), (1, 5, Coder::Master));
    for (sequence, length) in [(1, 1), (2, 70_000), (3, (4 << 20) - 100), (4, 9000)] {
        let (a, b) = (here.append(Coder::Here, length, sequence), there.append(Coder::Master, length, sequence));
        assert_eq!((a.record, a.block, a.missing), (b.record, b.block, b.missing));
        assert_eq!(b.by, Coder::Master);
        let mut out = vec![0; length];
        let span = Span { set: SetId(3), record: b.record, block: b.block, start: 0 };
        read(&there.targets, there.writer.layout(), span, &mut out).unwrap();
        assert!(out == pattern(length, sequence));
    }
    assert_eq!((here.writer.sync().unwrap(), there.writer.sync().unwrap()), (vec![], vec![]));
    for position in 0..6 {
        assert!(here.chunk(position, 1) == there.chunk(position, 1), "position {position}");
    }
}

#[test]
fn a_store_with_several_disks_sends_itself_nothing() {
    let (here, there) = (Lab::new("rs:4+2", 2, 3), Lab::new("rs:4+2", 2, 3));
    for (sequence, length) in [(0, 100_000), (1, 300)] {
        here.append(Coder::Here, length, sequence);
        there.append(Coder::Master, length, sequence);
    }
    assert_eq!((there.asked(DISTRIBUTE), there.asked(WRITE)), (2, 6));
    for position in 0..6 {
        assert!(here.chunk(position, 3) == there.chunk(position, 3), "position {position}");
    }
}

/// The first stripe of a client in a torus, of which nobody knows yet how fast Masters are.
#[test]
fn the_nearest_store_codes_the_first_stripe() {
    let first = |sizes: &str, client: Option<&str>| {
        let lab = Lab::new("rs:4+2", 6, 1);
        let torus: Torus = sizes.parse().unwrap();
        let of = (0..6).map(TargetId).zip(torus.all()).collect();
        let client = client.map(|at| at.parse().unwrap());
        lab.targets.set_network(Some(Network { places: Arc::new(Places { torus, of }), client }));
        assert_eq!(lab.append(Coder::Master, 70_000, 0).by, Coder::Master);
        let masters = lab.masters.lock().unwrap().clone();
        assert_eq!(masters.len(), 1);
        masters[0]
    };
    // Wherever the client is, the store beside it.
    for at in 0..6 {
        assert_eq!(first("6", Some(&at.to_string())), at);
    }
    assert_eq!(first("2,3", Some("1,2")), 5);
    // Where it is not known, one in the middle of the set.
    let middle = first("100", None);
    assert!([2, 3].contains(&middle), "{middle}");
}

#[test]
fn more_than_a_master_takes_at_a_time_is_written_all_the_same() {
    let lab = Lab::new("rs:4+2", 6, 1);
    let done: Vec<(u64, Appended)> = std::thread::scope(|scope| {
        let append = |thread| (0..2).map(move |n| 2 * thread + n);
        let lab = &lab;
        let threads: Vec<_> = (0..24u64)
            .map(|thread| {
                scope.spawn(move || {
                    append(thread).map(|n| (n, lab.append(Coder::Master, 1 << 20, n))).collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!((done.len(), lab.writer.missing()), (48, vec![]));
    for (sequence, stripe) in done {
        let mut out = vec![0; 1 << 20];
        let span = Span { set: SetId(3), record: stripe.record, block: stripe.block, start: 0 };
        read(&lab.targets, lab.writer.layout(), span, &mut out).unwrap();
        assert!(out == pattern(1 << 20, sequence), "stripe {sequence}");
    }
}

#[test]
fn a_master_that_lives_is_waited_for_and_one_that_does_not_is_not() {
    // A busy machine may be silent for as long as a Master that is dead.
    let waits = |_| {
        let lab = Lab::new("rs:4+2", 6, 1);
        *lab.answers.lock().unwrap() = Answers::Late(Duration::from_millis(1800));
        let done = lab.append(Coder::Master, 70_000, 0);
        assert!(lab.asked(REPORT) > 0);
        (done.by, done.missing.len()) == (Coder::Master, 0)
    };
    assert!((0..5).any(waits), "it does not wait");
    let lab = Lab::new("rs:4+2", 6, 1);
    *lab.answers.lock().unwrap() = Answers::Never;
    let done = lab.append(Coder::Master, 70_000, 0);
    // The writer does not wait for its block, either.
    assert_eq!((done.by, done.missing.len(), lab.asked(WRITE)), (Coder::Here, 1, 5));
    // The shortest timeout of a Master is three seconds.
    let gives_up = |_| {
        let lab = Lab::new("rs:4+2", 6, 1);
        *lab.answers.lock().unwrap() = Answers::Never;
        let begun = Instant::now();
        lab.append(Coder::Master, 70_000, 0);
        begun.elapsed() < Duration::from_secs(3)
    };
    assert!((0..5).any(gives_up), "it waits for the whole timeout");
}

#[test]
fn what_is_no_stripe_is_refused_and_harms_nobody() {
    let lab = Lab::new("rs:4+2", 6, 1);
    let client = Client::new(cluster::runtime().handle().clone(), lab.servers[0].as_str(), ClientOptions::default());
    // As a client encodes it: volume, set, code, time, record, sequence, manifest, spare, checksum,
    // token, server, places.
    type Stripe<'a> = ([u8; 16], u64, &'a str, (i64, u32), u32, u64, u32, u16, u64, &'a [u8], &'a str, Vec<&'a str>);
    let good = gf::checksum::crc64(b"data");
    let stripe = |code, record, checksum, places| -> Stripe<'_> {
        ([1; 16], 1, code, (0, 0), record, 1, 0, 1, checksum, &[], "127.0.0.1:1", places)
    };
    let own = format!("store://{}/disk0", lab.servers[0]);
    let cases = [
        (stripe("rs:4+2", 4096, good + 1, vec![own.as_str(); 6]), "changed on the way"),
        (stripe("rs:4+2", 4096, good, vec![own.as_str(); 5]), "5 places for 6 blocks"),
        (stripe("rs:4+2", 4097, good, vec![own.as_str(); 6]), "no record can begin at 4097"),
        (stripe("rs:4+2", u32::MAX, good, vec![own.as_str(); 6]), "no record can begin"),
        (stripe("magic:4+2", 4096, good, vec![own.as_str(); 6]), "magic"),
        (stripe("rs:4+2", 4096, good, vec!["/etc/passwd"; 6]), "is not an address"),
    ];
    for (stripe, why) in cases {
        let body = postcard::to_stdvec(&stripe).unwrap();
        let parts = [std::io::IoSlice::new(b"data")];
        let error = client.call_blocking(DISTRIBUTE, &body, &parts, Duration::from_secs(20)).unwrap_err();
        let wire::Error::Remote { body, .. } = &error else { panic!("{error}") };
        assert!(String::from_utf8_lossy(body).contains(why), "{error}: not {why}");
    }
    for garbage in [&[][..], &[0xff; 40], &[0; 3]] {
        let error = client.call_blocking(DISTRIBUTE, garbage, &[], Duration::from_secs(20)).unwrap_err();
        assert!(matches!(error, wire::Error::Remote { .. }), "{error}");
    }
    assert_eq!(lab.append(Coder::Master, 5000, 0).by, Coder::Master);
}

#[test]
fn a_master_codes_stripes_with_the_code_of_their_volume_alone() {
    let lab = Lab::new("rs:4+2", 6, 1);
    let label = fs::label::Label::new([9; 16], "v", "rs:4+2", 64 << 20, 5, Vec::new());
    label.write(&*lab.targets.get(TargetId(0)).unwrap(), TargetId(0)).unwrap();
    let client = Client::new(cluster::runtime().handle().clone(), lab.servers[0].as_str(), ClientOptions::default());
    let own = format!("store://{}/disk0", lab.servers[0]);
    // As a client encodes it. This test is about the code: one byte of data makes 255 of parity.
    let (checksum, places) = (gf::checksum::crc64(b"data"), vec![own.as_str(); 256]);
    let token: &[u8] = &[];
    let stripe =
        ([9u8; 16], 3u64, "rs:1+255", (0i64, 0u32), 4096u32, 1u64, 0u32, 1u16, checksum, token, "127.0.0.1:1", places);
    let body = postcard::to_stdvec(&stripe).unwrap();
    let parts = [std::io::IoSlice::new(b"data")];
    let error = client.call_blocking(DISTRIBUTE, &body, &parts, Duration::from_secs(20)).unwrap_err();
    let wire::Error::Remote { body, .. } = &error else { panic!("{error}") };
    assert!(String::from_utf8_lossy(body).contains("another code"), "{error}");
    assert_eq!((lab.asked(DISTRIBUTE), lab.append(Coder::Master, 5000, 0).by), (1, Coder::Master));
}

#[test]
fn lost_blocks_go_from_store_to_store() {
    let lab = Lab::new("rs:4+2", 7, 1);
    let lengths = [70_000, (4 << 20) - 100, 1, (4 << 20) - 100, (4 << 20) - 100, (4 << 20) - 100];
    let stripes: Vec<(RecordOffset, u32)> = lengths
        .iter()
        .enumerate()
        .map(|(number, &length)| lab.append(Coder::Here, length, number as u64))
        .map(|stripe| (stripe.record, stripe.block))
        .collect();
    lab.writer.sync().unwrap();
    let before = lab.chunk(1, 1);
    let mut layout = lab.writer.layout().clone();
    layout.places[1] = None;
    lab.methods.lock().unwrap().clear();
    let report = rebuild(&lab.targets, &layout, &stripes, &[(Position(1), TargetId(6))], &Control::default()).unwrap();
    assert_eq!((report.witnessed, report.unwitnessed), (stripes.len() as u64, 0));
    // Two parts. The rebuilding store reads five blocks of each stripe to make the sixth. This
    // process only reads the beginning of each chunk and writes that of the new one.
    assert_eq!((lab.asked(REBUILD), lab.asked(WRITE)), (2, 1));
    assert_eq!(lab.asked(READ), 5 * (stripes.len() + 1));
    assert!(lab.targets.health().iter().all(|health| health.read_bytes == 0));
    assert!(before == lab.chunk(6, 1));
}

#[test]
fn what_is_no_order_to_rebuild_is_refused_and_harms_nobody() {
    let lab = Lab::new("rs:4+2", 6, 1);
    let client = Client::new(cluster::runtime().handle().clone(), lab.servers[0].as_str(), ClientOptions::default());
    // Volume, set, code, stripes, token, server, places, wanted positions and their destinations.
    type Lost<'a> = ([u8; 16], u64, &'a str, Vec<(u32, u32)>, &'a [u8], &'a str, Vec<&'a str>, Vec<(u16, &'a str)>);
    let own = format!("store://{}/disk0", lab.servers[0]);
    let order = |code, stripe, places, wanted| -> Lost<'_> {
        ([1; 16], 1, code, vec![stripe], &[], "127.0.0.1:1", vec![own.as_str(); places], wanted)
    };
    let cases = [
        (order("rs:4+2", (4096, 64), 5, vec![(1, own.as_str())]), "5 places for 6 blocks"),
        (order("rs:4+2", (4096, 64), 6, vec![(6, own.as_str())]), "are wanted"),
        (order("rs:4+2", (4096, 64), 6, vec![(1, own.as_str()); 2]), "are wanted"),
        (order("rs:4+2", (4096, 64), 6, vec![(1, "")]), "wanted nowhere"),
        (order("rs:4+2", (4097, 64), 6, vec![(1, own.as_str())]), "can begin at 4097"),
        (order("rs:4+2", (4096, u32::MAX), 6, vec![(1, own.as_str())]), "are too much"),
        (order("rs:4+2", (4096, 64), 6, vec![(1, "/etc/passwd")]), "is not an address"),
        (order("magic:4+2", (4096, 64), 6, vec![(1, own.as_str())]), "magic"),
        (order("rs:4+2", (4096, 64), 6, vec![(1, own.as_str())]), "chunk"),
        (order("rs:4+2", (4096, 64), 300, vec![(1, own.as_str())]), "are more than"),
    ];
    for (order, why) in cases {
        let body = postcard::to_stdvec(&order).unwrap();
        let error = client.call_blocking(REBUILD, &body, &[], Duration::from_secs(20)).unwrap_err();
        let wire::Error::Remote { body, .. } = &error else { panic!("{error}") };
        assert!(String::from_utf8_lossy(body).contains(why), "{}: not {why}", String::from_utf8_lossy(body));
    }
    for garbage in [&[][..], &[0xff; 40], &[0; 3]] {
        let error = client.call_blocking(REBUILD, garbage, &[], Duration::from_secs(20)).unwrap_err();
        assert!(matches!(error, wire::Error::Remote { .. }), "{error}");
    }
    assert_eq!(lab.append(Coder::Master, 5000, 0).by, Coder::Master);
}
