//! A volume: how it is created, found and opened, its label, its targets, and its warnings.

pub mod create;
pub mod find;
pub mod gauge;
pub mod history;
pub mod holder;
pub mod label;
pub mod membership;
pub mod opened;
pub mod places;
pub mod standby;
pub mod stripe_size;
pub mod torus;
pub mod voters;
pub mod warnings;
