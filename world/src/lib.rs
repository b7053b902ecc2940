//! One world by one seed: all threads of a program run one at a time. At each point where a thread
//! may wait or lose its processor, a seeded scheduler chooses the next one. Time is virtual and
//! jumps when all threads wait. So a program with threads, locks, timeouts and random numbers does
//! the same thing in each run with the same seed.
//!
//! A program that links this crate gets its own definitions of the C functions under `std`:
//! threads, futexes, clocks, sleeping and random bytes (`libc_functions.rs`). They do what the C
//! library does until [`run`] is called, and for threads that do not belong to the world. The
//! program's code does not change.
//!
//! A process of the world is a group of threads ([`Process`]). It can be stopped, and killed: then
//! none of its threads runs again. Its clocks may be wrong.
//!
//! Each run takes a process of the operating system for itself: numbers of threads and memory that
//! a run leaves behind would change the next one.
//!
//! This crate is for simulations only, and no program for users links it. Linux with glibc only.

mod allocator;
mod dice;
mod libc_functions;
mod process;
mod real;
mod state;
mod trace;
mod turn;

pub use allocator::Preempting;
pub use dice::Dice;
pub use libc_functions::{boot_time, monotonic_time};
pub use process::Process;
pub use turn::{Options, atomically, fail, live, note, now, pause, roll, run, trace};
