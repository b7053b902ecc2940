//! One program for all tests: each of its own would link all of it again.

mod doors;
mod integration;
mod lab;
mod promises;
