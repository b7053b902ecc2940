//! A cluster with certificates and a key: what a client may do at a store, and that all works that
//! should.

use crate::lab::{self, Process, WAIT_TIMEOUT, free_port};
use crate::scratch::{Ended, Scratch, noise, run, weft};
use cluster::capability::{Capability, Credentials, KEY_FILE, Rights, Token, now_ms};
use cluster::store::Stores;
use cluster::{ClusterKey, Identity, RemoteTarget, StoreAddress};
use plan::{Position, RecordOffset, SessionId, SetId, StripeSeq, TargetId};
use std::fs;
use std::io::{ErrorKind, IoSlice};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use volume::format::{Timestamp, VolumeId};
use volume::target::{Allocation, Durable, ReadAt, Target, TargetFile};
use volume::{Master, NoMaster, Order, RebuildOrder, RebuildReport, SetLayout};

/// Servers with identities, each a process, and a client called laptop, which has no cluster key.
pub struct Secured {
    meta: Process,
    pub stores: Vec<Process>,
    addresses: Vec<StoreAddress>,
    port: u16,
    pub scratch: Scratch,
}

/// Starts a server at a port that is free; `arguments` get the address behind them.
fn started(name: &str, arguments: &[&str], what: PathBuf, scratch: &Scratch) -> (Process, u16) {
    loop {
        let port = free_port();
        let mut command = weft();
        command.args(["--json", "--identity"]).arg(scratch.path.join("ids").join(name)).args(arguments);
        command.arg("--listen").arg(format!("127.0.0.1:{port}")).arg(&what);
        // Another test may have been faster with the port.
        if let Ok(process) = Process::started(name, &command, &scratch.path) {
            return (process, port);
        }
    }
}

impl Secured {
    /// `more`: arguments for the volume.
    fn new(code: &str, stores: usize, more: &[&str]) -> Self {
        Self::with(code, stores, more, &[], 5)
    }

    /// Also with arguments for the stores, and another lease.
    pub fn with(code: &str, stores: usize, more: &[&str], of_stores: &[&str], lease: u64) -> Self {
        let scratch = Scratch::new(0);
        let ids = scratch.path.join("ids");
        let mut init = weft();
        init.args(["cluster", "init"]).arg(&ids).args(["--member", "meta=127.0.0.1"]);
        (0..stores).for_each(|n| _ = init.arg("--member").arg(format!("store{n}=127.0.0.1")));
        run(&mut init).good();
        // Only servers have the key.
        let laptop = scratch.path.join("laptop");
        fs::create_dir(&laptop).unwrap();
        run(weft().args(["cluster", "init"]).arg(&ids).args(["--member", "laptop", "--operator", "admin"])).good();
        for file in ["authority.pem", "laptop.pem", "laptop.key", "admin.pem", "admin.key"] {
            fs::copy(ids.join(file), laptop.join(file)).unwrap();
        }
        let (mut running, mut addresses) = (Vec::new(), Vec::new());
        for number in 0..stores {
            let disk = scratch.path.join(format!("disk{number}"));
            fs::create_dir(&disk).unwrap();
            let rack = format!("rack{number}");
            let arguments = [&["serve", "store", "--domain", &rack], of_stores].concat();
            let (store, port) = started(&format!("store{number}"), &arguments, disk, &scratch);
            running.push(store);
            addresses.push(StoreAddress { server: format!("127.0.0.1:{port}"), target: format!("disk{number}") });
        }
        let volume = scratch.path.join("vol");
        let create = || {
            let mut create = weft();
            create
                .arg("create")
                .arg(&volume)
                .args(["--code", code])
                .args(more)
                .args(addresses.iter().map(ToString::to_string));
            create
        };
        let said = run(create().arg("--identity").arg(laptop.join("laptop"))).failed(1);
        assert!(said.contains("capability"), "{said}");
        run(create().arg("--identity").arg(ids.join("meta"))).good();
        let (meta, port) = started("meta", &["serve", "meta", "--lease", &lease.to_string()], volume, &scratch);
        Self { meta, stores: running, addresses, port, scratch }
    }

    pub fn url(&self) -> String {
        format!("weft://127.0.0.1:{}/vol", self.port)
    }

    /// A command of the laptop.
    fn weft(&self, arguments: &[&str]) -> Ended {
        run(weft().arg("--identity").arg(self.scratch.path.join("laptop/laptop")).args(arguments))
    }

    /// A command of an operator, who has no cluster key either.
    fn operate(&self, arguments: &[&str]) -> Ended {
        run(weft().arg("--identity").arg(self.scratch.path.join("laptop/admin")).args(arguments))
    }

    pub fn key(&self) -> Arc<ClusterKey> {
        Identity::at(&self.scratch.path.join("ids/meta")).cluster_key().unwrap()
    }

    /// The target of the first store, with the laptop's certificate and the credentials `shown`.
    pub fn target(&self, shown: Option<Arc<dyn Credentials>>) -> RemoteTarget {
        let tls = Identity::at(&self.scratch.path.join("laptop/laptop")).client().unwrap();
        Stores::new(Some(tls), shown).target(&self.addresses[0])
    }

    pub fn token(&self, set: SetId, rights: Rights, expires_ms: u64) -> Token {
        let label = ::fs::label::Label::read_pointer(&self.scratch.path.join("vol")).unwrap();
        self.key().sign(&Capability { volume: label.id().unwrap(), set, rights, session: SessionId::NONE, expires_ms })
    }

    /// A set on the first three stores.
    fn layout(&self, set: SetId) -> SetLayout {
        let label = ::fs::label::Label::read_pointer(&self.scratch.path.join("vol")).unwrap();
        let places = (0..3).map(|number| Some(TargetId(number))).collect();
        SetLayout { volume: VolumeId(label.id().unwrap()), set, code: ec::parse("rs:2+1").unwrap(), places }
    }

    /// Has the first store code a stripe of a set and write it to all of them, or says why not.
    fn distribute(&self, set: SetId, shown: Option<Arc<dyn Credentials>>) -> Result<usize, String> {
        let layout = self.layout(set);
        let data = noise(1000);
        let order = Order {
            layout: &layout,
            created: Timestamp { seconds: 0, nanoseconds: 0 },
            // Far behind what is there.
            record: RecordOffset(32 << 20),
            sequence: StripeSeq(9),
            data: &data,
            manifest_bytes: 0,
            checksum: gf::checksum::crc64(&data),
            spare: 1,
        };
        let addresses: Vec<Option<String>> = self.addresses.iter().map(|address| Some(address.to_string())).collect();
        match self.target(shown).distribute(&order, &addresses, Duration::from_secs(10)) {
            Ok(done) => Ok(done.failed.len()),
            Err(NoMaster::Unwilling(why)) => Err(why),
            Err(NoMaster::Silent(why)) => panic!("{why}"),
        }
    }

    /// Has the first store rebuild a block of a set, or says why not.
    fn rebuild(&self, set: SetId, shown: Option<Arc<dyn Credentials>>) -> Result<RebuildReport, String> {
        let layout = self.layout(set);
        let addresses: Vec<Option<String>> = self.addresses.iter().map(|address| Some(address.to_string())).collect();
        let order = RebuildOrder { layout: &layout, stripes: &[], wanted: &[(Position(0), TargetId(0))] };
        match self.target(shown).rebuild(&order, &addresses, &[self.addresses[0].to_string()]) {
            Ok(done) => Ok(done),
            Err(NoMaster::Unwilling(why)) => Err(why),
            Err(NoMaster::Silent(why)) => panic!("{why}"),
        }
    }

    /// All servers get another key, and are started again.
    fn change_key(&self) {
        let path = self.scratch.path.join("ids").join(KEY_FILE);
        fs::remove_file(&path).unwrap();
        ClusterKey::create(&path).unwrap();
        assert!(self.meta.end(), "{}", self.meta.log());
        for store in &self.stores {
            assert!(store.end(), "{}", store.log());
            store.start();
        }
        self.meta.start();
    }

    pub fn heal(&self) {
        lab::heal(|words| self.operate(&[words, &[&self.url()]].concat()), || self.meta.log());
        self.weft(&["verify", &self.url()]).good();
    }
}

/// Shows one token, and another one when that is refused.
struct Renewing {
    tokens: Mutex<Vec<Token>>,
    asked: AtomicUsize,
}

impl Credentials for Renewing {
    fn token(&self, _: TargetFile, _: bool) -> Option<Token> {
        self.tokens.lock().unwrap().last().copied()
    }

    fn renew(&self, file: TargetFile, changes: bool, refused: Option<Token>) -> Option<Token> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.tokens.lock().unwrap().pop();
        self.token(file, changes).filter(|token| Some(*token) != refused)
    }
}

#[track_caller]
pub fn is_refused<T: std::fmt::Debug>(done: std::io::Result<T>, says: &str) {
    let why = done.unwrap_err();
    assert!(why.kind() == ErrorKind::PermissionDenied && why.to_string().contains(says), "{why:?}");
}

#[test]
fn a_store_does_what_a_capability_permits_and_nothing_else() {
    let cluster = Secured::new("rs:2+1", 3, &[]);
    let started_at = Instant::now();
    let file = cluster.scratch.file("f", 3_000_000);
    cluster.weft(&["cp", file.to_str().unwrap(), &format!("{}:/f", cluster.url())]).good();
    let everything = cluster.target(Some(cluster.key()));
    let chunk = everything.list().unwrap().into_iter().map(|(file, _)| file);
    let chunk = chunk.into_iter().find(|file| matches!(file, TargetFile::Chunk { .. })).expect("a chunk");
    let TargetFile::Chunk { set, position } = chunk else { unreachable!() };
    let (later, mut bytes) = (now_ms() + 600_000, [0; 100]);
    let read = |target: &RemoteTarget| target.read_at(chunk, 0, &mut [0; 100]);
    let write = |target: &RemoteTarget| target.write(chunk, 0, &[IoSlice::new(b"ruined")], Durable::Later).map(drop);
    assert_eq!(everything.read_at(chunk, 0, &mut bytes).unwrap(), 100);

    // A member of the cluster without a token learns how much space there is, and nothing else.
    let nobody = cluster.target(None);
    assert!(nobody.space().is_ok());
    let file = TargetFile::NewLabel;
    is_refused(read(&nobody), "none was shown");
    for done in [
        write(&nobody),
        nobody.sync(chunk).map(drop),
        nobody.allocate(chunk, Allocation::Trim),
        nobody.allocate(chunk, Allocation::Reserve(10)),
        nobody.allocate(chunk, Allocation::Punch(0..100)),
        nobody.remove(chunk),
        nobody.rename(chunk, TargetFile::NewChunk { set, position }),
        nobody.list().map(drop),
        nobody.read_at(TargetFile::Label, 0, &mut [0; 10]).map(drop),
        nobody.write(file, 0, &[IoSlice::new(b"{}")], Durable::Later).map(drop),
        nobody.format(),
    ] {
        is_refused(done, "none was shown");
    }

    let shows = |token: Token| cluster.target(Some(Arc::new(token)));
    let may_read = shows(cluster.token(set, Rights::Read, later));
    assert_eq!(read(&may_read).unwrap(), 100);
    is_refused(write(&may_read), "something else");
    is_refused(may_read.remove(chunk), "something else");
    // To append is not to remove, nor to look after a target.
    let may_write = shows(cluster.token(set, Rights::Write, later));
    assert!(may_write.sync(chunk).is_ok() && read(&may_write).is_ok());
    is_refused(may_write.remove(chunk), "something else");
    is_refused(may_write.allocate(chunk, Allocation::Punch(0..10)), "something else");
    is_refused(may_write.allocate(chunk, Allocation::Trim), "something else");
    is_refused(may_write.allocate(chunk, Allocation::Reserve(60 << 30)), "something else");
    let over = |offset: u64, bytes: &[u8]| may_write.write(chunk, offset, &[IoSlice::new(bytes)], Durable::Later);
    // What is there stays; the same may come once more. A chunk has an end, and a set as many
    // chunks as blocks.
    let ruined = over(0, b"ruined").unwrap_err();
    assert!(ruined.to_string().contains("stays as it is"), "{ruined}");
    over(0, &bytes).unwrap();
    let beyond = over(60 << 30, b"much").unwrap_err();
    assert!(beyond.to_string().contains("so long"), "{beyond}");
    assert!(
        may_write
            .write(TargetFile::Chunk { set, position: Position(9) }, 0, &[IoSlice::new(b"more")], Durable::Later)
            .is_err()
    );
    is_refused(may_write.list(), "something else");
    is_refused(read(&shows(cluster.token(set.next(), Rights::Write, later))), "something else");
    // The clocks may differ by five minutes.
    assert!(read(&shows(cluster.token(set, Rights::Read, now_ms() - 200_000))).is_ok());
    is_refused(read(&shows(cluster.token(set, Rights::Read, now_ms() - 400_000))), "expired");
    let other_volume =
        Capability { volume: [1; 16], set, rights: Rights::Read, session: SessionId::NONE, expires_ms: later };
    is_refused(read(&shows(cluster.key().sign(&other_volume))), "something else");
    // What a session was permitted ends with it: stores hear of that with the next report. The
    // numbers of sessions rise.
    let of = |session: u64| {
        let session = SessionId(session);
        let token = cluster.token(set, Rights::Write, later).says().unwrap();
        shows(cluster.key().sign(&Capability { session, ..token }))
    };
    let begun = Instant::now();
    while of(1).sync(chunk).is_ok() {
        assert!(begun.elapsed() < WAIT_TIMEOUT, "no store hears that a session has ended");
        std::thread::sleep(Duration::from_millis(50));
    }
    is_refused(of(1).sync(chunk).map(drop), "has ended");
    is_refused(write(&of(1)), "has ended");
    assert!(of(u64::MAX).sync(chunk).is_ok() && read(&of(1)).is_ok());
    let stranger = cluster.scratch.path.join("stranger.key");
    ClusterKey::create(&stranger).unwrap();
    let stranger = ClusterKey::read(&stranger).unwrap().unwrap();
    is_refused(read(&cluster.target(Some(Arc::new(stranger)))), "not signed");

    // A store that codes for a client does no more for it than the client may do.
    for (shown, says) in [
        (None, "none was shown"),
        (Some((set, Rights::Read)), "something else"),
        (Some((set.next(), Rights::Write)), "something else"),
    ] {
        let shown = shown.map(|(set, rights)| Arc::new(cluster.token(set, rights, later)) as Arc<dyn Credentials>);
        let why = cluster.distribute(set, shown).unwrap_err();
        assert!(why.contains(says), "{why}");
    }
    assert_eq!(cluster.distribute(set, Some(Arc::new(cluster.token(set, Rights::Write, later)))), Ok(0));

    // Only servers may rebuild lost blocks.
    let shown = Arc::new(cluster.token(set, Rights::Write, later));
    assert!(cluster.rebuild(set, Some(shown)).unwrap_err().contains("something else"));
    assert!(cluster.rebuild(set, None).unwrap_err().contains("none was shown"));
    assert_eq!(cluster.rebuild(set, Some(cluster.key())), Ok(RebuildReport::default()));

    // A client that is refused asks once for another token, and tries again.
    let [old, new] = [0, later].map(|expires| cluster.token(set, Rights::Read, expires));
    for (tokens, good) in [(vec![new, old], true), (vec![old, old], false), (vec![old], false)] {
        let shown = Arc::new(Renewing { tokens: Mutex::new(tokens), asked: AtomicUsize::new(0) });
        assert_eq!(read(&cluster.target(Some(shown.clone()))).is_ok(), good);
        assert_eq!(shown.asked.load(Ordering::SeqCst), 1);
    }

    let mut after = [0; 100];
    assert_eq!(everything.read_at(chunk, 0, &mut after).unwrap(), 100);
    assert_eq!(after, bytes);
    cluster.heal();
    // A member that does what it must not is named, and cannot fill the log.
    let log = cluster.stores[0].log();
    let refused: Vec<&str> = log.lines().filter(|line| line.contains("is refused")).collect();
    // Once a minute.
    let most = || 1 + started_at.elapsed().as_secs() as usize / 60;
    assert!((1..=most()).contains(&refused.len()) && refused[0].contains("laptop is refused: a capability"), "{log}");
    // A member of another cluster does not get that far.
    let other = cluster.scratch.path.join("other");
    run(weft().args(["cluster", "init"]).arg(&other).args(["--member", "meta"])).good();
    for _ in 0..5 {
        let said = run(weft().arg("--identity").arg(other.join("meta")).args(["ls", &format!("{}:/", cluster.url())]))
            .failed(1);
        assert!(said.contains("certificate") || said.contains("TLS"), "{said}");
    }
    let log = cluster.meta.log();
    let strangers = log.lines().filter(|line| line.contains("TLS")).count();
    assert!((1..=most()).contains(&strangers), "{log}");
    let secret = fs::read_to_string(cluster.scratch.path.join("ids").join(KEY_FILE)).unwrap();
    let secret = secret.trim().rsplit(' ').next().unwrap();
    for process in cluster.stores.iter().chain([&cluster.meta]) {
        assert!(!process.log().contains(secret), "the key is in a log");
    }
}

#[test]
fn a_cluster_with_a_key_is_written_read_repaired_and_given_another_key() {
    // The stores code, so that they show each other what permits it.
    let cluster = Secured::new("rs:2+1", 4, &["--coding", "server"]);
    let at = |name: &str| format!("{}:/{name}", cluster.url());
    let cat = |name: &str| cluster.weft(&["cat", &at(name)]).good();
    for (name, length) in [("small", 700), ("large", 9_000_000)] {
        let file = cluster.scratch.file(name, length);
        cluster.weft(&["cp", file.to_str().unwrap(), &at(name)]).good();
        assert!(cat(name) == noise(length), "{name}");
    }
    // This client goes on through all of it.
    ::cluster::use_identity(&Identity::at(&cluster.scratch.path.join("laptop/laptop"))).unwrap();
    let address = cluster.url().parse().unwrap();
    let client = ::cluster::connect(&address, "client", ::fs::OpenOptions::default()).unwrap();
    let large = client.lookup(::fs::ROOT, b"large").unwrap().ino;
    let new = ::fs::New { kind: ::fs::FileKind::File, mode: 0o600, uid: 0, gid: 0, device: 0, link: Vec::new() };
    let written = client.make(::fs::ROOT, b"written", &new).unwrap().ino;
    client.open(written, true).unwrap();
    client.open(large, false).unwrap();
    let goes_on = |round: u64| {
        client.write(written, round * 5_000_000, &noise(5_000_000)).unwrap();
        client.sync(written).unwrap();
        let mut bytes = vec![0; 9_000_000];
        assert_eq!(client.read(large, 0, &mut bytes).unwrap(), 9_000_000);
        assert!(bytes == noise(9_000_000), "round {round}");
        bytes.truncate(5_000_000);
        assert_eq!(client.read(written, round * 5_000_000, &mut bytes).unwrap(), 5_000_000);
        assert!(bytes == noise(5_000_000), "round {round}");
    };
    goes_on(0);
    // Its tokens are no longer valid; it asks for others, and goes on.
    cluster.change_key();
    goes_on(1);
    // One store is lost for good.
    cluster.stores[0].kill();
    let disk = cluster.scratch.path.join("disk new");
    fs::create_dir(&disk).unwrap();
    let (_store, port) = started("store0", &["serve", "store", "--domain", "rack9/a"], disk, &cluster.scratch);
    let (old, new) = (cluster.addresses[0].to_string(), format!("store://127.0.0.1:{port}/disk new"));
    goes_on(2);
    client.close(written);
    client.close(large);
    client.close_volume().unwrap();
    // For a lease after its start, the metadata server leaves alone what clients from before might
    // write to.
    let begun = Instant::now();
    loop {
        let done = cluster.operate(&["target", "replace", "--json", &cluster.url(), &old, &new]);
        if done.status == 0 {
            let done = done.json();
            // The stores made it, and showed each other what permits that. How much the last
            // attempt made depends on those before, which failed half-way.
            assert_eq!(done["bytes"], done["bytes_made_by_stores"], "{done}");
            break;
        }
        assert!(begun.elapsed() < WAIT_TIMEOUT, "{}", done.errors);
        std::thread::sleep(Duration::from_millis(500));
    }
    // The stores say where they are.
    let status = cluster.weft(&["status", "--json", &cluster.url()]).json();
    let domains: Vec<&str> =
        status["targets"].as_array().unwrap().iter().map(|t| t["domain"].as_str().unwrap()).collect();
    assert_eq!(domains, ["rack1", "rack2", "rack3", "rack9/a"]);
    cluster.heal();
    assert!(cat("large") == noise(9_000_000) && cat("small") == noise(700));
    assert!(cat("written") == noise(5_000_000).repeat(3));
}

#[test]
fn commands_that_look_after_a_volume_are_for_operators() {
    let cluster = Secured::new("rs:2+1", 3, &[]);
    let (url, disk) = (cluster.url(), cluster.scratch.path.join("local"));
    let local = disk.to_str().unwrap();
    let store = cluster.addresses[0].to_string();
    for command in [
        &["target", "add", &url, "store://127.0.0.1:9/disk"][..],
        &["target", "drain", &url, &store],
        &["target", "replace", &url, &store, "store://127.0.0.1:9/disk"],
        &["target", "domain", &url, &store, "rack7"],
        &["target", "undrain", &url, &store],
        &["target", "placement", &url, "round-robin"],
        &["target", "placement", &url, "round-robin", "--domain-level", "1"],
        &["meta", "handover", &url, "meta2"],
        &["meta", "forget", &url, "meta"],
        &["repair", &url],
        &["fsck", &url],
    ] {
        let said = cluster.weft(command).failed(1);
        assert!(said.contains("operator"), "{command:?}: {said}");
    }
    // The server does not touch the client's own files: it runs as another user, elsewhere, and
    // these paths are relative to the client.
    let at_home = |arguments: &[&str]| {
        run(weft().current_dir(cluster.scratch.path.join("laptop")).args(["--identity", "admin"]).args(arguments))
    };
    at_home(&["target", "placement", &url, "round-robin"]).good();
    at_home(&["status", &url]).good();
    at_home(&["repair", &url]).good();
    cluster.weft(&["status", &url]).good();
    cluster.weft(&["verify", &url]).good();
    // No directory of the server's machine becomes a target of others.
    for command in [&["target", "add", &url, local][..], &["target", "replace", &url, &store, local]] {
        let said = cluster.operate(command).failed(1);
        assert!(said.contains("store://HOST:PORT/NAME"), "{said}");
    }
    assert!(!disk.exists());
    // A member cannot get more rights by asking once more.
    let ids = cluster.scratch.path.join("ids");
    let said = run(weft().args(["cluster", "init"]).arg(&ids).args(["--operator", "laptop"])).failed(1);
    assert!(said.contains("choose another name"), "{said}");
}

#[test]
fn a_server_with_a_certificate_and_no_key_does_not_start() {
    let scratch = Scratch::new(1);
    let ids = scratch.path.join("ids");
    run(weft().args(["cluster", "init"]).arg(&ids).args(["--member", "store=127.0.0.1"])).good();
    fs::remove_file(ids.join(KEY_FILE)).unwrap();
    let start = || {
        let mut start = weft();
        start.arg("--identity").arg(ids.join("store")).args(["serve", "store", "--listen", "127.0.0.1:0"]);
        run(start.arg(&scratch.disks[0])).failed(1)
    };
    let said = start();
    assert!(said.contains(KEY_FILE) && said.contains("weft cluster init"), "{said}");
    fs::write(ids.join(KEY_FILE), "nonsense").unwrap();
    fs::set_permissions(ids.join(KEY_FILE), fs::Permissions::from_mode(0o600)).unwrap();
    let said = start();
    assert!(said.contains("not a cluster key"), "{said}");
}
