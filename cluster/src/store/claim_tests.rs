//! Claims of directories behind a store.

use super::remote::{RemoteTarget, Stores};
use super::service::Store;
use crate::StoreAddress;
use plan::TargetId;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use volume::format::VolumeId;
use volume::target::{
    Claim, ClaimRequest, Disk, Durable, Epoch, Holder, Lease, MAX_LEASE, Refusal, Target, TargetFile, conformance,
};
use wire::{Server, ServerOptions};

/// A store with one directory, as a process would run it.
struct Running {
    place: PathBuf,
    address: SocketAddr,
    store: Option<Arc<Store>>,
    server: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Running {
    fn new(name: &str) -> Self {
        let place = std::env::temp_dir().join(format!("weft-claims-{name}-{:016x}", fastrand::u64(..))).join("disk");
        drop(Disk::format(&place).unwrap());
        let mut store = Self { place, address: ([127, 0, 0, 1], 0).into(), store: None, server: None };
        store.start();
        store
    }

    fn start(&mut self) {
        let store = Arc::new(Store::open(std::slice::from_ref(&self.place)).unwrap());
        self.store = Some(store.clone());
        let server = Server::new(store, ServerOptions::default());
        let listener = crate::runtime().block_on(TcpListener::bind(self.address)).unwrap();
        self.address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let served = crate::runtime().spawn(async move {
            server.serve(listener, async { _ = stopped.await }).await;
        });
        self.server = Some((stop, served));
    }

    fn stop(&mut self) {
        let (stop, served) = self.server.take().unwrap();
        self.store = None;
        stop.send(()).unwrap();
        crate::runtime().block_on(served).unwrap();
    }

    /// The target as another process sees it.
    fn target(&self) -> RemoteTarget {
        let address = StoreAddress { server: self.address.to_string(), target: "disk".into() };
        Stores::new(None, None).target(&address)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.place.parent().unwrap());
    }
}

fn claim(number: u64, holder: u128) -> Claim {
    Claim {
        volume: VolumeId([7; 16]),
        generation: 1,
        epoch: Epoch { number, id: 5 },
        mirrors: vec![TargetId(0)],
        holder: Holder { id: holder, name: format!("server {holder}"), address: String::new() },
    }
}

fn take(target: &dyn Target, number: u64, holder: u128) -> io::Result<()> {
    connected(|| {
        target.claim(&ClaimRequest::Take { claim: claim(number, holder), lease: MAX_LEASE, blank: 0 }).map(drop)
    })
}

fn lease(target: &dyn Target) -> Lease {
    connected(|| target.claim(&ClaimRequest::Read)).unwrap().lease
}

fn write(target: &dyn Target) -> io::Result<()> {
    connected(|| target.write(TargetFile::Label, 0, &[IoSlice::new(b"x")], Durable::Later).map(drop))
}

/// Does something once more when the connection was lost because the store was started again.
fn connected<T>(mut ask: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match ask() {
            Err(error) if error.kind() == io::ErrorKind::NotConnected => {
                std::thread::sleep(Duration::from_millis(5));
            }
            done => return done,
        }
    }
}

/// As many operations run and wait at a disk as may: one more is refused, and the holder of the
/// claim keeps it.
#[test]
fn a_claim_waits_for_no_other_operation() {
    let running = Running::new("busy");
    let target = running.target();
    take(&target, 1, 1).unwrap();
    let lane = running.store.as_ref().unwrap().slots.get("disk").unwrap().disk.clone();
    let _running: Vec<_> = std::iter::from_fn(|| lane.depth.clone().try_acquire_owned().ok()).collect();
    let _waiting: Vec<_> = std::iter::from_fn(|| lane.queue.try_take(None)).collect();
    let refused = target.write(TargetFile::Label, 0, &[IoSlice::new(b"x")], Durable::Later).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ResourceBusy, "{refused}");
    for _ in 0..100 {
        take(&target, 1, 1).unwrap();
    }
}

#[test]
fn a_remote_target_conforms() {
    let store = Running::new("conformance");
    conformance(&store.target());
    // Once more, with a claim that was there before.
    conformance(&store.target());
}

#[test]
fn a_lease_survives_the_store_and_its_end_does_too() {
    let mut store = Running::new("restart");
    let (first, second) = (store.target(), store.target());
    write(&second).unwrap();
    take(&first, 1, 1).unwrap();
    write(&first).unwrap();
    assert_eq!(Refusal::fenced(&write(&second).unwrap_err()).unwrap().holder.name, "server 1");
    assert!(Refusal::is_held(&take(&second, 2, 2).unwrap_err()));
    store.stop();
    // The directory alone remembers the promise.
    let direct = Disk::open(&store.place).unwrap();
    assert!(Refusal::is_held(&take(&direct, 2, 2).unwrap_err()));
    store.start();
    assert!(matches!(lease(&second), Lease::Runs(_)));
    assert!(Refusal::is_held(&take(&second, 2, 2).unwrap_err()));
    // The holder goes on as if nothing had happened.
    write(&first).unwrap();
    take(&first, 1, 1).unwrap();
    // A process that is started again does not wait for its own lease.
    let again = store.target();
    take(&again, 3, 1).unwrap();
    assert_eq!(Refusal::fenced(&write(&first).unwrap_err()).unwrap().epoch.number, 3);
    again.claim(&ClaimRequest::Release(claim(3, 1).epoch)).unwrap();
    store.stop();
    store.start();
    assert_eq!(lease(&second), Lease::Released);
    assert!(Refusal::fenced(&take(&again, 3, 1).unwrap_err()).is_some(), "a late renewal");
    take(&second, 4, 2).unwrap();
    write(&second).unwrap();
    store.stop();
}

/// An epoch that the store missed is not the same as one that is over.
#[test]
fn a_store_that_missed_an_opening_says_so() {
    let mut store = Running::new("missed");
    let target = store.target();
    take(&target, 1, 1).unwrap();
    // Under the later epoch, which it got elsewhere, it is not fenced here: it must claim first.
    let asked = target.claim(&ClaimRequest::Release(claim(2, 1).epoch)).unwrap_err();
    assert_eq!(Refusal::of(&asked), Some(&Refusal::Unclaimed(Some(claim(1, 1).epoch))));
    store.stop();
    std::fs::remove_file(store.place.join("weft.claim")).unwrap();
    store.start();
    assert_eq!(Refusal::of(&write(&target).unwrap_err()), Some(&Refusal::Unclaimed(None)));
    take(&target, 1, 1).unwrap();
    write(&target).unwrap();
    store.stop();
}
