//! Which tokens a Master shows to the stores that it writes to, with certificates and the cluster's
//! key. A client chooses these stores.

use cluster::capability::{CLOCK_TOLERANCE, Capability, Fence, FenceMessage, Rights, TOKEN_BYTES, Token, now_ms};
use cluster::{Identity, Members, Store, make_identities, use_identity};
use fs::Places;
use plan::{SessionId, SetId, TargetId};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use volume::format::CHUNK_HEADER_BYTES;
use wire::{Client, ClientOptions, Reply, Request, Server, ServerOptions, Service};

const WRITE: u16 = 1;
const FENCE: u16 = 33;
const DISTRIBUTE: u16 = 64;

/// A store that keeps the tokens that it is shown.
struct Collects(Arc<Mutex<Vec<Token>>>);

impl Service for Collects {
    async fn call(&self, request: Request) -> Reply {
        // The token is the last operand. One byte says that no claim follows.
        let operands = request.body.split_last().map_or(&[][..], |(_, operands)| operands);
        if let (WRITE, Some(token)) = (request.method, operands.last_chunk::<TOKEN_BYTES>()) {
            self.0.lock().unwrap().extend(Token::from_bytes(token));
        }
        Reply::default()
    }
}

fn serve(service: impl Service, identity: &Identity) -> String {
    let options = ServerOptions { tls: Some(identity.server().unwrap()), ..ServerOptions::default() };
    let server = Server::new(Arc::new(service), options);
    let listener = cluster::runtime().block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    cluster::runtime().spawn(async move { server.serve(listener, std::future::pending()).await });
    address
}

#[test]
fn what_a_master_shows_lasts_no_longer_than_what_its_client_showed() {
    let path = std::env::temp_dir().join(format!("weft-deputies-{}", std::process::id()));
    let (ids, disk) = (path.join("ids"), path.join("disk"));
    let members = vec![("member".to_string(), vec!["127.0.0.1".to_string()])];
    make_identities(&ids, &Members { members, operators: Vec::new() }).unwrap();
    let identity = Identity::at(&ids.join("member"));
    use_identity(&identity).unwrap();
    let (key, volume) = (identity.cluster_key().unwrap(), [9; 16]);
    std::fs::create_dir_all(&disk).unwrap();
    let label = fs::label::Label::new(volume, "v", "rs:4+2", 64 << 20, 5, Vec::new());
    label.write(&*fs::Directories.format(&disk).unwrap(), TargetId(0)).unwrap();
    let shown = Arc::<Mutex<Vec<Token>>>::default();
    let master = serve(Store::open(&[disk]).unwrap().guarded_by(key.clone(), CLOCK_TOLERANCE), &identity);
    let collector = serve(Collects(shown.clone()), &identity);
    let options = ClientOptions { tls: Some(identity.client().unwrap()), ..ClientOptions::default() };
    let client = Client::new(cluster::runtime().handle().clone(), master.as_str(), options);
    let mut places = vec![format!("store://{master}/disk")];
    places.extend((1..6).map(|position| format!("store://{collector}/disk{position}")));
    let places: Vec<&str> = places.iter().map(String::as_str).collect();
    let now = now_ms();
    // A store accepts no work of a session before it knows which sessions live.
    let all = Capability {
        volume,
        set: SetId(0),
        rights: Rights::Everything,
        session: SessionId::NONE,
        expires_ms: u64::MAX,
    };
    let fence = FenceMessage::encode(&key.sign(&all), Fence { volume, next: SessionId(2), live: vec![SessionId(1)] });
    client.call_blocking(FENCE, &fence, &[], Duration::from_secs(20)).unwrap();
    for (set, expires_ms) in [(3, now + 20_000), (4, now + 25_000), (3, now + 30_000)] {
        let set = SetId(set);
        let token = key.sign(&Capability { volume, set, rights: Rights::Write, session: SessionId(1), expires_ms });
        let (record, checksum) = (CHUNK_HEADER_BYTES as u32, gf::checksum::crc64(b"data"));
        // As a client encodes it: volume, set, code, time, record, sequence, manifest, spare,
        // checksum, token, server, places.
        let head = (volume, set, "rs:4+2", (0i64, 0u32), record, 1u64, 0u32, 2u16, checksum);
        let body = postcard::to_stdvec(&(head, token.as_bytes(), master.as_str(), &places)).unwrap();
        let parts = [std::io::IoSlice::new(b"data")];
        client.call_blocking(DISTRIBUTE, &body, &parts, Duration::from_secs(20)).unwrap();
        let tokens = std::mem::take(&mut *shown.lock().unwrap());
        assert!(tokens.len() >= 5, "{tokens:?}");
        for token in tokens {
            let says = token.says().unwrap();
            assert_eq!(
                (says.volume, says.set, says.rights, says.session),
                (volume, set, Rights::Write, SessionId::NONE)
            );
            assert_eq!(says.expires_ms, expires_ms);
            assert!(key.open(&token).is_ok());
        }
    }
    std::fs::remove_dir_all(&path).unwrap();
}
