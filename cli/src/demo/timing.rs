//! How long the steps of the demo take.

use crate::failure::Failure;
use crate::show;
use std::time::{Duration, Instant};

pub(crate) fn timed<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<(Duration, T), Failure> {
    let begun = Instant::now();
    let result = work()?;
    Ok((begun.elapsed(), result))
}

pub(crate) fn speed(bytes: u64, time: Duration) -> String {
    format!("{}, {}", show::time(time), show::rate(bytes, time))
}
