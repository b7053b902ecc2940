//! Reports of the stores that this process uses. The process requests them at regular intervals
//! over the existing connections: stores are passive, and every process that wants reports requests
//! them. A store that does not answer delays nothing.

use super::protocol::method;
use super::remote::Stores;
use plan::report::{Load, Report};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use wire::Client;

/// The known state of a store.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its latest report.
    pub report: Report,
    /// Its load between that report and the one before.
    pub load: Option<Load>,
    /// When the latest report arrived.
    pub when: Instant,
    /// Why the last request failed; None when it succeeded.
    pub silent: Option<String>,
}

/// The latest reports of all stores.
#[derive(Debug, Default)]
pub struct Reports {
    seen: Mutex<BTreeMap<String, Seen>>,
    /// The number of panics in asking for them.
    defects: AtomicU64,
}

impl Reports {
    /// The reports by address of the server. A store that never answered is not among them.
    pub fn all(&self) -> BTreeMap<String, Seen> {
        self.seen().clone()
    }

    fn seen(&self) -> MutexGuard<'_, BTreeMap<String, Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of panics in asking the stores and in telling them the live sessions. Both went
    /// on with their next round.
    pub fn defects(&self) -> u64 {
        self.defects.load(Ordering::Relaxed)
    }

    fn reported(&self, server: &str, reported: Result<Report, String>) {
        let mut all = self.seen();
        match reported {
            Ok(report) => {
                let load = all.get(server).and_then(|before| Load::between(&before.report, &report));
                all.insert(server.into(), Seen { report, load, when: Instant::now(), silent: None });
            }
            Err(why) => {
                if let Some(seen) = all.get_mut(server) {
                    seen.silent = Some(why);
                }
            }
        }
    }
}

/// The longest time between two fences. In a store that has just started, writes wait for one.
const FENCE_INTERVAL: Duration = Duration::from_secs(1);

/// Requests the reports of all stores every `pause`, as long as `stores` is in use, and tells them
/// the live sessions, if those are known.
pub fn watch(stores: &Arc<Stores>, pause: Duration) {
    crate::runtime().spawn(every(pause, Arc::downgrade(stores), ask_all));
    crate::runtime().spawn(every(pause.min(FENCE_INTERVAL), Arc::downgrade(stores), tell_all));
}

/// Does a round every `pause`. A panic ends its round only.
async fn every(pause: Duration, stores: Weak<Stores>, round: fn(&Stores, Duration)) {
    while let Some(stores) = stores.upgrade() {
        if catch_unwind(AssertUnwindSafe(|| round(&stores, pause))).is_err() {
            stores.reports.defects.fetch_add(1, Ordering::Relaxed);
            tracing::warn!("a defect in asking the stores, see the message about a panic; please report it");
        }
        drop(stores);
        tokio::time::sleep(pause).await;
    }
}

fn ask_all(stores: &Stores, pause: Duration) {
    for (server, client) in stores.clients() {
        let reports = stores.reports.clone();
        tokio::spawn(async move { reports.reported(&server, ask(&client, pause).await) });
    }
}

fn tell_all(stores: &Stores, pause: Duration) {
    let Some(sessions) = stores.living_sessions().map(Arc::<[u8]>::from) else { return };
    for (_, client) in stores.clients() {
        let sessions = sessions.clone();
        // A store that misses this message gets the next one. An older store does not know it.
        tokio::spawn(async move { client.call(method::FENCE, &sessions, &[], pause).await });
    }
}

/// Requests one report. A store that takes longer than the pause gets a new request.
async fn ask(client: &Client, timeout: Duration) -> Result<Report, String> {
    let answer = client.call(method::REPORT, &[], &[], timeout).await.map_err(|why| why.to_string())?;
    postcard::from_bytes(&answer.body).map_err(|_| "it told what cannot be read".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_panic_ends_its_round_only() {
        let stores = Arc::new(Stores::new(None, None));
        let (sender, rounds) = mpsc::channel();
        stores.tell_of_sessions(move || {
            sender.send(()).unwrap();
            panic!("a defect");
        });
        watch(&stores, Duration::from_millis(1));
        (0..3).for_each(|_| rounds.recv_timeout(Duration::from_secs(60)).unwrap());
        // The third may not be counted yet.
        assert!(stores.reports.defects() >= 2);
    }

    #[test]
    fn what_was_told_stays_known_while_a_store_is_silent() {
        let reports = Reports::default();
        let reported = |seconds, bytes| Report {
            uptime: Duration::from_secs(seconds),
            received_bytes: bytes,
            ..Report::default()
        };
        reports.reported("a", Err("no answer".into()));
        assert!(reports.all().is_empty());
        reports.reported("a", Ok(reported(1, 100)));
        assert_eq!(reports.all()["a"].load, None);
        reports.reported("a", Ok(reported(3, 700)));
        assert_eq!(reports.all()["a"].load.as_ref().unwrap().network_bytes_per_second, 300.0);
        reports.reported("a", Err("no answer".into()));
        let seen = &reports.all()["a"];
        assert_eq!((seen.report.received_bytes, seen.silent.as_deref()), (700, Some("no answer")));
        reports.reported("a", Ok(reported(4, 700)));
        assert_eq!(reports.all()["a"].silent, None);
    }
}
