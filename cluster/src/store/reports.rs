//! What the stores that this process talks to tell of themselves. It asks each of them every so often, over the connections that there are anyway: stores are
//! passive, and whoever wants to know asks. One that does not answer keeps nobody waiting.

use super::protocol::method;
use super::remote::Stores;
use plan::report::{Load, Report};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use wire::Client;

/// What is known of a store.
#[derive(Clone, Debug)]
pub struct Seen {
    /// What it told last.
    pub report: Report,
    /// How busy it was between that and the report before.
    pub load: Option<Load>,
    /// When it told.
    pub when: Instant,
    /// Why it told nothing when it was asked last; None when it did.
    pub silent: Option<String>,
}

/// What all of them told last.
#[derive(Debug, Default)]
pub struct Reports(Mutex<BTreeMap<String, Seen>>);

impl Reports {
    /// By the addresses of the servers. A store that never answered is not among them.
    pub fn all(&self) -> BTreeMap<String, Seen> {
        self.seen().clone()
    }

    fn seen(&self) -> MutexGuard<'_, BTreeMap<String, Seen>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn told(&self, server: &str, told: Result<Report, String>) {
        let mut all = self.seen();
        match told {
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

/// Asks all stores every `pause`, as long as somebody has `stores`.
pub fn watch(stores: &Arc<Stores>, pause: Duration) {
    let stores = Arc::downgrade(stores);
    crate::runtime().spawn(ask_all(stores, pause));
}

async fn ask_all(stores: Weak<Stores>, pause: Duration) {
    loop {
        {
            let Some(stores) = stores.upgrade() else { return };
            let sessions: Option<Arc<[u8]>> = stores.living_sessions().map(Arc::from);
            for (server, client) in stores.clients() {
                let (reports, sessions) = (stores.reports.clone(), sessions.clone());
                tokio::spawn(async move {
                    let tell = async {
                        if let Some(sessions) = sessions {
                            // A store that does not hear of it now does the next time; an older one knows no such message.
                            let _ = client.call(method::FENCE, &sessions, &[], pause).await;
                        }
                    };
                    let (report, ()) = tokio::join!(ask(&client, pause), tell);
                    reports.told(&server, report);
                });
            }
        }
        tokio::time::sleep(pause).await;
    }
}

/// One that takes longer than the pause is asked anew.
async fn ask(client: &Client, patience: Duration) -> Result<Report, String> {
    let answer = client.call(method::REPORT, &[], &[], patience).await.map_err(|why| why.to_string())?;
    postcard::from_bytes(&answer.body).map_err(|_| "it told what cannot be read".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_stays_known_while_a_store_is_silent() {
        let reports = Reports::default();
        let told = |seconds, bytes| Report {
            uptime: Duration::from_secs(seconds),
            received_bytes: bytes,
            ..Report::default()
        };
        reports.told("a", Err("no answer".into()));
        assert!(reports.all().is_empty());
        reports.told("a", Ok(told(1, 100)));
        assert_eq!(reports.all()["a"].load, None);
        reports.told("a", Ok(told(3, 700)));
        assert_eq!(reports.all()["a"].load.as_ref().unwrap().network_bytes_per_second, 300.0);
        reports.told("a", Err("no answer".into()));
        let seen = &reports.all()["a"];
        assert_eq!((seen.report.received_bytes, seen.silent.as_deref()), (700, Some("no answer")));
        reports.told("a", Ok(told(4, 700)));
        assert_eq!(reports.all()["a"].silent, None);
    }
}
