//! Connections: HTTP/1.1, with TLS if there are certificates. They wait at little cost; what bodies
//! take together is bounded by the gateway.

use crate::access::Access;
use crate::chunks::Bounded;
use crate::cors::FromPage;
use crate::gateway::Gateway;
use crate::keys::KeyFile;
use crate::silence::{Heard, SILENCE, Taken};
use crate::sweep::sweep_now_and_then;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, CONTENT_TYPE, EXPECT, HOST, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper::{Method, Request};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use objects::etag::Kind;
use objects::{Objects, is_bucket};
use s3s::host::{S3Host, VirtualHost};
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::validation::NameValidation;
use s3s::{Body, HttpError, HttpResponse, S3Error, S3Result, s3_error};
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
/// How long work that nobody waits for any more may go on when the gateway ends.
const LEFT: Duration = Duration::from_secs(10);

/// How many requests may wait for disks and servers at a time; the others wait for those.
const BLOCKING: usize = 256;
/// A listing goes down a directory for each part of a key, which has up to 1024 of them.
const STACK_BYTES: usize = 8 << 20;

/// The type of what HTML forms send.
const FORM: &[u8] = b"multipart/form-data";

/// How a gateway serves.
pub struct Options {
    /// What bodies may take together, in bytes. A page of a directory with millions of names takes
    /// a sixteenth of that besides, and free buffers another one.
    pub memory: u64,
    /// What ETags are made of.
    pub etag: Kind,
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
#[derive(Clone)]
struct Domains(Vec<String>);

impl Domains {
    /// The bucket of the header `Host`.
    fn bucket(&self, host: Option<&str>) -> Option<String> {
        self.parse_host_header(host?).ok()?.bucket().map(str::to_owned)
    }
}

impl S3Host for Domains {
    fn parse_host_header<'a>(&'a self, host: &'a str) -> S3Result<VirtualHost<'a>> {
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        let bucket_of = |domain: &String| name.strip_suffix(domain.as_str())?.strip_suffix('.');
        let found = self.0.iter().find_map(|domain| Some((domain, bucket_of(domain)?)));
        Ok(found.map_or_else(|| VirtualHost::new(host), |(domain, bucket)| VirtualHost::with_bucket(domain, bucket)))
    }
}

/// Numbers the requests, refuses what the library would hold in memory, and says what browsers may
/// show to pages of other sites.
#[derive(Clone)]
struct Numbered {
    service: S3Service,
    count: Arc<AtomicU64>,
    gateway: Gateway,
    domains: Arc<Domains>,
}

fn answer(refused: S3Error) -> Result<HttpResponse, HttpError> {
    refused.to_http_response().map_err(|why| HttpError::new(Box::new(why)))
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
        let bucket = self.domains.bucket(request.headers().get(HOST).and_then(|host| host.to_str().ok()));
        let page = FromPage::of(request.headers(), request.method(), request.uri(), bucket);
        let is_preflight = page.as_ref().is_some_and(|page| page.is_preflight);
        let gateway = page.is_some().then(|| self.gateway.clone());
        let served = (!is_form && !is_preflight).then(|| {
            let (parts, body) = request.into_parts();
            let body = Bounded::new(&parts.headers, Heard::new(body));
            let request = Request::from_parts(parts, Body::http_body_unsync(body));
            let service = self.service.clone();
            async move { service.call(request).await }
        });
        Box::pin(async move {
            let told = match (&page, &gateway) {
                (Some(page), Some(gateway)) => {
                    gateway.settings(&page.bucket).await.ok().and_then(|settings| page.told(&settings.cors))
                }
                _ => None,
            };
            let mut answer = match served {
                Some(served) => served.await?,
                None if is_preflight && told.is_some() => HttpResponse::new(Body::empty()),
                None if is_preflight => {
                    answer(s3_error!(AccessDenied, "no CORS rule of the bucket is about this request"))?
                }
                None => answer(s3_error!(NotImplemented, "uploads of forms are not implemented"))?,
            };
            if let Some(told) = told {
                answer.headers_mut().extend(told);
            }
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
    builder.thread_name("s3").thread_stack_size(STACK_BYTES).max_blocking_threads(BLOCKING);
    let runtime = builder.enable_all().build().map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let served = runtime.block_on(async {
        let listener = TcpListener::from_std(listener).map_err(failed)?;
        serve(listener, objects, key, options, ended).await
    });
    // Without a limit, this would wait for all threads, whatever they wait for.
    runtime.shutdown_timeout(LEFT);
    served
}

async fn serve(
    listener: TcpListener,
    objects: Objects,
    key: KeyFile,
    options: Options,
    ended: impl Future<Output = ()>,
) -> fs::Result<()> {
    let is_alone = !objects.fs.is_shared();
    let gateway = Gateway::new(objects, options.memory, options.etag);
    let mut builder = S3ServiceBuilder::new(gateway.clone());
    let access = Access::new(gateway.clone(), key);
    builder.set_auth(access.clone());
    builder.set_access(access);
    builder.set_validation(AnyDirectory);
    let domains = Domains(options.domains);
    if !domains.0.is_empty() {
        builder.set_host(domains.clone());
    }
    let (service, domains) = (builder.build(), Arc::new(domains));
    let service = Numbered { service, count: Arc::default(), gateway: gateway.clone(), domains };
    let objects = gateway.objects.clone();
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
                None => {
                    _ = watcher
                        .watch(builder.serve_connection(TokioIo::new(Taken::new(stream, SILENCE)), service))
                        .await
                }
                Some(tls) => {
                    if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await {
                        _ = watcher
                            .watch(builder.serve_connection(TokioIo::new(Taken::new(stream, SILENCE)), service))
                            .await;
                    }
                }
            }
        });
    }
    drop(listener);
    // A thread that is at it is not stopped by that.
    objects.end();
    sweeper.abort();
    let _ = tokio::time::timeout(ENDING, graceful.shutdown()).await;
    Ok(())
}

fn http() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(IDLE).max_buf_size(256 << 10);
    builder
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_before_a_domain() {
        let domains = Domains(vec!["s3.local".into()]);
        let bucket = |host| domains.bucket(Some(host));
        assert_eq!(bucket("films.s3.local:9000").as_deref(), Some("films"));
        assert_eq!(bucket("a.b.s3.local").as_deref(), Some("a.b"));
        for host in ["s3.local", "localhost:9000", "other.example", "xs3.local"] {
            assert_eq!(bucket(host), None, "{host}");
        }
    }
}
