//! The page over HTTP/1, on a thread of its own: files from the program, the state as JSON and as
//! server-sent events, logins and actions.

use super::key::Refused;
use super::page::Console;
use crate::failure::Failure;
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_TYPE, COOKIE, HOST, HeaderValue, SET_COOKIE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use s3::Taken;
use std::convert::Infallible;
use std::net::{IpAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Connections at a time; others are closed. Each page that is watched is one.
const CONNECTIONS: usize = 64;
/// Connections of pages that are watched, at most. The others are left for requests.
const WATCHED: usize = 48;
/// Time for the header of a request, and for its body.
const HEADER: Duration = Duration::from_secs(5);
/// A connection whose other end reads nothing for so long ends.
const READS: Duration = Duration::from_secs(30);
/// No request has a longer body.
const BODY: usize = 4096;
/// Pause after a failed accept.
const PAUSE: Duration = Duration::from_millis(50);
/// A page that is watched hears something at least so often.
const BEAT: Duration = Duration::from_secs(10);

/// What the program has of the page: path, type, bytes.
const FILES: [(&str, &str, &str); 6] = [
    ("/", "text/html; charset=utf-8", include_str!("../../../assets/console/index.html")),
    ("/console.css", "text/css; charset=utf-8", include_str!("../../../assets/console/console.css")),
    ("/console.js", "text/javascript; charset=utf-8", include_str!("../../../assets/console/console.js")),
    ("/uplot.js", "text/javascript; charset=utf-8", include_str!("../../../assets/console/uplot/uPlot.iife.min.js")),
    ("/uplot.css", "text/css; charset=utf-8", include_str!("../../../assets/console/uplot/uPlot.min.css")),
    ("/uplot.txt", "text/plain; charset=utf-8", include_str!("../../../assets/console/uplot/LICENSE")),
];

/// Nothing from elsewhere, and in no other page.
const HEADERS: [(&str, &str); 5] = [
    (
        "content-security-policy",
        "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-store"),
];

/// An answer: whole, or as it comes.
enum Answer {
    Whole(Option<Bytes>),
    Stream(mpsc::Receiver<Bytes>),
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let framed = |bytes: Option<Bytes>| bytes.map(|bytes| Ok(Frame::data(bytes)));
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(framed(bytes.take())),
            Self::Stream(receiver) => receiver.poll_recv(cx).map(framed),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Stream(_) => SizeHint::default(),
        }
    }
}

/// Answers as long as the process lives.
pub fn serve(listener: TcpListener, console: Arc<Console>) -> Result<(), Failure> {
    let failed = |why: std::io::Error| Failure::Other(format!("cannot serve the console: {why}"));
    listener.set_nonblocking(true).map_err(failed)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let serve = move || runtime.block_on(accept(listener, console));
    std::thread::Builder::new().name("console".into()).spawn(serve).map(drop).map_err(failed)
}

async fn accept(listener: TcpListener, console: Arc<Console>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let (places, watched) = (Arc::new(Semaphore::new(CONNECTIONS)), Arc::new(Semaphore::new(WATCHED)));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let Ok(place) = places.clone().try_acquire_owned() else { continue };
        let visitor = Visitor { console: console.clone(), watched: watched.clone() };
        tokio::spawn(async move {
            let answer = service_fn(move |request| {
                let visitor = visitor.clone();
                async move { Ok::<_, Infallible>(visitor.answer(request).await) }
            });
            let mut server = http1::Builder::new();
            server.timer(TokioTimer::new()).header_read_timeout(HEADER);
            server.max_buf_size(16 << 10).max_headers(64);
            // A client that disconnects is not an error of this process.
            let _ = server.serve_connection(TokioIo::new(Taken::new(stream, READS)), answer).await;
            drop(place);
        });
    }
}

fn whole(status: StatusCode, kind: &'static str, bytes: impl Into<Bytes>) -> Response<Answer> {
    let mut response = Response::new(Answer::Whole(Some(bytes.into())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn said(status: StatusCode, text: &str) -> Response<Answer> {
    whole(status, "text/plain; charset=utf-8", text.to_owned())
}

/// Whether a request is for this server: a page of elsewhere whose name was pointed here is not.
/// Such a page has a name, so an address is always right.
fn is_for_us(headers: &HeaderMap, names: &[String]) -> bool {
    let Some(host) = headers.get(HOST).and_then(|host| host.to_str().ok()) else { return false };
    let name = host.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()).map_or(host, |(name, _)| name);
    let name = name.trim_matches(['[', ']']);
    let is_name = |own: &str| own.eq_ignore_ascii_case(name);
    name.parse::<IpAddr>().is_ok() || is_name("localhost") || names.iter().any(|own| is_name(own))
}

/// The login that a request shows.
fn login(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    cookies.flat_map(|all| all.split(';')).find_map(|cookie| cookie.trim().strip_prefix("weft="))
}

/// Somebody at the other end of a connection.
#[derive(Clone)]
struct Visitor {
    console: Arc<Console>,
    watched: Arc<Semaphore>,
}

impl Visitor {
    async fn answer(&self, request: Request<Incoming>) -> Response<Answer> {
        let mut response = if is_for_us(request.headers(), self.console.hosts()) {
            self.decide(request).await
        } else {
            said(StatusCode::MISDIRECTED_REQUEST, "this console is not known by that name: start it with --host\n")
        };
        for (name, value) in HEADERS {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    }

    async fn decide(&self, request: Request<Incoming>) -> Response<Answer> {
        let console = &self.console;
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        if matches!(method, Method::GET | Method::HEAD) {
            if let Some((_, kind, text)) = FILES.iter().find(|(at, ..)| *at == path) {
                return whole(StatusCode::OK, kind, *text);
            }
            return match path.as_str() {
                "/state" => whole(StatusCode::OK, "application/json", console.current().to_string()),
                "/history" => whole(StatusCode::OK, "application/json", console.history()),
                "/events" => match self.watched.clone().try_acquire_owned() {
                    Ok(place) => events(console, place),
                    Err(_) => said(StatusCode::SERVICE_UNAVAILABLE, "too many watch this page\n"),
                },
                "/me" => {
                    let known =
                        console.key.as_ref().zip(login(request.headers())).is_some_and(|(key, me)| key.knows(me));
                    whole(StatusCode::OK, "application/json", if known { "true" } else { "false" })
                }
                _ => said(StatusCode::NOT_FOUND, "there is no such page\n"),
            };
        }
        if method != Method::POST {
            return said(StatusCode::METHOD_NOT_ALLOWED, "only GET and POST\n");
        }
        // No form of another page can send this header.
        if !request.headers().contains_key("x-weft") {
            return said(StatusCode::FORBIDDEN, "only the console's own page may ask for that\n");
        }
        let Some(key) = &console.key else {
            return said(StatusCode::FORBIDDEN, "this console is for reading: start it with --key-file\n");
        };
        let me = login(request.headers()).map(str::to_owned);
        let is_encrypted = request.headers().get("x-forwarded-proto").is_some_and(|proto| proto == "https");
        let body = match tokio::time::timeout(HEADER, Limited::new(request.into_body(), BODY).collect()).await {
            Ok(Ok(body)) => body,
            Ok(Err(_)) => return said(StatusCode::BAD_REQUEST, "the request is too long\n"),
            Err(_) => return said(StatusCode::REQUEST_TIMEOUT, "the request does not arrive\n"),
        };
        let body = body.to_bytes();
        let known = me.as_ref().is_some_and(|me| key.knows(me));
        match path.as_str() {
            "/login" => match key.login(&String::from_utf8_lossy(&body)) {
                Ok(login) => {
                    let mut response = said(StatusCode::OK, "welcome\n");
                    let secure = if is_encrypted { "; Secure" } else { "" };
                    let cookie = format!("weft={login}; HttpOnly; SameSite=Strict; Path=/{secure}");
                    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
                        response.headers_mut().insert(SET_COOKIE, cookie);
                    }
                    response
                }
                Err(Refused::Wrong) => said(StatusCode::FORBIDDEN, "this is not the key\n"),
                Err(Refused::TooMany) => {
                    said(StatusCode::SERVICE_UNAVAILABLE, "too many are logged in: log out elsewhere\n")
                }
            },
            "/logout" => {
                me.iter().for_each(|me| key.logout(me));
                said(StatusCode::OK, "bye\n")
            }
            "/act" if !known => said(StatusCode::FORBIDDEN, "log in first\n"),
            "/act" => {
                match serde_json::from_slice(&body).map_err(|why| why.to_string()).and_then(|it| console.act(&it)) {
                    Ok(()) => said(StatusCode::ACCEPTED, "it is being done\n"),
                    Err(why) => said(StatusCode::BAD_REQUEST, &format!("{why}\n")),
                }
            }
            _ => said(StatusCode::NOT_FOUND, "there is no such page\n"),
        }
    }
}

/// The state, now and whenever it is another one, and now and then: the page knows by it that it is
/// not old.
fn events(console: &Arc<Console>, place: OwnedSemaphorePermit) -> Response<Answer> {
    let (sender, receiver) = mpsc::channel(2);
    let mut told = console.told.subscribe();
    let console = console.clone();
    tokio::spawn(async move {
        let _place = place;
        let mut state = console.current();
        while sender.send(format!("data: {state}\n\n").into()).await.is_ok() {
            state = match tokio::time::timeout(BEAT, told.changed()).await {
                Ok(Ok(())) => told.borrow_and_update().clone(),
                Ok(Err(_)) => return,
                Err(_) => console.current(),
            };
        }
    });
    let mut response = Response::new(Answer::Stream(receiver));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_nobody_gave_are_of_other_hosts() {
        let is = |host: &'static str| {
            let headers = [(HOST, HeaderValue::from_static(host))].into_iter().collect();
            is_for_us(&headers, &["console.example".into()])
        };
        for host in
            ["127.0.0.1:7680", "[::1]:7680", "192.168.1.5", "localhost:7680", "Console.Example", "console.example:443"]
        {
            assert!(is(host), "{host}");
        }
        for host in ["elsewhere.example", "console.example.evil", "", "127.0.0.1.evil:7680"] {
            assert!(!is(host), "{host}");
        }
        assert!(!is_for_us(&HeaderMap::new(), &[]));
    }
}
