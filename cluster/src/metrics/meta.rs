//! Metrics of a metadata server: its own requests, its volume, and the reports of its stores.

use super::http::Subject;
use super::text::Page;
use super::{process, store, volume};
use crate::meta_server::{MetaServer, Post};
use crate::store::{Seen, Stores};
use std::sync::Arc;

/// The metrics of a metadata server.
pub struct MetaMetrics {
    /// The metadata server.
    pub meta: Arc<MetaServer>,
    /// Returns the load of its connections.
    pub server: Box<dyn Fn() -> wire::ServerLoad + Send + Sync>,
    /// The stores of its volume.
    pub stores: Arc<Stores>,
}

impl Subject for MetaMetrics {
    fn write(&self, page: &mut Page) {
        write(page, &self.meta, (self.server)(), &self.stores);
    }

    fn ready(&self) -> Result<(), String> {
        volume::usable(self.meta.volume())
    }
}

fn write(page: &mut Page, meta: &MetaServer, load: wire::ServerLoad, known: &Stores) {
    let open = meta.volume();
    process::write(page);
    let operations: Vec<_> = meta.operations().collect();
    let mut requests = page.counter("weft_meta_requests_total", "Requests that were answered.");
    operations.iter().for_each(|(name, o)| _ = requests.count(&[("operation", name)], o.time.now().count()));
    let mut failures = page.counter("weft_meta_request_failures_total", "Requests that were not carried out.");
    operations.iter().for_each(|(name, o)| _ = failures.count(&[("operation", name)], o.failures()));
    let mut times = page.histogram("weft_meta_request_seconds", "From the end of a request to its answer.");
    operations.iter().for_each(|(name, o)| _ = times.times(&[("operation", name)], &o.time.now()));
    page.gauge("weft_meta_clients", "Clients with a session.").count(&[], meta.clients() as u64);
    store::server(page, load);
    volume::reads(page, open);
    volume::write_cost(page, &open.write_cost());
    volume::targets(page, open);
    volume::repairs(page, open);
    volume::defects(page, open, known);
    volume::census(page, open);
    stores(page, &known.reports.all().into_iter().collect::<Vec<_>>());
}

/// The metrics of a metadata server that has its volume or stands by.
pub struct PostMetrics {
    /// The server.
    pub post: Arc<Post>,
    /// Returns the load of its connections.
    pub server: Box<dyn Fn() -> wire::ServerLoad + Send + Sync>,
    /// The stores of its volume.
    pub stores: Arc<Stores>,
}

impl Subject for PostMetrics {
    fn write(&self, page: &mut Page) {
        let open = self.post.open();
        page.gauge("weft_meta_holder", "Whether this server has the volume: 1, or 0 if it stands by.")
            .count(&[], open.is_some().into());
        match open {
            Some(meta) => write(page, &meta, (self.server)(), &self.stores),
            None => {
                process::write(page);
                store::server(page, (self.server)());
            }
        }
    }

    fn ready(&self) -> Result<(), String> {
        match self.post.open() {
            Some(meta) => volume::usable(meta.volume()),
            None if self.post.standings().holder.is_some() => Ok(()),
            None => Err("no metadata server has the volume".into()),
        }
    }
}

/// The latest reports of the stores. For a store that is silent now only the fact that it is down
/// is reported.
fn stores(page: &mut Page, all: &[(String, Seen)]) {
    let mut up = page.gauge("weft_meta_store_up", "Whether a store answers.");
    all.iter().for_each(|(store, seen)| _ = up.count(&[("store", store)], seen.silent.is_none().into()));
    let loads =
        || all.iter().filter(|(_, seen)| seen.silent.is_none()).filter_map(|(s, seen)| Some((s, seen.load.as_ref()?)));
    let mut idle = page
        .gauge("weft_meta_store_processor_idle_ratio", "The idle share of a store's processors in the last second.");
    loads().for_each(|(store, load)| _ = idle.value(&[("store", store)], load.processor_idle));
    let mut network =
        page.gauge("weft_meta_store_network_bytes_per_second", "Data to and from a store in the last second.");
    loads().for_each(|(store, load)| _ = network.value(&[("store", store)], load.network_bytes_per_second));
    let mut accesses =
        page.gauge("weft_meta_store_accesses", "Reads and writes of a store's targets in the last second.");
    loads().for_each(|(store, load)| _ = accesses.count(&[("store", store)], load.all_accesses()));
}
