//! Volumes for the tests: in directories of this machine, and of a cluster whose servers are in
//! this process, with connections of TCP between them.

use cluster::meta_server::Commands;
use cluster::{ClusterPlaces, MetaServer, Store};
use fs::{Create, FileKind, FileSystem, Ino, OpenOptions, ROOT, Sessions};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use weft_object_store::VolumeStore;
use wire::{Role, Server, ServerOptions, Service};

/// Longer than any test.
const LEASE: Duration = Duration::from_secs(600);

/// A volume with directories for targets, which is removed at the end.
pub struct Lab {
    place: PathBuf,
}

impl Lab {
    /// A new volume.
    pub fn new() -> Self {
        let lab = Self::empty();
        let create = Create { stripe_bytes: Some(256 << 10), ..Create::new("films", "rs:2+1", lab.disks()) };
        create.run(&lab.volume()).unwrap();
        lab
    }

    fn empty() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let lab = Self { place: std::env::temp_dir().join(format!("weft-object-{}-{number}", std::process::id())) };
        lab.disks().iter().for_each(|disk| std::fs::create_dir_all(disk).unwrap());
        lab
    }

    fn disks(&self) -> Vec<PathBuf> {
        (0..4).map(|number| self.place.join(format!("disk{number}"))).collect()
    }

    /// Its directory.
    pub fn volume(&self) -> PathBuf {
        self.place.join("volume")
    }

    /// Opens it.
    pub async fn open(&self) -> VolumeStore {
        VolumeStore::open(self.volume()).await.unwrap()
    }

    /// Opens it as a mount does, and a store on it.
    pub fn open_with_mount(&self) -> (Arc<FileSystem>, VolumeStore) {
        let fs = FileSystem::open_volume(&self.volume(), OpenOptions::default()).unwrap();
        (fs.clone(), VolumeStore::of_volume(fs, "/").unwrap())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.place);
    }
}

/// A volume of storage servers and a metadata server.
pub struct Cluster {
    /// `weft://..`
    pub address: String,
    meta: Arc<MetaServer>,
    _lab: Lab,
}

/// Serves on a port of its own, and returns its address.
fn serve<S: Service>(service: Arc<S>, role: Role) -> String {
    let listener = cluster::runtime().block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = Server::new(service, ServerOptions { role, ..ServerOptions::default() });
    cluster::runtime().spawn(async move { server.serve(listener, std::future::pending()).await });
    address
}

impl Cluster {
    /// Starts one.
    pub fn start() -> Self {
        let lab = Lab::empty();
        let stores = lab.disks().into_iter().map(|disk| {
            let store = serve(Arc::new(Store::open(std::slice::from_ref(&disk)).unwrap()), Role::STORE);
            format!("store://{store}/{}", disk.file_name().unwrap().to_str().unwrap()).into()
        });
        let places = Arc::new(ClusterPlaces::default());
        let create = Create::new("films", "rs:2+1", stores.collect());
        Create { stripe_bytes: Some(256 << 10), places: places.clone(), ..create }.run(&lab.volume()).unwrap();
        let options = OpenOptions { serve: true, places, ..OpenOptions::default() };
        let volume = FileSystem::open_volume(&lab.volume(), options).unwrap();
        let meta = Arc::new(MetaServer::new(Sessions::new(volume, LEASE), Commands::new(|_, _, _| Vec::new())));
        let address = format!("weft://{}/films", serve(meta.service(), Role::META));
        Self { address, meta, _lab: lab }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.meta.close();
    }
}

/// What a mount finds at a path.
pub fn find(fs: &FileSystem, path: &str) -> Option<Ino> {
    path.split('/').try_fold(ROOT, |at, name| Some(fs.lookup(at, name.as_bytes()).ok()?.ino))
}

/// The bytes of a file, as a mount reads them.
pub fn read(fs: &FileSystem, path: &str) -> Vec<u8> {
    let ino = find(fs, path).unwrap();
    let mut bytes = vec![0; fs.attributes(ino).unwrap().size as usize];
    assert_eq!(fs.read(ino, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

/// Writes a file as a program on a mount does.
pub fn write(fs: &FileSystem, directory: Ino, name: &str, bytes: &[u8]) {
    let new = fs::New { kind: FileKind::File, mode: 0o644, uid: 0, gid: 0, device: 0, link: Vec::new() };
    let made = fs.make(directory, name.as_bytes(), &new).unwrap();
    fs.write(made.ino, 0, bytes).unwrap();
    fs.sync(made.ino).unwrap();
}

/// How many entries a directory has.
pub fn count(fs: &FileSystem, path: &str) -> usize {
    fs.list(find(fs, path).unwrap(), 0, 1000).unwrap().len()
}
