//! Limits on how many operations may wait or run at a time. No member of the cluster gets more than
//! half of the places: a member that sends too much waits or is refused, and the others are not
//! affected.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of known members. Beyond it, members without an operation are forgotten.
const MAX_MEMBERS: usize = 256;

/// The places for operations of one kind.
#[derive(Debug)]
pub(crate) struct Shares {
    places: usize,
    all: Arc<Semaphore>,
    /// Each member's share, which is half of the places.
    members: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// A place; dropping it frees it.
#[derive(Debug)]
pub(crate) struct Permit {
    _share: Option<OwnedSemaphorePermit>,
    _one: OwnedSemaphorePermit,
}

impl Shares {
    pub fn new(places: usize) -> Self {
        Self { places, all: Arc::new(Semaphore::new(places)), members: Mutex::default() }
    }

    /// Waits for a place. A member first waits for its own share, where it delays no other member.
    /// Without certificates members have no names, and so no shares.
    pub async fn take(&self, member: Option<&str>) -> Permit {
        let of = async |semaphore: Arc<Semaphore>| semaphore.acquire_owned().await.expect("limits are never closed");
        let share = match member {
            Some(name) => Some(of(self.share(name)).await),
            None => None,
        };
        Permit { _share: share, _one: of(self.all.clone()).await }
    }

    /// Takes a place if one is free now. As [`Self::take`] for members without names.
    pub fn try_take(&self, member: Option<&str>) -> Option<Permit> {
        let share = match member {
            Some(name) => Some(self.share(name).try_acquire_owned().ok()?),
            None => None,
        };
        Some(Permit { _share: share, _one: self.all.clone().try_acquire_owned().ok()? })
    }

    /// Number of places in use.
    pub fn taken(&self) -> usize {
        self.places - self.all.available_permits()
    }

    fn share(&self, name: &str) -> Arc<Semaphore> {
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = members.get(name) {
            return share.clone();
        }
        if members.len() >= MAX_MEMBERS {
            // A share in use has an owner besides this map.
            members.retain(|_, share| Arc::strong_count(share) > 1);
        }
        let share = Arc::new(Semaphore::new(self.places.div_ceil(2)));
        members.insert(name.to_owned(), share.clone());
        share
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const PLACES: usize = 8;

    fn all_of(shares: &Shares, member: Option<&str>) -> Vec<Permit> {
        std::iter::from_fn(|| shares.try_take(member)).take(PLACES + 1).collect()
    }

    #[test]
    fn a_member_has_half_of_the_places_at_most() {
        let shares = Shares::new(PLACES);
        let mut greedy = all_of(&shares, Some("greedy"));
        assert_eq!((greedy.len(), shares.taken()), (PLACES / 2, PLACES / 2));
        let modest = shares.try_take(Some("modest")).expect("there are places for others");
        greedy.pop();
        greedy.push(shares.try_take(Some("greedy")).expect("what is done frees its place"));
        assert!(shares.try_take(Some("greedy")).is_none());
        drop((greedy, modest));
        assert_eq!(shares.taken(), 0);
    }

    #[test]
    fn members_without_names_may_have_all_places_and_names_are_forgotten() {
        let shares = Shares::new(PLACES);
        let all = all_of(&shares, None);
        assert_eq!(all.len(), PLACES);
        assert!(shares.try_take(Some("late")).is_none());
        drop(all);
        let kept = shares.try_take(Some("kept"));
        for number in 0..3 * MAX_MEMBERS {
            assert!(shares.try_take(Some(&number.to_string())).is_some());
        }
        let members = shares.members.lock().unwrap();
        assert!(kept.is_some() && members.len() <= MAX_MEMBERS && members.contains_key("kept"));
    }

    #[tokio::test]
    async fn a_member_waits_for_its_own_share() {
        let shares = Shares::new(4);
        let waits = async |name| tokio::time::timeout(Duration::from_millis(20), shares.take(name)).await.is_err();
        let first = [shares.take(Some("a")).await, shares.take(Some("a")).await];
        assert!(waits(Some("a")).await);
        let others = [shares.take(Some("b")).await, shares.take(None).await];
        assert!(waits(None).await && waits(Some("b")).await);
        drop((first, others));
        drop(shares.take(Some("a")).await);
        assert_eq!(shares.taken(), 0);
    }
}
