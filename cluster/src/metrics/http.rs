//! The metrics endpoint: `/metrics`, `/health` and `/ready` over HTTP/1, on a thread of its own. It
//! answers from numbers that the process already has and sends no requests. It cuts off clients
//! that ask for too much, take too long or are too slow, so that no client delays anything else.

use super::text::{CONTENT_TYPE, Page};
use fs::Error;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE as CONTENT_TYPE_HEADER};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// Maximum number of connections; the endpoint closes further ones.
const CONNECTIONS: usize = 32;
/// Maximum length of a request's header, in bytes.
const HEADER_BYTES: usize = 8 << 10;
const HEADERS: usize = 64;
/// Time limit from the connection to the end of the header.
const HEADER_TIMEOUT: Duration = Duration::from_millis(if cfg!(test) { 300 } else { 5000 });
/// Time limit from the connection to the end of the answer.
const TIMEOUT: Duration = Duration::from_secs(15);
/// Pause after a failed accept.
const ACCEPT_RETRY_PAUSE: Duration = Duration::from_millis(50);

/// What an endpoint reports on.
pub trait Subject: Send + Sync + 'static {
    /// Writes the metrics. This does not block.
    fn write(&self, page: &mut Page);

    /// Whether the service can be used. This does not block.
    ///
    /// # Errors
    /// What is missing, in one line.
    fn ready(&self) -> Result<(), String>;
}

/// Listens on an address and answers there as long as the process lives. Returns the address, with
/// the actual port if the given one was 0.
///
/// # Errors
/// When the address cannot be used.
pub fn serve_metrics(address: SocketAddr, subject: Arc<dyn Subject>) -> fs::Result<SocketAddr> {
    let failed = |why: std::io::Error| Error::Invalid(format!("cannot listen for metrics on {address}: {why}"));
    let listener = std::net::TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let serve = move || runtime.block_on(accept(listener, &subject));
    std::thread::Builder::new().name("metrics".into()).spawn(serve).map_err(failed)?;
    Ok(bound)
}

async fn accept(listener: std::net::TcpListener, subject: &Arc<dyn Subject>) {
    // The listener is non-blocking, the only condition under which this could fail.
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(ACCEPT_RETRY_PAUSE).await;
            continue;
        };
        let Ok(place) = places.clone().try_acquire_owned() else { continue };
        let subject = subject.clone();
        tokio::spawn(async move {
            let _ = timeout(TIMEOUT, converse(stream, subject)).await;
            drop(place);
        });
    }
}

/// Answers one request.
async fn converse(stream: TcpStream, subject: Arc<dyn Subject>) {
    let answer = service_fn(move |request: Request<Incoming>| {
        let answer = answer(request.method(), request.uri().path(), &*subject);
        async move { Ok::<_, Infallible>(answer) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    server.max_buf_size(HEADER_BYTES).max_headers(HEADERS).keep_alive(false);
    // A client that sends garbage or disconnects is not an error of this process.
    let _ = server.serve_connection(TokioIo::new(stream), answer).await;
}

fn answer(method: &Method, path: &str, subject: &dyn Subject) -> Response<Full<Bytes>> {
    let plain = |status, text: String| {
        let mut response = Response::new(Full::new(Bytes::from(text)));
        *response.status_mut() = status;
        response
    };
    if !matches!(*method, Method::GET | Method::HEAD) {
        let mut refused = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET\n".into());
        refused.headers_mut().insert(ALLOW, hyper::header::HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    match path {
        "/metrics" => {
            let mut page = Page::default();
            subject.write(&mut page);
            let mut response = plain(StatusCode::OK, page.finish());
            let kind = hyper::header::HeaderValue::from_static(CONTENT_TYPE);
            response.headers_mut().insert(CONTENT_TYPE_HEADER, kind);
            response
        }
        "/health" => plain(StatusCode::OK, "alive\n".into()),
        "/ready" => match subject.ready() {
            Ok(()) => plain(StatusCode::OK, "ready\n".into()),
            Err(why) => plain(StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {why}\n")),
        },
        _ => plain(StatusCode::NOT_FOUND, "there are /metrics, /health and /ready\n".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    #[derive(Default)]
    struct Lamp(AtomicBool);

    impl Subject for Lamp {
        fn write(&self, page: &mut Page) {
            page.gauge("weft_lamp", "Whether it burns.").count(&[], u64::from(self.0.load(Ordering::Relaxed)));
        }

        fn ready(&self) -> Result<(), String> {
            if self.0.load(Ordering::Relaxed) { Ok(()) } else { Err("it is dark".into()) }
        }
    }

    fn lamp() -> (SocketAddr, Arc<Lamp>) {
        let lamp = Arc::<Lamp>::default();
        (serve_metrics(([127, 0, 0, 1], 0).into(), lamp.clone()).unwrap(), lamp)
    }

    fn connect(address: SocketAddr) -> std::net::TcpStream {
        let stream = std::net::TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }

    /// Sends a request and returns the answer up to the end of the connection. Errors while sending
    /// do not matter.
    fn asked(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = connect(address);
        let _ = stream.write_all(request);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn get(address: SocketAddr, path: &str) -> String {
        asked(address, format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes())
    }

    #[test]
    fn what_is_asked_is_answered() {
        let (address, lamp) = lamp();
        assert!(get(address, "/health").starts_with("HTTP/1.1 200 "));
        let dark = get(address, "/ready");
        assert!(dark.starts_with("HTTP/1.1 503 ") && dark.ends_with("not ready: it is dark\n"), "{dark}");
        lamp.0.store(true, Ordering::Relaxed);
        assert!(get(address, "/ready").starts_with("HTTP/1.1 200 "));
        let metrics = get(address, "/metrics?x=1");
        assert!(metrics.contains(CONTENT_TYPE) && metrics.ends_with("\nweft_lamp 1\n"), "{metrics}");
        assert!(get(address, "/").starts_with("HTTP/1.1 404 "));
        assert!(asked(address, b"POST /metrics HTTP/1.1\r\nHost: x\r\n\r\n").starts_with("HTTP/1.1 405 "));
        assert!(serve_metrics(address, lamp).is_err(), "two listen on one port");
    }

    #[test]
    fn who_asks_what_it_must_not_hurts_nobody() {
        let (address, _lamp) = lamp();
        // Headers without an end, garbage, a body that never arrives.
        assert!(!asked(address, &[b"GET / HTTP/1.1\r\nx: ", &[b'y'; 1 << 20][..]].concat()).contains("200 OK"));
        assert!(!asked(address, &[0xFF; 4096]).contains("200 OK"));
        asked(address, b"GET /health HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n");
        // More silent connections than there are places: the endpoint closes the excess at once and
        // the others after their time limit.
        let silent: Vec<_> = (0..2 * CONNECTIONS).map(|_| connect(address)).collect();
        let begun = Instant::now();
        while !get(address, "/health").starts_with("HTTP/1.1 200 ") {
            assert!(begun.elapsed() < Duration::from_secs(60), "the silent ones keep their places");
            std::thread::sleep(Duration::from_millis(100));
        }
        drop(silent);
    }
}
