//! Requests the reports of the stores that this process uses at regular intervals, over existing
//! connections: stores are passive, and every process that wants reports requests them. A store
//! that does not answer delays nothing.

use super::gather::Rounds;
use super::protocol::method;
use super::remote::Stores;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The longest time between two fences. In a store that has just started, writes wait for one.
const FENCE_INTERVAL: Duration = Duration::from_secs(1);

/// Requests the reports of all stores every `pause`, as long as `stores` is in use, and tells them
/// the live sessions, if those are known.
pub fn watch(stores: &Arc<Stores>, pause: Duration) {
    let mut rounds = Rounds::default();
    let ask_all = move |stores: &Stores, pause| rounds.ask_all(stores, pause);
    crate::runtime().spawn(every(pause, Arc::downgrade(stores), ask_all));
    crate::runtime().spawn(every(pause.min(FENCE_INTERVAL), Arc::downgrade(stores), tell_all));
}

/// Does a round every `pause`. A panic ends its round only.
async fn every(pause: Duration, stores: Weak<Stores>, mut round: impl FnMut(&Stores, Duration)) {
    while let Some(stores) = stores.upgrade() {
        stores.caught("asking the stores", |line| tracing::warn!("{line}"), || round(&stores, pause));
        drop(stores);
        tokio::time::sleep(pause).await;
    }
}

fn tell_all(stores: &Stores, pause: Duration) {
    for sessions in stores.living_sessions().into_iter().map(Arc::<[u8]>::from) {
        for (_, client) in stores.clients() {
            let sessions = sessions.clone();
            // A store that misses this message gets the next one. An older store does not know it.
            tokio::spawn(async move { client.call(method::FENCE, &sessions, &[], pause).await });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_panic_ends_its_round_only() {
        let stores = Arc::new(Stores::new(None, None));
        let (sender, rounds) = mpsc::channel();
        stores.tell_of_sessions([0; 16], move || {
            sender.send(()).unwrap();
            panic!("a defect");
        });
        watch(&stores, Duration::from_millis(1));
        (0..3).for_each(|_| rounds.recv_timeout(Duration::from_secs(60)).unwrap());
        // The third may not be counted yet.
        assert!(stores.reports.defects() >= 2);
    }
}
