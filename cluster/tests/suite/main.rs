//! One program for most tests: each of its own would compile and link all of it again. Those that
//! give their process an identity have one of their own.

mod fences;
mod masters;
mod older;
mod posts;
mod primes;
mod report_cost;
