//! Single files: old fragments, and power losses and faults at every operation.

mod crash;
mod faults;
mod golden;
mod lab;
mod mortal;
