//! The steps of a write as `tracing` spans.

mod lab;

use lab::{Lab, make, pattern};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use tracing::Subscriber;
use tracing::span::{Attributes, Id};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Registry};

/// The names of spans, each behind those of the spans around it.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<BTreeSet<String>>>);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Seen {
    fn on_new_span(&self, _: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let names = context.span_scope(id).unwrap().from_root().map(|span| span.name()).collect::<Vec<_>>();
        self.0.lock().unwrap().insert(names.join(" "));
    }
}

#[test]
fn each_step_of_a_synced_write_is_a_span_in_the_one_that_waits_for_it() {
    let seen = Seen::default();
    tracing::subscriber::set_global_default(Registry::default().with(seen.clone())).unwrap();
    let mut lab = Lab::new("rs:2+1", 4);
    let fs = lab.open();
    let file = make(&fs, "file");
    fs.write(file, 0, &pattern(1, 1 << 20)).unwrap();
    fs.sync(file).unwrap();
    fs.close_volume().unwrap();
    let seen = seen.0.lock().unwrap();
    for path in [
        "client_tasks metadata_tasks",
        "client_tasks master_process parity_calculation",
        "client_tasks master_process data_distribution slave_process",
        // Of the sync.
        "client_tasks data_distribution slave_process",
    ] {
        assert!(seen.contains(path), "{path} is not among {seen:?}");
    }
}
