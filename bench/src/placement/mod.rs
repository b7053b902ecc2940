//! What `weft bench placement` measured, as text, figures and a page: pure functions of the result.

mod csv;
mod page;
mod result;
mod study;
mod text;

pub use csv::csv;
pub use page::html;
pub use result::{Held, How, KIND, Load, Measurement, Reached, Round, Scenario, VERSION};
pub use study::{PUBLISHED, Published};
pub use text::text;

#[cfg(test)]
mod tests;
