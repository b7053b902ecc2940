//! Single files: old fragments, and power losses and faults at every operation.

mod golden;
mod lab;
