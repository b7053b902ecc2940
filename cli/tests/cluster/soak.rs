use std::time::Duration;
pub fn time() -> Duration {
    Duration::from_secs(std::env::var("WEFT_SOAK_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(30))
}
