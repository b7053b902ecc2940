//! How many requests may wait, or be carried out, at a time: so many in all, and no member of the cluster has more than half of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Members that are remembered before those without a request are forgotten.
const MEMBERS: usize = 256;

/// The places for requests of a kind.
pub(super) struct Shares {
    all: Arc<Semaphore>,
    /// What a member has at most.
    half: usize,
    /// What the members have left of that.
    members: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// A place, until it is dropped.
pub(super) struct Place {
    _member: Option<OwnedSemaphorePermit>,
    _all: OwnedSemaphorePermit,
}

impl Shares {
    pub fn new(places: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(places)), half: places.div_ceil(2), members: Mutex::default() }
    }

    /// Waits for a place. A member waits for its own share first, so that it is in nobody's way. Who has no name, as nobody has without certificates, has no share.
    pub async fn take(&self, member: Option<&str>) -> Place {
        let of = async |semaphore: Arc<Semaphore>| semaphore.acquire_owned().await.expect("limits are never closed");
        let own = match member {
            Some(name) => Some(of(self.share(name)).await),
            None => None,
        };
        Place { _member: own, _all: of(self.all.clone()).await }
    }

    fn share(&self, name: &str) -> Arc<Semaphore> {
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = members.get(name) {
            return share.clone();
        }
        if members.len() >= MEMBERS {
            // Who has a place, or waits for one, has the share, too.
            members.retain(|_, share| Arc::strong_count(share) > 1);
        }
        let share = Arc::new(Semaphore::new(self.half));
        members.insert(name.to_owned(), share.clone());
        share
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn a_member_has_half_of_it_at_most() {
        let shares = Shares::new(4);
        let is_full = async |name| tokio::time::timeout(Duration::from_millis(20), shares.take(name)).await.is_err();
        let first = [shares.take(Some("a")).await, shares.take(Some("a")).await];
        assert!(is_full(Some("a")).await);
        let other = shares.take(Some("b")).await;
        let nameless = shares.take(None).await;
        assert!(is_full(None).await && is_full(Some("b")).await);
        drop(first);
        let third = shares.take(None).await;
        drop((other, nameless, third));
        drop(shares.take(Some("a")).await);
        assert_eq!(shares.all.available_permits(), 4);
        for number in 0..3 * MEMBERS {
            drop(shares.take(Some(&number.to_string())).await);
        }
        assert!(shares.members.lock().unwrap().len() <= MEMBERS);
    }
}
