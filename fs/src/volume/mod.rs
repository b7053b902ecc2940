//! A volume: how it is made, found and opened, what its label says, which targets it has, and how it is.

pub mod create;
pub mod find;
pub mod history;
pub mod label;
pub mod opened;
pub mod places;
pub mod warnings;
