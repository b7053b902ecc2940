//! Spans of the write's steps go to an OpenTelemetry collector, over OTLP with HTTP. Whether and
//! where to, the standard variables say: `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_TRACES_SAMPLER` and
//! the others.

use super::{is_printed, line};
use crate::show;
use fs::Warnings;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use std::time::Instant;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::filter::FilterFn;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// The variables that name a collector.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// Prints what is printed without a collector, too. While the collector is away, each attempt to
/// send fails: that is printed once in a while.
struct Printer(Warnings);

impl<S: Subscriber> Layer<S> for Printer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let is_ours = !event.metadata().target().starts_with("opentelemetry");
        let all = line(event);
        if let Some(line) = if is_ours { Some(all) } else { self.0.line(&all, Instant::now()) } {
            show::warning(line);
        }
    }
}

/// The spans of the libraries that send are not among them.
fn is_step(metadata: &Metadata<'_>) -> bool {
    metadata.is_span() && metadata.target().starts_with("volume::")
}

/// Sends what is left when it ends.
pub struct Spans(SdkTracerProvider);

/// Sends the spans of this process to the collector that the environment names; None without one.
pub fn begin() -> Option<Spans> {
    let is_given = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if !ENDPOINTS.into_iter().any(is_given) {
        return None;
    }
    let exporter = match SpanExporter::builder().with_http().build() {
        Ok(exporter) => exporter,
        Err(why) => {
            show::warning(format!("spans are not sent: {why}"));
            return None;
        }
    };
    let resource = Resource::builder().with_service_name("weft").build();
    let provider = SdkTracerProvider::builder().with_resource(resource).with_batch_exporter(exporter).build();
    let spans = tracing_opentelemetry::layer().with_tracer(provider.tracer("weft"));
    let printed = Printer(Warnings::default()).with_filter(FilterFn::new(is_printed));
    let all = tracing_subscriber::registry().with(printed).with(spans.with_filter(FilterFn::new(is_step)));
    let _ = tracing::subscriber::set_global_default(all);
    Some(Spans(provider))
}

impl Drop for Spans {
    fn drop(&mut self) {
        if let Err(why) = self.0.shutdown() {
            show::warning(format!("the last spans are not sent: {why}"));
        }
    }
}
