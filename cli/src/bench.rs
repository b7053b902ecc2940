//! Measurements; the commands come with the benchmark suite.
