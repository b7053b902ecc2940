//! What an operator's monitoring asks of a server or a mount: numbers in the format of Prometheus, whether it lives, whether it can be used.

mod http;
mod meta;
mod process;
mod store;
mod text;
mod volume;

pub use http::{Subject, serve_metrics};
pub use meta::MetaMetrics;
pub use store::StoreMetrics;
pub use text::Page;
pub use volume::MountMetrics;
