//! The parallel archive encoder (parEC): many files of many trees into a volume, by many workers.

pub mod report;
