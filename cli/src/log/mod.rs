//! Log messages of the libraries go to standard error, as warnings do: for example, what a server
//! says of clients that do what they must not. With the feature `otlp`, spans go to a collector.

#[cfg(feature = "otlp")]
mod otlp;

use crate::show;
use std::fmt::{Debug, Write};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Prints warnings and errors. There are no spans.
struct Printer;

/// Ends with the process.
#[derive(Default)]
pub struct Log {
    #[cfg(feature = "otlp")]
    _spans: Option<otlp::Spans>,
}

/// Prints all log messages of this process, and sends its spans where the environment asks for it.
pub fn begin() -> Log {
    #[cfg(feature = "otlp")]
    if let Some(spans) = otlp::begin() {
        return Log { _spans: Some(spans) };
    }
    // Only who was faster prints, which is as good.
    let _ = tracing::subscriber::set_global_default(Printer);
    Log::default()
}

/// The library of the S3 gateway says each request that it refuses; the client learns that, and
/// what fails here is said by the gateway.
fn is_printed(metadata: &Metadata<'_>) -> bool {
    metadata.is_event() && *metadata.level() <= Level::WARN && !metadata.target().starts_with("s3s")
}

/// What an event says. It is one line, even if a client supplied other text.
fn line(event: &Event<'_>) -> String {
    let mut line = Line::default();
    event.record(&mut line);
    let plain = |c: char| if c.is_control() { '?' } else { c };
    (line.fields + &line.message).chars().map(plain).collect()
}

/// A line of an event: what it says, then its fields.
#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        let _ = write!(self.fields, "{} {value}: ", field.name());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            let _ = write!(self.message, "{value:?}");
        } else {
            let _ = write!(self.fields, "{} {value:?}: ", field.name());
        }
    }
}

impl Subscriber for Printer {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        is_printed(metadata)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        show::warning(line(event));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
