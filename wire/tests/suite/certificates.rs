//! TLS with certificates on both sides: a peer without a certificate of the cluster is refused, and
//! the service continues.

use crate::harness;
use crate::harness::{DEADLINE, METHODS, client, parts, serve};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use wire::certificates::{Certificate, new_authority, new_node};
use wire::{ClientOptions, ClientTls, Error, ServerOptions, ServerTls};

/// A directory of certificates that is removed at the end.
struct Cluster {
    directory: PathBuf,
    authority: Certificate,
}

impl Cluster {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("weft-wire-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::SeqCst));
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(&directory).unwrap();
        let cluster = Self { directory, authority: new_authority().unwrap() };
        cluster.write("ca.pem", &cluster.authority.certificate);
        for name in ["store-1", "client-1"] {
            cluster.node(name);
        }
        cluster
    }

    fn node(&self, name: &str) {
        let node = new_node(&self.authority.key, name, &["127.0.0.1".into(), "localhost".into()]).unwrap();
        self.write(&format!("{name}.pem"), &node.certificate);
        self.write(&format!("{name}.key"), &node.key);
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn server(&self) -> ServerOptions {
        let tls = ServerTls::from_files(&self.path("ca.pem"), &self.path("store-1.pem"), &self.path("store-1.key"));
        ServerOptions { tls: Some(tls.unwrap()), ..Default::default() }
    }

    fn client(&self, authority: &Path) -> ClientOptions {
        let tls = ClientTls::from_files(authority, &self.path("client-1.pem"), &self.path("client-1.key"));
        ClientOptions { tls: Some(tls.unwrap()), ..Default::default() }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_sides_know_each_other_by_name() {
    let cluster = Cluster::new();
    let (address, service, _server) = serve(cluster.server()).await;
    let client = client(&address, cluster.client(&cluster.path("ca.pem")));
    let bytes: Vec<u8> = (0..3 << 20).map(|at| (at % 253) as u8).collect();
    let answer = client.call(METHODS.echo, b"x", &parts(&[&bytes]), DEADLINE).await.unwrap();
    assert_eq!(answer.payload[..], bytes[..]);
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let (client, bytes) = (client.clone(), bytes.clone());
            tokio::spawn(async move { client.call(METHODS.echo, &[], &parts(&[&bytes]), DEADLINE).await.unwrap() })
        })
        .collect();
    for call in calls {
        assert_eq!(call.await.unwrap().payload[..], bytes[..]);
    }
    // Direct connections work in the same way.
    let peers = service.clone();
    let calls = move || {
        let call = |bytes: &[u8]| client.call_blocking(METHODS.echo, &[], &parts(&[bytes]), DEADLINE).unwrap();
        while peers.peers.lock().unwrap().len() < 2 {
            assert_eq!(call(&bytes[..5000]).payload[..], bytes[..5000]);
        }
        let lengths = [0, 1, 60, 5000, 16_384].into_iter().cycle().take(100);
        lengths.for_each(|length| assert_eq!(call(&bytes[..length]).payload[..], bytes[..length]));
    };
    tokio::task::spawn_blocking(calls).await.unwrap();
    let peers = service.peers.lock().unwrap();
    assert!(peers.iter().all(|peer| peer.name.as_deref() == Some("client-1")));
}

async fn refused(address: &wire::Address, options: ClientOptions) {
    let error = client(address, options).call(METHODS.echo, &[], &[], DEADLINE).await.unwrap_err();
    assert!(matches!(error, Error::Refused(_)), "{error:?}");
    println!("{error}");
}

/// A certificate without a name that the server accepts identifies no member.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_no_name_is_refused() {
    let cluster = Cluster::new();
    let (address, service, _server) = serve(cluster.server()).await;
    let nameless = new_node(&cluster.authority.key, "42", &[]).unwrap();
    cluster.write("client-1.pem", &nameless.certificate);
    cluster.write("client-1.key", &nameless.key);
    let options = cluster.client(&cluster.path("ca.pem"));
    let error = client(&address, options).call(METHODS.echo, &[], &[], DEADLINE).await.unwrap_err();
    assert!(matches!(&error, Error::Refused(why) if why.contains("no name")), "{error:?}");
    assert!(service.peers.lock().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_are_refused_by_both_sides() {
    let (cluster, stranger) = (Cluster::new(), Cluster::new());
    let (address, service, server) = serve(cluster.server()).await;
    // The client does not know the server's authority.
    refused(&address, stranger.client(&stranger.path("ca.pem"))).await;
    // The server refuses an unknown client, again and again.
    for _ in 0..20 {
        refused(&address, stranger.client(&cluster.path("ca.pem"))).await;
    }
    // The certificate has another name.
    let mut options = cluster.client(&cluster.path("ca.pem"));
    options.tls = options.tls.map(|tls| tls.with_server_name("store-2"));
    refused(&address, options).await;
    assert!(service.peers.lock().unwrap().is_empty());
    let mut options = cluster.client(&cluster.path("ca.pem"));
    options.tls = options.tls.map(|tls| tls.with_server_name("store-1"));
    client(&address, options).call(METHODS.echo, &[], &[], DEADLINE).await.unwrap();
    harness::until(|| server.connections() <= 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_certificate_and_no_tls_at_all() {
    let cluster = Cluster::new();
    let (address, service, _server) = serve(cluster.server()).await;
    // A client that speaks TLS and trusts the authority, but shows no certificate.
    let mut roots = rustls::RootCertStore::empty();
    let pem = cluster.authority.certificate.as_bytes();
    roots.add(rustls::pki_types::pem::PemObject::from_pem_slice(pem).unwrap()).unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(config));
    let stream = tokio::net::TcpStream::connect(address.as_str()).await.unwrap();
    let mut stream = connector.connect("localhost".try_into().unwrap(), stream).await.unwrap();
    let error = tokio::io::AsyncReadExt::read(&mut stream, &mut [0]).await.unwrap_err();
    assert!(error.to_string().contains("CertificateRequired"), "{error}");
    // A client without TLS, and a client with TLS at a server without it.
    let error = client(&address, ClientOptions::default()).call(METHODS.echo, &[], &[], DEADLINE).await.unwrap_err();
    assert!(matches!(error, Error::Protocol(_) | Error::Unavailable { sent: false, .. }), "{error}");
    assert!(service.peers.lock().unwrap().is_empty());
    let (plain, _, _server) = serve(ServerOptions::default()).await;
    let options = cluster.client(&cluster.path("ca.pem"));
    assert!(client(&plain, options).call(METHODS.echo, &[], &[], DEADLINE).await.is_err());
    let options = cluster.client(&cluster.path("ca.pem"));
    client(&address, options).call(METHODS.echo, &[], &[], DEADLINE).await.unwrap();
}

#[test]
fn keys_that_others_can_read_are_refused() {
    let cluster = Cluster::new();
    let (ca, certificate, key) = (cluster.path("ca.pem"), cluster.path("client-1.pem"), cluster.path("client-1.key"));
    fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
    let message = ClientTls::from_files(&ca, &certificate, &key).unwrap_err().to_string();
    assert!(message.contains("client-1.key: others can use this key (mode 640); chmod 600 it"), "{message}");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    ClientTls::from_files(&ca, &certificate, &key).unwrap();
    for (ca, certificate, key) in
        [(&key, &certificate, &key), (&ca, &key, &key), (&ca, &certificate, &ca), (&ca, &cluster.path("none"), &key)]
    {
        let client = ClientTls::from_files(ca, certificate, key).map(drop);
        let server = ServerTls::from_files(ca, certificate, key).map(drop);
        assert!(matches!(&client, Err(Error::Refused(_))) && matches!(&server, Err(Error::Refused(_))));
    }
    // The key of another certificate.
    assert!(ServerTls::from_files(&ca, &certificate, &cluster.path("store-1.key")).is_err());
}
