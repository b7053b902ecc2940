//! Primes where stores have certificates and the cluster's key: who may ask a store for the reports
//! of others, and that a prime may ask them.

use cluster::capability::{CLOCK_TOLERANCE, Capability, Rights, now_ms};
use cluster::store::watch;
use cluster::{ClusterPlaces, Identity, Members, Store, make_identities, use_identity};
use fs::Places as _;
use plan::{SessionId, SetId};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use wire::{Client, ClientOptions, Error, Server, ServerOptions};

const GATHER: u16 = 34;
const REFUSED: u16 = 3;

#[test]
fn servers_may_ask_a_prime_and_clients_may_not() {
    let path = std::env::temp_dir().join(format!("weft-primes-keys-{}", std::process::id()));
    let members = vec![("member".to_string(), vec!["127.0.0.1".to_string()])];
    make_identities(&path.join("ids"), &Members { members, operators: Vec::new() }).unwrap();
    let identity = Identity::at(&path.join("ids/member"));
    use_identity(&identity).unwrap();
    let key = identity.cluster_key().unwrap();
    let places = ClusterPlaces::default();
    places.stores().set_small_cluster(3);
    let servers: Vec<String> = (0..4)
        .map(|number| {
            let disk = path.join(format!("{number}/disk"));
            std::fs::create_dir_all(&disk).unwrap();
            let store = Store::open(&[disk]).unwrap().guarded_by(key.clone(), CLOCK_TOLERANCE);
            let options = ServerOptions { tls: Some(identity.server().unwrap()), ..ServerOptions::default() };
            let server = Server::new(Arc::new(store), options);
            let listener = cluster::runtime().block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
            let address = listener.local_addr().unwrap().to_string();
            cluster::runtime().spawn(async move { server.serve(listener, std::future::pending()).await });
            let place = PathBuf::from(format!("store://{address}/disk"));
            places.format(&place).unwrap();
            places.arrange(&[(place, format!("row/cabinet{}/host{number}", number / 2).parse().unwrap())]);
            address
        })
        .collect();
    // What a client has is no permission.
    let options = ClientOptions { tls: Some(identity.client().unwrap()), ..ClientOptions::default() };
    let client = Client::new(cluster::runtime().handle().clone(), servers[0].as_str(), options);
    let token = |rights| {
        let expires_ms = now_ms() + 600_000;
        key.sign(&Capability { volume: [9; 16], set: SetId(3), rights, session: SessionId::NONE, expires_ms })
    };
    let (writes, all) = (token(Rights::Write), token(Rights::Everything));
    let gather = |token: &[u8], others: &[&str]| {
        // As a metadata server encodes it: token, other stores, milliseconds.
        let body = postcard::to_stdvec(&(token, others, 10_000u32)).unwrap();
        client.call_blocking(GATHER, &body, &[], Duration::from_secs(60))
    };
    for token in [&[][..], writes.as_bytes()] {
        let refused = gather(token, &[&servers[1]]);
        assert!(matches!(refused, Err(Error::Remote { status: REFUSED, .. })), "{refused:?}");
    }
    let answer = gather(all.as_bytes(), &[&servers[1], "127.0.0.1:1"]).unwrap();
    let gathered: Vec<Result<(u64, Vec<u8>), String>> = postcard::from_bytes(&answer.payload).unwrap();
    assert_eq!(gathered.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, true, false], "{gathered:?}");
    // No prime asks as many as one likes.
    let many = vec![&servers[1][..]; 1025];
    assert!(gather(all.as_bytes(), &many).is_err());
    // All of it together.
    watch(places.stores(), Duration::from_secs(3));
    let begun = Instant::now();
    let reports = || places.stores().reports.all().values().map(|seen| seen.number).collect::<Vec<_>>();
    while reports().len() < 4 || reports().iter().any(|&number| number < 2) {
        assert!(begun.elapsed() < Duration::from_secs(300), "{:?}", places.stores().reports.all());
        std::thread::sleep(Duration::from_millis(20));
    }
    let (cabinets, _) = places.stores().report_requests();
    assert!(cabinets >= 4, "{cabinets}");
    std::fs::remove_dir_all(&path).unwrap();
}
