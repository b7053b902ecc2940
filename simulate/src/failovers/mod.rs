//! Takeovers, and nothing else: metadata engines of several servers on the same stores, one after
//! the other the holder of the volume. The holder is killed, stopped, cut off or has a full disk,
//! and goes on later; stores lose power or all that they have; clocks are wrong. So a run has many
//! takeovers, and each is checked: nothing that was answered as durable is lost, no request is
//! carried out twice, and there is one history.

mod client;
mod figures;
mod lab;
mod runs;
mod scenario;
mod server;
mod serving;
mod stored;

pub use runs::{one, until};
