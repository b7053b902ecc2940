//! What an archive job says about itself when it ends (P6): facts in, figures, text, JSON and a page out.
//!
//! The engine fills [`Facts`] and knows nothing of how they are shown; nothing here touches a job.

mod bounded;
mod facts;
mod figures;

pub use bounded::{Listed, MOST_INTERVALS, MOST_LINES, MOST_SPANS, Series, SizeClass, Sizes, Span, Timeline};
pub use facts::{Ending, Facts, Phase, Worker, Written};
pub use figures::{Figures, Finish};
