//! Log messages of the libraries go to standard error, as warnings do: for example, what a server
//! says of clients that do what they must not.

use crate::show;
use std::fmt::{Debug, Write};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Prints warnings and errors. There are no spans.
struct Printer;

/// Prints all log messages of this process.
pub fn begin() {
    // Only who was faster prints, which is as good.
    let _ = tracing::subscriber::set_global_default(Printer);
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
        metadata.is_event() && *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        // One line, even if a client supplied other text.
        let plain = |c: char| if c.is_control() { '?' } else { c };
        show::warning((line.fields + &line.message).chars().map(plain).collect::<String>());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
