//! One program for most tests: each of its own would compile and link all of it again.

#[path = "../harness/mod.rs"]
mod harness;

mod calls;
mod certificates;
mod connections;
mod direct;
mod hostile;
mod streams;
