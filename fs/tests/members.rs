//! Clients that are no honest ones: what they say in well-formed requests is not believed.

mod lab;

use fs::{Answer, Caller, Recall, Request, Secret, Sessions};
use lab::cluster::{Cluster, lock};
use lab::{content, make, pattern};
use meta::port::{Call, Port, Remote, Session, Welcome};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A client that asks what it likes.
struct Member {
    server: Arc<Sessions>,
    caller: Caller,
}

impl Call for Member {
    fn call(&self, operation: u16, arguments: &[u8]) -> meta::Result<Vec<u8>> {
        let recall: Recall = Arc::new(|_: &[fs::Question]| ());
        match self.server.answer_request(&self.caller, &recall, operation, arguments, Request::default()).0 {
            Answer::Done(answer) => Ok(answer),
            other => Err(meta::Error::Unavailable(format!("{other:?}"))),
        }
    }
}

fn member(cluster: &Cluster, session: Option<u64>) -> Remote<Member> {
    Remote(Member { server: lock(&cluster.server).clone().expect("it runs"), caller: Caller::trusted(session) })
}

fn join(cluster: &Cluster) -> (Remote<Member>, Welcome) {
    let welcome = member(cluster, None).begin(None, "mallory".into(), Vec::new()).unwrap();
    (member(cluster, Some(welcome.session)), welcome)
}

#[test]
fn a_session_is_its_clients_alone() {
    let cluster = Cluster::new("rs:2+1", 3);
    let (a, b) = (join(&cluster).1, join(&cluster).1);
    let own = |welcome: &Welcome, secret: &Secret, peer: Option<&str>| {
        lock(&cluster.server).as_ref().unwrap().caller(welcome.session, secret, peer).is_some()
    };
    let all = |when: &str| {
        assert!(own(&a, &a.secret, None) && own(&b, &b.secret, None), "{when}");
        assert!(!own(&a, &b.secret, None) && !own(&a, &Secret::default(), None), "{when}");
        assert!(!own(&a, &a.secret, Some("laptop")), "{when}");
    };
    all("at first");
    cluster.kill();
    cluster.start();
    all("after a restart");
    // In its own session a client cannot begin another's, nor one that there never was.
    for other in [a.session, b.session + 1, u64::MAX - 1, u64::MAX, 0] {
        assert!(member(&cluster, Some(b.session)).begin(Some(other), "mallory".into(), Vec::new()).is_err(), "{other}");
        assert!(member(&cluster, None).begin(Some(other), "mallory".into(), Vec::new()).is_err(), "{other}");
    }
    let next = join(&cluster).1.session;
    assert!(next > b.session && next < u64::MAX / 2, "the counter goes on: {next}");
}

/// After a restart the server hears from its clients which sets they have.
#[test]
fn nobody_takes_up_the_sets_of_another() {
    let cluster = Cluster::new("rs:2+1", 3);
    let (mallory, welcome) = join(&cluster);
    let (victim, wire) = cluster.wired_client("victim");
    let own: Vec<u64> = mallory.new_sets(1, &[], &[]).unwrap().iter().map(|(set, _)| *set).collect();
    let ino = make(&victim, "file");
    victim.open(ino, true).unwrap();
    victim.write(ino, 0, &pattern(1, 300_000)).unwrap();
    victim.sync(ino).unwrap();
    let sets = |extents: Vec<plan::Extent>| {
        let place = |extent: plan::Extent| match extent.place {
            plan::Place::Stripe(span) => Some(span.set),
            _ => None,
        };
        extents.into_iter().filter_map(place).collect::<Vec<_>>()
    };
    let theirs = sets(mallory.extents(ino, 0..u64::MAX).unwrap());
    assert!(!theirs.is_empty());
    wire.cut.store(true, Ordering::SeqCst);
    drop(mallory);
    cluster.kill();
    cluster.start();
    let all = [own.clone(), theirs.clone()].concat();
    let kept =
        member(&cluster, Some(welcome.session)).begin(Some(welcome.session), "mallory".into(), all).unwrap().kept;
    assert_eq!(kept, own);
    let sealed = member(&cluster, Some(welcome.session)).seal_set(theirs[0], 0);
    assert!(sealed.is_err(), "{sealed:?}");
    wire.cut.store(false, Ordering::SeqCst);
    // The victim still has them.
    victim.write(ino, 300_000, &pattern(2, 300_000)).unwrap();
    victim.sync(ino).unwrap();
    assert!(content(&victim, ino).unwrap() == [pattern(1, 300_000), pattern(2, 300_000)].concat());
    victim.close(ino);
    victim.close_volume().unwrap();
}
