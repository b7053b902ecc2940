//! A volume: how it is made, found and opened, what its label says, which targets it has, and how it is.

pub mod find;
pub mod history;
pub mod label;
pub mod open;
pub mod places;
pub mod status;
pub mod targets;
pub mod topology;
pub mod warnings;
