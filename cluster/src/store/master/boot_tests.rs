//! Machines start again after a Master wrote to them, and before the client synced.

use super::{DISTRIBUTE, decode_done};
use crate::StoreAddress;
use crate::store::protocol::encode;
use crate::store::remote::Stores;
use crate::store::service::Store;
use plan::coding::Coder;
use plan::{Position, SetId, StripeSeq, TargetId};
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use volume::format::VolumeId;
use volume::target::Memory;
use volume::{Appended, BufferPool, SetLayout, SetWriter, Targets};
use wire::{Reply, Request, Server, ServerOptions, Service};

/// A machine with a store of one target.
struct Machine {
    disk: Arc<Memory>,
    store: Mutex<Arc<Store>>,
    /// Its store is of a version that tells no boot numbers as Master.
    is_old: bool,
}

impl Machine {
    fn start(&self, boot: u64) {
        *self.store.lock().unwrap() = Arc::new(Store::on("disk", self.disk.clone(), boot));
    }
}

impl Service for Machine {
    async fn call(&self, request: Request) -> Reply {
        let (store, method) = (self.store.lock().unwrap().clone(), request.method);
        let reply = store.call(request).await;
        match decode_done(&reply.body) {
            Some((done, boots)) if self.is_old && method == DISTRIBUTE => {
                assert!(boots.iter().all(|&boot| boot > 0), "{boots:?}");
                Reply::ok(encode(&done))
            }
            _ => reply,
        }
    }
}

struct Lab {
    machines: Vec<Arc<Machine>>,
    targets: Arc<Targets>,
    pool: Arc<BufferPool>,
    writer: SetWriter,
}

impl Lab {
    fn new(is_old: bool) -> Self {
        let code = ec::parse("rs:2+1").unwrap();
        let (stores, targets, mut machines) = (Stores::new(None, None), Arc::new(Targets::new()), Vec::new());
        for number in 0..3 {
            let disk = Arc::new(Memory::default());
            let store = Mutex::new(Arc::new(Store::on("disk", disk.clone(), 1)));
            let machine = Arc::new(Machine { disk, store, is_old });
            let server = Server::new(machine.clone(), ServerOptions::default());
            let listener = crate::runtime().block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
            let address = StoreAddress { server: listener.local_addr().unwrap().to_string(), target: "disk".into() };
            crate::runtime().spawn(async move { server.serve(listener, std::future::pending()).await });
            targets.add(TargetId(number), Arc::new(stores.target(&address)));
            machines.push(machine);
        }
        let places = (0..3).map(|number| Some(TargetId(number))).collect();
        let pool = Arc::new(BufferPool::new(&*code, 1 << 20, 4));
        let layout = SetLayout { volume: VolumeId([9; 16]), set: SetId(3), code, places };
        let writer = SetWriter::create(targets.clone(), pool.clone(), layout, 64 << 20, 0);
        Self { machines, targets, pool, writer }
    }

    fn append(&self, master: u16) -> Appended {
        self.targets.fix_master(TargetId(master));
        let mut buffer = self.pool.take();
        buffer.extend_from_slice(&[7; 50_000]);
        let sequence = StripeSeq(self.writer.next_record().0.into());
        let done = self.writer.append_by(Coder::Master, buffer, sequence, b"").map_err(|(error, _)| error).unwrap();
        assert_eq!(done.by, Coder::Master);
        done
    }
}

#[test]
fn a_sync_says_which_machine_started_again_since_a_master_wrote_there() {
    for number in 0..3 {
        let lab = Lab::new(false);
        assert_eq!(lab.append(0).missing, []);
        assert_eq!(lab.writer.sync().unwrap(), []);
        // What was synced is there.
        lab.machines[number].start(2);
        assert_eq!(lab.writer.sync().unwrap(), []);
        let lab = Lab::new(false);
        assert_eq!(lab.append(1).missing, []);
        lab.machines[number].start(2);
        assert_eq!(lab.writer.sync().unwrap(), [Position::at(number)]);
    }
}

#[test]
fn too_many_machines_that_started_again_are_a_loss() {
    let lab = Lab::new(false);
    assert_eq!(lab.append(0).missing, []);
    (0..2).for_each(|number| lab.machines[number].start(2));
    lab.writer.sync().unwrap_err();
    assert!(lab.writer.has_lost());
}

/// None of the Masters knows of both boots.
#[test]
fn a_restart_between_the_stripes_of_two_masters_is_noticed_by_their_client() {
    let lab = Lab::new(false);
    assert_eq!(lab.append(0).missing, []);
    lab.machines[2].start(2);
    assert_eq!(lab.append(1).missing, [Position(2)]);
    assert_eq!(lab.append(0).missing, []);
    assert_eq!((lab.writer.sync().unwrap(), lab.writer.lacking()), (vec![], vec![Position(2)]));
}

/// The same Master wrote before and after.
#[test]
fn a_master_that_notices_a_restart_says_that_the_block_failed() {
    let lab = Lab::new(false);
    assert_eq!(lab.append(0).missing, []);
    lab.machines[1].start(2);
    assert_eq!(lab.append(0).missing, [Position(1)]);
}

#[test]
fn the_answer_of_an_older_master_is_understood() {
    let lab = Lab::new(true);
    assert_eq!(lab.append(0).missing, []);
    lab.machines[2].start(2);
    assert_eq!(lab.writer.sync().unwrap(), [], "nobody knows");
}
