//! Writing: `writer` sends transactions to the mirrors, each `mirror` has a thread of its own, and
//! `roster` replaces those that fail.

pub(super) mod answers;
pub(super) mod mirror;
pub(super) mod queue;
pub(super) mod recruit;
pub(super) mod relocate;
pub(super) mod retry;
pub(super) mod roster;
pub(super) mod worker;
pub(super) mod writer;
