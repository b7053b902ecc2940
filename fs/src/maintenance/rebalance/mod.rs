//! Rebalancing: chunks of sealed sets move to other targets, so that new targets are filled, all
//! are equally full by ratio, and sets obey the rule about domains. [`plan::placement::rebalance`]
//! decides; nothing is remembered of a plan, so one that goes on begins with a new plan.
//!
//! A chunk is copied, checked on the way, and rebuilt from others if it is bad; the copy is durable
//! before the one transaction that names it, and the old chunk is removed after that. Redundancy is
//! never lower. A crash leaves a chunk that nothing names, which the next opening removes.

mod course;
mod moves;
mod spaces;
mod state;
mod watch;

pub use course::Forecast;
pub(crate) use state::Rebalancing;
pub use state::{DEFAULT_LIMIT, Doing, RebalanceSetting, RebalanceStatus, Rebalanced};
pub(crate) use watch::watch;
