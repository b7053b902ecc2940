//! On which targets a chunk set goes: a [`Policy`] says which it would rather have, and what is
//! here sees to the rules, whatever it says.
//!
//! The rules: distinct targets, only such as take data and have space, and no failure domain with
//! more than m chunks of a set, so that the loss of any one domain loses nothing. Where there are
//! too few domains for that, the fullest has as few as can be. Targets are distinct but where a
//! volume that may share them has too few.
//!
//! - [`Random`], [`RoundRobin`], [`Crush`] look at no load; [`Adaptive`] and [`Prime`] do: they
//!   compare [`score`]s, into which the [`temperature`] goes.
//! - [`Placer`] is [`Adaptive`] for clusters of any size: it keeps what it knows between sets.
//! - [`Observer`] makes the loads that they look at from what servers report.
//! - [`explain()`] says why a set goes where it goes.
//! - [`share()`] puts several chunks of a set on one target, in volumes that may have too few.
//! - [`rebalance`](mod@rebalance) says which chunks move when targets come, go or fill up.

mod adaptive;
mod candidate;
mod choose;
mod crush;
mod explain;
mod lottery;
mod name;
mod observer;
mod placer;
mod policies;
mod policy;
mod prime;
pub mod rebalance;
pub mod score;
mod share;
mod spread;
pub mod temperature;

pub use adaptive::{Adaptive, Tuning};
pub use candidate::{Load, TargetCandidate};
pub(crate) use choose::{Place, place_of};
pub use choose::{Rules, least_limit_of, place, place_more};
pub use crush::Crush;
pub use explain::{Explanation, Reason, Verdict, explain};
pub use name::{Placement, PolicyName, Scoring};
pub use observer::{Observed, Observer, TargetLoad};
pub use placer::{Placer, Report};
pub(crate) use policies::mix;
pub use policies::{Random, RoundRobin};
pub use policy::{Policy, View};
pub use prime::{Prime, algorithm_1};
pub use share::{
    blocks_needed, is_shared, most_on_one, share, share_lost, survived_when_shared, taken_by_domains, targets_survived,
};
pub use spread::{open_sets, place_beside};

#[cfg(test)]
mod tests;
