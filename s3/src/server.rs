//! Connections: HTTP/1.1, with TLS if there are certificates. They wait at little cost; what bodies
//! take together is bounded by the gateway.

use crate::access::Access;
use crate::gateway::Gateway;
use crate::keys::KeyFile;
use crate::objects::{Objects, is_bucket};
use crate::silence::{Heard, Taken};
use crate::sweep::sweep;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, CONTENT_TYPE, EXPECT, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper::{Method, Request};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use s3s::host::{S3Host, VirtualHost};
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::validation::NameValidation;
use s3s::{Body, HttpError, HttpResponse, S3Result, s3_error};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

/// How long a connection waits for a request.
const IDLE: Duration = Duration::from_secs(180);
/// How long a connection may take for its handshake.
const HANDSHAKE: Duration = Duration::from_secs(15);
/// How long requests may go on when the gateway ends.
const ENDING: Duration = Duration::from_secs(30);
/// How often what is left over is looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(3600);

/// How many requests may wait for disks and servers at a time; the others wait for those.
const BLOCKING: usize = 256;

/// The type of what HTML forms send.
const FORM: &[u8] = b"multipart/form-data";

/// How a gateway serves.
pub struct Options {
    /// What bodies may take together, in bytes; listings take a quarter of that besides.
    pub memory: u64,
    /// The most connections.
    pub connections: usize,
    /// Certificates, if clients use TLS.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Names under which `BUCKET.NAME` is a bucket.
    pub domains: Vec<String>,
    /// Uploads that nobody completes are given up after this time.
    pub expire: Option<Duration>,
}

/// Any directory of the root can be a bucket.
struct AnyDirectory;

impl NameValidation for AnyDirectory {
    fn validate_bucket_name(&self, name: &str) -> bool {
        !name.is_empty() && name.len() <= 255 && is_bucket(name.as_bytes()) && !name.contains(['/', '\0'])
    }
}

/// Names under which `BUCKET.NAME` is a bucket. Under any other name the path begins with it.
struct Domains(Vec<String>);

impl S3Host for Domains {
    fn parse_host_header<'a>(&'a self, host: &'a str) -> S3Result<VirtualHost<'a>> {
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        let bucket_of = |domain: &String| name.strip_suffix(domain.as_str())?.strip_suffix('.');
        let found = self.0.iter().find_map(|domain| Some((domain, bucket_of(domain)?)));
        Ok(found.map_or_else(|| VirtualHost::new(host), |(domain, bucket)| VirtualHost::with_bucket(domain, bucket)))
    }
}

/// Numbers the requests, and refuses what the library would hold in memory.
#[derive(Clone)]
struct Numbered {
    service: S3Service,
    count: Arc<AtomicU64>,
}

impl Service<Request<Incoming>> for Numbered {
    type Response = HttpResponse;
    type Error = HttpError;
    type Future = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let is_form = request.method() == Method::POST
            && request
                .headers()
                .get(CONTENT_TYPE)
                .and_then(|kind| kind.as_bytes().trim_ascii_start().get(..FORM.len()))
                .is_some_and(|kind| kind.eq_ignore_ascii_case(FORM));
        let expects = request.headers().contains_key(EXPECT);
        let answer = (!is_form).then(|| {
            let (service, request) =
                (self.service.clone(), request.map(|body| Body::http_body_unsync(Heard::new(body))));
            async move { service.call(request).await }
        });
        Box::pin(async move {
            let mut answer = match answer {
                Some(answer) => answer.await?,
                None => s3_error!(NotImplemented, "uploads of forms are not implemented")
                    .to_http_response()
                    .map_err(|why| HttpError::new(Box::new(why)))?,
            };
            if let Ok(number) = HeaderValue::try_from(format!("{number:016X}")) {
                answer.headers_mut().insert("x-amz-request-id", number);
            }
            // A client that is told so before it sends a body does not send it. What it sends next
            // would be taken for that body.
            if expects && !answer.status().is_success() {
                answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            answer.headers_mut().insert("server", HeaderValue::from_static("weft"));
            Ok(answer)
        })
    }
}

/// Serves until `ended` is; then requests in progress go on to their end, for a while.
///
/// # Errors
/// When the system has no threads.
pub fn run(
    listener: std::net::TcpListener,
    objects: Objects,
    key: KeyFile,
    options: Options,
    ended: impl Future<Output = ()>,
) -> fs::Result<()> {
    let failed = |why: std::io::Error| fs::Error::Unavailable(why.to_string());
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.thread_name("s3").max_blocking_threads(BLOCKING).enable_all().build().map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    runtime.block_on(async {
        let listener = TcpListener::from_std(listener).map_err(failed)?;
        serve(listener, objects, key, options, ended).await
    })
}

async fn serve(
    listener: TcpListener,
    objects: Objects,
    key: KeyFile,
    options: Options,
    ended: impl Future<Output = ()>,
) -> fs::Result<()> {
    let is_alone = !objects.fs.is_shared();
    let gateway = Gateway::new(objects, options.memory);
    let mut builder = S3ServiceBuilder::new(gateway.clone());
    let access = Access::new(gateway.clone(), key);
    builder.set_auth(access.clone());
    builder.set_access(access);
    builder.set_validation(AnyDirectory);
    if !options.domains.is_empty() {
        builder.set_host(Domains(options.domains));
    }
    let service = Numbered { service: builder.build(), count: Arc::default() };
    let sweeper = tokio::spawn(sweep_now_and_then(gateway, is_alone, options.expire));
    let tls = options.tls.map(TlsAcceptor::from);
    let (graceful, places) = (GracefulShutdown::new(), Arc::new(Semaphore::new(options.connections)));
    let mut ended = std::pin::pin!(ended);
    loop {
        let accept = async {
            let place = places.clone().acquire_owned().await;
            (listener.accept().await, place)
        };
        let (accepted, place) = tokio::select! {
            accepted = accept => accepted,
            () = &mut ended => break,
        };
        let Ok((stream, _)) = accepted else {
            // Too many files are open: others end soon.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let (service, tls, watcher) = (service.clone(), tls.clone(), graceful.watcher());
        tokio::spawn(async move {
            let _place = place;
            let builder = http();
            match tls {
                None => _ = watcher.watch(builder.serve_connection(TokioIo::new(Taken::new(stream)), service)).await,
                Some(tls) => {
                    if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await {
                        _ = watcher.watch(builder.serve_connection(TokioIo::new(Taken::new(stream)), service)).await;
                    }
                }
            }
        });
    }
    drop(listener);
    sweeper.abort();
    let _ = tokio::time::timeout(ENDING, graceful.shutdown()).await;
    Ok(())
}

fn http() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(IDLE).max_buf_size(256 << 10);
    builder
}

async fn sweep_now_and_then(gateway: Gateway, is_alone: bool, expire: Option<Duration>) {
    let mut is_first = true;
    loop {
        let (alone, expire) = (is_alone && is_first, expire.map(|expire| expire.as_secs()));
        is_first = false;
        // What fails now is tried again in an hour.
        let _ = gateway.beside(move |objects| sweep(objects, alone, expire).map_err(crate::objects::answer)).await;
        tokio::time::sleep(SWEEP_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_before_a_domain() {
        let domains = Domains(vec!["s3.local".into()]);
        let bucket = |host| domains.parse_host_header(host).unwrap().bucket().map(str::to_owned);
        assert_eq!(bucket("films.s3.local:9000").as_deref(), Some("films"));
        assert_eq!(bucket("a.b.s3.local").as_deref(), Some("a.b"));
        for host in ["s3.local", "localhost:9000", "other.example", "xs3.local"] {
            assert_eq!(bucket(host), None, "{host}");
        }
    }
}
