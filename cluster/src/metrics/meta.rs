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
        process::write(page);
        store::server(page, (self.server)());
        volume_of(page, &self.meta, &self.stores);
        stores(page, &self.stores);
    }

    fn ready(&self) -> Result<(), String> {
        volume::usable(self.meta.volume())
    }
}

/// The metrics of one volume.
fn volume_of(page: &mut Page, meta: &MetaServer, known: &Stores) {
    let open = meta.volume();
    let operations: Vec<_> = meta.operations().collect();
    let mut requests = page.counter("weft_meta_requests_total", "Requests that were answered.");
    operations.iter().for_each(|(name, o)| _ = requests.count(&[("operation", name)], o.time.now().count()));
    let mut failures = page.counter("weft_meta_request_failures_total", "Requests that were not carried out.");
    operations.iter().for_each(|(name, o)| _ = failures.count(&[("operation", name)], o.failures()));
    let mut times = page.histogram("weft_meta_request_seconds", "From the end of a request to its answer.");
    operations.iter().for_each(|(name, o)| _ = times.times(&[("operation", name)], &o.time.now()));
    page.gauge("weft_meta_clients", "Clients with a session.").count(&[], meta.clients() as u64);
    volume::reads(page, open);
    volume::write_cost(page, &open.write_cost());
    volume::targets(page, open);
    volume::repairs(page, open);
    volume::defects(page, open, known);
    volume::census(page, open);
}

/// The metrics of a metadata server that has its volumes or stands by.
pub struct PostMetrics {
    /// The name of each volume, and its post.
    pub posts: Vec<(String, Arc<Post>)>,
    /// Returns the load of its connections.
    pub server: Box<dyn Fn() -> wire::ServerLoad + Send + Sync>,
    /// The stores of its volumes.
    pub stores: Arc<Stores>,
}

/// Whether a server has a volume or stands by.
pub(super) fn holder(page: &mut Page, has: bool) {
    let mut family = page.gauge("weft_meta_holder", "Whether this server has the volume: 1, or 0 if it stands by.");
    family.count(&[], has.into());
}

impl Subject for PostMetrics {
    fn write(&self, page: &mut Page) {
        process::write(page);
        store::server(page, (self.server)());
        for (name, post) in &self.posts {
            // One volume needs no name.
            page.set_volume(Some(name.as_str()).filter(|_| self.posts.len() > 1));
            let open = post.open();
            holder(page, open.is_some());
            open.inspect(|meta| volume_of(page, meta, &self.stores));
        }
        page.set_volume(None);
        if self.posts.iter().any(|(_, post)| post.open().is_some()) {
            stores(page, &self.stores);
        }
    }

    fn ready(&self) -> Result<(), String> {
        let ready = |post: &Post| match post.open() {
            Some(meta) => volume::usable(meta.volume()),
            None if post.standings().holder.is_some() => Ok(()),
            None => Err("no metadata server has the volume".into()),
        };
        let named = |name: &str, why: String| if self.posts.len() > 1 { format!("{name}: {why}") } else { why };
        self.posts.iter().try_for_each(|(name, post)| ready(post).map_err(|why| named(name, why)))
    }
}

/// The latest reports of the stores. For a store that is silent now only the fact that it is down
/// is reported.
fn stores(page: &mut Page, known: &Stores) {
    let all: Vec<(String, Seen)> = known.reports.all().into_iter().collect();
    let (primes, themselves) = known.report_requests();
    let mut requests = page.counter(
        "weft_meta_report_requests_total",
        "Requests for reports: of a cabinet from its prime, or of one store.",
    );
    requests.count(&[("of", "cabinet")], primes);
    requests.count(&[("of", "store")], themselves);
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
