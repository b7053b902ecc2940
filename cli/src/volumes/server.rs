//! What every server process does: it listens, says that it is ready, and ends at a signal.

use super::notify;
use crate::failure::{Failure, Outcome};
use crate::show;
use cluster::{ClusterKey, Identity, runtime};
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::watch;
use wire::{Role, ServerOptions};

/// Ends servers when a signal comes.
pub struct Signals(watch::Receiver<bool>);

impl Signals {
    /// The second signal ends the process at once.
    pub fn new() -> Result<Self, Failure> {
        let (sender, receiver) = watch::channel(false);
        let handler = move || {
            if *sender.borrow() {
                std::process::exit(130);
            }
            // First: when the others hear of it, the process may end before this thread goes on.
            notify::stopping();
            sender.send_replace(true);
        };
        ctrlc::set_handler(handler).map_err(|why| Failure::Other(format!("cannot handle signals: {why}")))?;
        Ok(Self(receiver))
    }

    pub async fn wait(mut self) {
        // The sender lives in the handler.
        let _ = self.0.wait_for(|ended| *ended).await;
    }

    /// As if a signal came when this becomes true.
    pub fn of(ended: watch::Receiver<bool>) -> Self {
        Self(ended)
    }

    pub fn copy(&self) -> Self {
        Self(self.0.clone())
    }
}

pub fn io(why: std::io::Error) -> Failure {
    Failure::Other(why.to_string())
}

/// Listens at an address.
pub fn bind(address: SocketAddr) -> Result<std::net::TcpListener, Failure> {
    std::net::TcpListener::bind(address).map_err(|why| Failure::Other(format!("cannot listen on {address}: {why}")))
}

/// Without certificates, it listens for this machine only.
pub fn listen(address: SocketAddr, identity: Option<&Path>) -> Result<TcpListener, Failure> {
    if !address.ip().is_loopback() && identity.is_none() {
        return Err(Failure::Usage(format!(
            "{address} can be reached by others, who could read and change everything: give --identity (see weft \
             cluster init), or listen on 127.0.0.1"
        )));
    }
    let _inside = runtime().enter();
    let listener = bind(address)?;
    listener.set_nonblocking(true).and_then(|()| TcpListener::from_std(listener)).map_err(io)
}

/// The key that signs capabilities. A server that others can reach has it, so that not every member
/// may do everything.
pub fn cluster_key(identity: Option<&Path>) -> Result<Option<Arc<ClusterKey>>, Failure> {
    Ok(identity.map(|place| Identity::at(place).cluster_key()).transpose()?)
}

pub fn server_options(role: Role, identity: Option<&Path>) -> Result<ServerOptions, Failure> {
    let tls = identity.map(|place| Identity::at(place).server()).transpose()?;
    let default = ServerOptions::default();
    // The files of targets need some of the permitted descriptors, too.
    let open = usize::try_from(volume::allow_many_open_files()).unwrap_or(usize::MAX);
    let connections = default.connections.min(open / 4 * 3);
    Ok(ServerOptions {
        role,
        tls,
        bytes: 128 << 20,
        bytes_per_connection: 64 << 20,
        reply_bytes: 128 << 20,
        reply_bytes_per_connection: 64 << 20,
        connections,
        ..default
    })
}

/// Tells the process that started the server that it is ready.
pub fn ready(as_json: bool, role: &str, address: SocketAddr, what: &str, metrics: Option<SocketAddr>) -> Outcome {
    if as_json {
        let metrics = metrics.map(|address| address.to_string());
        let listen = address.to_string();
        show::json(&serde_json::json!({ "role": role, "listen": listen, "serves": what, "metrics": metrics }))?;
    } else {
        let metrics = metrics.map_or_else(String::new, |address| format!("; metrics on http://{address}/metrics"));
        show::text(format_args!("{role} server on {address}: {what}{metrics}"))?;
    }
    let _ = std::io::stdout().flush();
    notify::ready(&format!("{role} server on {address}: {what}"));
    show::begin_log();
    Ok(())
}
