//! Many records at once: the steps of different records overlap, so their sum is not the time of a
//! record. What limits is the resource that is busy longest for a record.

use super::StepTimes;
use super::serial;
use super::setting::{Constants, Setting, Way};
use crate::coding::Coder;

/// What a write keeps busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// The processors of a client.
    ClientCpu,
    /// The link of a client.
    ClientLink,
    /// The links of the stores.
    StoreLink,
    /// The processors of the stores.
    StoreCpu,
    /// The disks of the stores.
    Disk,
}

impl Resource {
    /// All, in the order of a write.
    pub const ALL: [Self; 5] = [Self::ClientCpu, Self::ClientLink, Self::StoreLink, Self::StoreCpu, Self::Disk];

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::ClientCpu => "client CPU",
            Self::ClientLink => "client link",
            Self::StoreLink => "store link",
            Self::StoreCpu => "store CPU",
            Self::Disk => "disk",
        }
    }

    /// Each client has one of its own, so more clients do not make it busier.
    pub fn is_of_a_client(self) -> bool {
        matches!(self, Self::ClientCpu | Self::ClientLink)
    }
}

/// How busy a resource is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// What is busy.
    pub resource: Resource,
    /// How long a record keeps it busy, in seconds: the client's own, or the mean over all stores.
    pub seconds: f64,
    /// The part of the time in which it is busy with one client: 0 to 1.
    pub busy: f64,
    /// The number of clients with which it is busy all the time. None where no number of clients
    /// brings that about.
    pub clients: Option<f64>,
}

/// One client at full speed, and what more of them bring about.
#[derive(Clone, Debug, PartialEq)]
pub struct Pipelined {
    /// The time from one record to the next, in seconds.
    pub seconds: f64,
    /// What one client writes.
    pub bytes_per_second: f64,
    /// What limits one client. None if nothing that the model knows takes time.
    pub limit: Option<Resource>,
    /// In the order of [`Resource::ALL`].
    pub loads: [Load; 5],
}

impl Pipelined {
    /// See [`first_full`].
    pub fn first_full(&self) -> Option<(Resource, f64)> {
        first_full(&self.loads)
    }
}

/// The resource of the servers that is full first, and with how many clients.
pub fn first_full(loads: &[Load]) -> Option<(Resource, f64)> {
    let shared = loads.iter().filter(|load| !load.resource.is_of_a_client());
    let full = shared.filter_map(|load| load.clients.map(|clients| (load.resource, clients)));
    full.min_by(|a, b| a.1.total_cmp(&b.1))
}

/// The bytes of a record that the busier direction of the links of all stores carries.
fn through_stores(setting: &Setting) -> f64 {
    match (setting.way, setting.coder) {
        // The metadata server, which has the link of a store, gets the record and sends it on.
        (Way::Inline, _) | (Way::Stripe, Coder::Here) => setting.distributed_bytes(),
        // The Master gets the record, its slaves the blocks.
        (Way::Stripe, Coder::Master) => setting.record() + setting.distributed_bytes(),
    }
}

/// How long a record keeps each resource busy, in seconds, in the order of [`Resource::ALL`].
/// Those of the stores are means over `stores` of them.
fn demands(constants: &Constants, setting: &Setting, stores: f64) -> [f64; 5] {
    // Without the wire, DD is what sending costs a processor, and DT as well.
    let work = serial::sum(constants, setting, StepTimes::default(), 0.0);
    let coding = work.master + work.parity + work.distribution;
    let (client, master) = match (setting.way, setting.coder) {
        (Way::Stripe, Coder::Here) => (work.client + coding, 0.0),
        (Way::Stripe, Coder::Master) => (work.client + work.transfer, coding),
        (Way::Inline, _) => (work.client, work.distribution),
    };
    let out = match (setting.way, setting.coder) {
        (Way::Stripe, Coder::Here) => setting.distributed_bytes(),
        _ => setting.record(),
    };
    let copies = if setting.way == Way::Inline { setting.slaves() } else { setting.blocks() };
    let written = copies * setting.slave_bytes();
    [
        client / setting.client_cores,
        setting.client_link.wire(out),
        setting.store_link.wire(through_stores(setting)) / stores,
        (master + copies * work.slave) / setting.store_cores / stores,
        setting.disk_bytes_per_second.map_or(0.0, |speed| written / speed) / stores,
    ]
}

/// One client that writes without waiting. It uses the stores of its open sets.
pub fn predict(constants: &Constants, setting: &Setting) -> Pipelined {
    let used = (setting.blocks() * f64::from(setting.open_sets)).min(f64::from(setting.stores));
    let own = demands(constants, setting, used);
    let (limit, seconds) =
        Resource::ALL.into_iter().zip(own).fold((None, 0.0), |(limit, longest), (resource, busy)| {
            if busy > longest { (Some(resource), busy) } else { (limit, longest) }
        });
    let bytes_per_second = if seconds > 0.0 { setting.record() / seconds } else { f64::INFINITY };
    Pipelined { seconds, bytes_per_second, limit, loads: loads(constants, setting, seconds) }
}

/// How busy the resources are when each client writes a record in `seconds`, for example in the
/// total of [`serial::steps`].
pub fn loads(constants: &Constants, setting: &Setting, seconds: f64) -> [Load; 5] {
    let all = demands(constants, setting, f64::from(setting.stores));
    let mut place = 0;
    Resource::ALL.map(|resource| {
        let demand = all[place];
        place += 1;
        let busy = if seconds > 0.0 { (demand / seconds).min(1.0) } else { 0.0 };
        let clients = match resource.is_of_a_client() {
            // Nearly: both sides come from one division.
            true => (busy > 1.0 - 1e-9).then_some(1.0),
            false => (busy > 0.0).then(|| 1.0 / busy),
        };
        Load { resource, seconds: demand, busy, clients }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::setting::tests::USUAL;
    use crate::cost::{Line, Link};

    const LINK: f64 = 1.25e9;

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() <= 1e-9 * a.abs().max(b.abs()), "{a} is not {b}");
    }

    #[test]
    fn the_clients_link_carries_the_parity() {
        let one = predict(&Constants::default(), &USUAL);
        assert_eq!(one.limit, Some(Resource::ClientLink));
        near(one.bytes_per_second, LINK * 4.0 / 6.0);
        // Six links of stores carry what one client's does: full with six clients.
        let (resource, clients) = one.first_full().unwrap();
        assert_eq!(resource, Resource::StoreLink);
        near(clients, 6.0);
        assert_eq!(one.loads[1].clients, Some(1.0));
        assert_eq!((one.loads[0].busy, one.loads[0].clients), (0.0, None));
    }

    #[test]
    fn a_master_leaves_the_clients_link_to_the_data() {
        let one = predict(&Constants::default(), &Setting { coder: Coder::Master, ..USUAL });
        assert_eq!(one.limit, Some(Resource::ClientLink));
        near(one.bytes_per_second, LINK);
        // R in, five blocks of R/4 on: 2.25 R a record through six links.
        near(one.first_full().unwrap().1, 6.0 / 2.25);
    }

    /// One open set uses six of the twelve stores, however fast the client is.
    #[test]
    fn open_sets_limit_a_fast_client() {
        let fast = Setting { client_link: Link::default(), stores: 12, ..USUAL };
        let one = predict(&Constants::default(), &fast);
        assert_eq!(one.limit, Some(Resource::StoreLink));
        near(one.bytes_per_second, 6.0 * LINK * 4.0 / 6.0);
        near(one.first_full().unwrap().1, 2.0);
        for sets in [2, 3, u32::MAX] {
            let more = predict(&Constants::default(), &Setting { open_sets: sets, ..fast });
            near(more.bytes_per_second, 12.0 * LINK * 4.0 / 6.0);
            near(more.first_full().unwrap().1, 1.0);
        }
    }

    #[test]
    fn each_resource_can_be_the_limit() {
        let still = Setting { client_link: Link::default(), store_link: Link::default(), ..USUAL };
        assert_eq!(predict(&Constants::default(), &still).limit, None);
        assert_eq!(predict(&Constants::default(), &still).first_full(), None);
        let work = Line { fixed: 1.0, ..Line::default() };
        for (constants, setting, limit) in [
            (Constants { parity: work, ..Constants::default() }, still, Resource::ClientCpu),
            (
                Constants { parity: work, ..Constants::default() },
                Setting { coder: Coder::Master, ..still },
                Resource::StoreCpu,
            ),
            (Constants { slave: work, ..Constants::default() }, still, Resource::StoreCpu),
            (Constants::default(), Setting { client_link: USUAL.client_link, ..still }, Resource::ClientLink),
            (Constants::default(), Setting { store_link: USUAL.store_link, ..still }, Resource::StoreLink),
            (Constants::default(), Setting { disk_bytes_per_second: Some(1e8), ..still }, Resource::Disk),
        ] {
            let one = predict(&constants, &setting);
            assert_eq!(one.limit, Some(limit));
            for load in one.loads {
                assert_eq!(load.busy == 1.0, load.resource == limit, "{load:?}");
                assert_eq!(load.clients.is_some(), load.resource == limit, "{load:?}");
            }
        }
    }

    #[test]
    fn disks_write_the_parity_too() {
        let still = Setting { client_link: Link::default(), store_link: Link::default(), ..USUAL };
        let disks = Setting { disk_bytes_per_second: Some(1e8), ..still };
        near(predict(&Constants::default(), &disks).bytes_per_second, 6.0 * 1e8 * 4.0 / 6.0);
        // m+2 copies of a record in the metadata.
        let inline = Setting { way: Way::Inline, ..disks };
        near(predict(&Constants::default(), &inline).bytes_per_second, 6.0 * 1e8 / 4.0);
    }

    /// A client that waits for each record makes everything less busy, so more clients fit.
    #[test]
    fn a_serial_client_fills_less() {
        let serial = serial::steps(&Constants::default(), &USUAL).total();
        let waiting = loads(
            &Constants { client: Line { fixed: serial, ..Line::default() }, ..Constants::default() },
            &USUAL,
            2.0 * serial,
        );
        near(waiting[1].busy, 0.5);
        assert_eq!(waiting[1].clients, None);
        near(first_full(&waiting).unwrap().1, 12.0);
    }
}
