//! When what is left over goes: at the start, behind uploads that end, and each hour, with what
//! ends by itself (`lifecycle`).

use crate::failure::answer;
use crate::gateway::Gateway;
use crate::lifecycle;
use objects::now;
use objects::sweep::sweep;
use std::time::{Duration, Instant};

/// How often what is left over, and what ends by itself, is looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(3600);
/// For how long a clock must have gone on as time did before objects end by it: a machine that has
/// just started may not have its time yet.
const STEADY_FOR: Duration = Duration::from_secs(15 * 60);
/// A clock that was set by less than this is steady, in seconds.
const SET_BY: i64 = 15 * 60;

impl Gateway {
    /// Removes what is left of uploads, without anybody waiting for it.
    pub fn sweep_soon(&self) {
        let (objects, sweeping) = (self.objects.clone(), self.sweeping.clone());
        drop(tokio::task::spawn_blocking(move || {
            // What another one has passed by, and what fails, is left to the next.
            if let Ok(_one_at_a_time) = sweeping.try_lock() {
                let _ = sweep(&objects, false, None);
            }
        }));
    }
}

/// Removes what is left over at the start, and each hour, with what ends by itself.
pub async fn sweep_now_and_then(gateway: Gateway, is_alone: bool, expire: Option<Duration>) {
    // What fails now is tried again in an hour.
    let _ = gateway.beside(move |objects| sweep(objects, is_alone, None).map_err(answer)).await;
    loop {
        let (since, began) = (Instant::now(), now().seconds);
        tokio::time::sleep(STEADY_FOR).await;
        end_what_is_old(&gateway, since, began, expire).await;
        tokio::time::sleep(SWEEP_EVERY.saturating_sub(STEADY_FOR)).await;
    }
}

/// Ends what ends by itself, if the clock went on as time did since it showed `began`.
async fn end_what_is_old(gateway: &Gateway, since: Instant, began: i64, expire: Option<Duration>) {
    let (start, now) = (Instant::now(), now().seconds);
    if !is_steady(start - since, now.saturating_sub(began)) {
        tracing::warn!("the clock was set: lifecycle rules and uploads that expire wait for an hour");
        return;
    }
    let expire = expire.map(|expire| expire.as_secs());
    let _ = gateway.beside(move |objects| sweep(objects, false, expire).map_err(answer)).await;
    // If the clock is set meanwhile, this one goes on as before.
    let clock = move || now.saturating_add_unsigned(start.elapsed().as_secs());
    let listings = gateway.listings.clone();
    match gateway.beside(move |objects| lifecycle::run(objects, &listings, &clock)).await {
        Ok(done) => {
            if done.ended > 0 {
                tracing::info!("lifecycle rules removed {} objects and uploads", done.ended);
            }
            if let Some((bucket, why)) = done.failed {
                tracing::warn!("lifecycle rules of the bucket {bucket} failed: {why}");
            }
        }
        Err(why) => tracing::warn!("lifecycle rules failed: {why}"),
    }
}

/// Whether a clock kept time: while `passed` passed, it went on by `by_clock` seconds. One that was
/// set meanwhile, or is wrong since the machine started, would end objects too early.
fn is_steady(passed: Duration, by_clock: i64) -> bool {
    by_clock.abs_diff(passed.as_secs().cast_signed()) < SET_BY.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_set_is_not_steady() {
        let hour = Duration::from_secs(3600);
        assert!(is_steady(hour, 3600) && is_steady(hour, 3500) && is_steady(hour, 3700));
        let days = 40 * 24 * 3600;
        assert!(!is_steady(hour, 3600 + SET_BY) && !is_steady(hour, -days) && !is_steady(hour, i64::MAX));
    }
}
