//! The four roles (parEC, section III): the manager hands out work, explorers walk, workers code,
//! the reporter counts. Each is a state machine over messages. What explorers and workers do with
//! files is behind the traits [`Tree`] and [`Craft`].

mod explorer;
mod manager;
mod reporter;
mod worker;

pub use explorer::{Explorer, Found, Tree};
pub use manager::{Manager, Plan};
pub use reporter::{Reporter, Show, line};
pub use worker::{Craft, Made, Worker};
