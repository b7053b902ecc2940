//! The report of an archive job at its end (P6). It takes facts and gives figures, text, JSON and a
//! page.
//!
//! The engine fills [`Facts`] and knows nothing of their presentation; nothing here touches a job.

mod bounded;
pub mod charts;
#[cfg(test)]
mod example;
mod facts;
mod figures;
pub mod page;
mod scale;
mod text;
pub mod words;

pub use bounded::{Listed, MAX_INTERVALS, MAX_LINES, MAX_SPANS, Series, SizeClass, Sizes, Span, Timeline};
pub use facts::{Ending, Facts, Phase, Task, Worker, Written};
pub use figures::{Figures, Finish};
pub use page::page;
pub use text::text;

/// The facts and their figures, as one document.
pub fn json(facts: &Facts) -> serde_json::Value {
    serde_json::json!({ "facts": facts, "figures": Figures::of(facts) })
}
