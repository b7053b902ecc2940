//! Metrics of a storage server.

use super::http::Subject;
use super::text::Page;
use super::{process, text::Label};
use crate::store::Store;
use std::sync::Arc;

/// The metrics of a store.
pub struct StoreMetrics(pub Arc<Store>);

impl Subject for StoreMetrics {
    fn write(&self, page: &mut Page) {
        let store = &self.0;
        process::write(page);
        let operations: Vec<_> = store.operations().collect();
        let of = |name: &'static str| -> [Label<'static>; 1] { [("operation", name)] };
        let mut requests = page.counter("weft_store_requests_total", "Requests that were answered.");
        operations.iter().for_each(|(name, o)| _ = requests.count(&of(name), o.time.now().count()));
        let mut failures =
            page.counter("weft_store_request_failures_total", "Requests that were answered with an error.");
        operations.iter().for_each(|(name, o)| _ = failures.count(&of(name), o.failures()));
        let mut bytes = page.counter("weft_store_bytes_total", "Data that requests brought or took.");
        let moving = operations.iter().filter(|(name, _)| matches!(*name, "read" | "write" | "distribute"));
        moving.for_each(|(name, o)| _ = bytes.count(&of(name), o.bytes()));
        let mut times = page.histogram("weft_store_request_seconds", "From the end of a request to its answer.");
        operations.iter().for_each(|(name, o)| _ = times.times(&of(name), &o.time.now()));
        // For the stripes that this store coded as Master.
        super::volume::write_cost(page, &store.write_cost());
        server(page, store.server_load());
        let targets = store.report().targets;
        let mut queue =
            page.gauge("weft_store_queue_operations", "Operations that a target does, and that wait for it.");
        targets.iter().for_each(|t| _ = queue.count(&[("target", &t.name)], t.queued.into()));
        let mut up = page.gauge("weft_store_target_up", "Whether a target reports its space.");
        let domain = store.domain().map_or_else(String::new, ToString::to_string);
        for target in &targets {
            let path = store.path_of(&target.name).map_or_else(String::new, |path| path.to_string_lossy().into_owned());
            let labels = [("target", &*target.name), ("path", &*path), ("domain", &*domain)];
            up.count(&labels, target.space.is_some().into());
        }
        let mut size = page.gauge("weft_store_target_size_bytes", "Space on the file system of a target.");
        for (t, space) in targets.iter().filter_map(|t| Some((t, t.space?))) {
            size.count(&[("target", &t.name)], space.0);
        }
        let mut free = page.gauge("weft_store_target_free_bytes", "Free space on the file system of a target.");
        for (t, space) in targets.iter().filter_map(|t| Some((t, t.space?))) {
            free.count(&[("target", &t.name)], space.1);
        }
    }

    /// Ready means: at least one directory is a target that answers, or none is a target yet.
    fn ready(&self) -> Result<(), String> {
        let targets = self.0.report().targets;
        if targets.iter().any(|target| target.space.is_some()) || self.0.is_blank() {
            return Ok(());
        }
        Err("no target answers".into())
    }
}

/// The metrics of every message server.
pub(super) fn server(page: &mut Page, load: wire::ServerLoad) {
    page.gauge("weft_server_connections", "Connections of clients.").count(&[], load.connections as u64);
    page.gauge("weft_server_request_bytes", "Bytes of requests in memory.").count(&[], load.bytes);
    let refused = "Connections that were refused or ended for what came on them: garbage, a checksum that does not \
        fit, no certificate.";
    page.counter("weft_server_refused_connections_total", refused).count(&[], load.refused);
}
