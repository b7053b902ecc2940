//! Whether a value of a file is within its bounds, and one line that says so.

/// Nothing, or what is wrong.
pub type Checked = Result<(), String>;

/// A whole number within bounds.
pub fn whole(name: &str, value: u64, least: u64, most: u64) -> Checked {
    match (least..=most).contains(&value) {
        true => Ok(()),
        false => Err(format!("{name} is {value}, and must be from {least} to {most}")),
    }
}

/// A number within bounds. NaN is refused.
pub fn between(name: &str, value: f64, least: f64, most: f64) -> Checked {
    match (least..=most).contains(&value) {
        true => Ok(()),
        false => Err(format!("{name} is {value}, and must be from {least} to {most}")),
    }
}

/// A mean time in years: 0 for never, else at least an hour.
pub fn at_least(name: &str, years: f64) -> Checked {
    match years == 0.0 || (1e-4..=1e9).contains(&years) {
        true => Ok(()),
        false => Err(format!("{name} is {years}, and must be 0 for never, or from 0.0001 to 1000000000")),
    }
}
