//! Monitoring of a server or a mount: metrics in the format of Prometheus, and whether the process
//! lives and can be used.

mod http;
mod meta;
mod process;
mod store;
mod text;
mod volume;

pub use http::{Subject, serve_metrics};
pub use meta::{MetaMetrics, PostMetrics};
pub use store::StoreMetrics;
pub use text::Page;
pub use volume::MountMetrics;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MetaServer;
    use crate::meta_server::Commands;
    use crate::store::{Store, Stores};
    use std::collections::BTreeSet;
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    /// The names of all metrics that a store, a metadata server and a mount export.
    fn exported() -> BTreeSet<String> {
        let place = std::env::temp_dir().join(format!("weft-metrics-{}", std::process::id()));
        let targets = [0, 1, 2].map(|number| place.join(format!("d{number}")));
        let create = fs::Create { chunk_bytes: 8 << 20, ..fs::Create::new("test", "rs:2+1", targets.to_vec()) };
        create.run(&place.join("volume")).unwrap();
        let volume = fs::FileSystem::open_volume(&place.join("volume"), fs::OpenOptions::default()).unwrap();
        let store = place.join("store");
        std::fs::create_dir(&store).unwrap();
        let sessions = fs::Sessions::new(volume.clone(), Duration::from_secs(30));
        let meta = MetaMetrics {
            meta: Arc::new(MetaServer::new(sessions, Commands::new(|_, _, _| Vec::new()))),
            server: Box::new(wire::ServerLoad::default),
            stores: Arc::new(Stores::new(None, None)),
        };
        let mut page = Page::default();
        meta.write(&mut page);
        super::meta::holder(&mut page, true);
        MountMetrics::new(volume.clone(), meta.stores.clone()).write(&mut page);
        StoreMetrics(Arc::new(Store::open(&[store]).unwrap())).write(&mut page);
        volume.close_volume().unwrap();
        std::fs::remove_dir_all(place).unwrap();
        let text = page.finish();
        let kinds = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
        let names = kinds.flat_map(|(name, kind)| match kind {
            "histogram" => ["_bucket", "_sum", "_count"].map(|ending| format!("{name}{ending}")).to_vec(),
            _ => vec![name.to_owned()],
        });
        names.collect()
    }

    /// A panel or an alert for a metric that does not exist would stay silent for ever.
    #[test]
    fn dashboards_and_alerts_name_what_is_told() {
        let all = exported();
        let monitoring = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/monitoring");
        for file in ["weft.rules.yml", "weft.rules.test.yml", "grafana.json"] {
            let text = std::fs::read_to_string(monitoring.join(file)).unwrap();
            let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            let names: BTreeSet<&str> = words.filter(|word| word.starts_with("weft_")).collect();
            assert!(names.len() > 5, "{file}: {names:?}");
            let unknown: Vec<&&str> = names.iter().filter(|name| !all.contains(**name)).collect();
            assert!(unknown.is_empty(), "{file} names what nobody tells: {unknown:?}");
        }
        let grafana = std::fs::read_to_string(monitoring.join("grafana.json")).unwrap();
        serde_json::from_str::<serde_json::Value>(&grafana).unwrap();
    }
}
