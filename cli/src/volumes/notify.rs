//! What systemd is told of a server (sd_notify(3)): a datagram to the socket that $NOTIFY_SOCKET
//! names, if it does.

use std::ffi::OsStr;
use std::io::Result;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

const VARIABLE: &str = "NOTIFY_SOCKET";

/// The server is ready; `status` says what it does.
pub fn ready(status: &str) {
    tell(&format!("READY=1\nSTATUS={}", status.replace('\n', " ")));
}

/// The server ends, in its time.
pub fn stopping() {
    tell("STOPPING=1");
}

/// A server that cannot tell works all the same.
fn tell(message: &str) {
    if let Some(socket) = std::env::var_os(VARIABLE) {
        let _ = send(&socket, message);
    }
}

/// Sends a message to a socket: a path, or a name in the abstract namespace behind an @.
fn send(socket: &OsStr, message: &str) -> Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(message.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_sockets_hear() {
        let path = std::env::temp_dir().join(format!("weft-notify-{}", std::process::id()));
        let name = format!("weft-notify-{}", std::process::id());
        let heard = |socket: UnixDatagram, called: &OsStr| {
            send(called, "READY=1").unwrap();
            let mut bytes = [0; 64];
            let length = socket.recv(&mut bytes).unwrap();
            assert_eq!(&bytes[..length], b"READY=1");
        };
        heard(UnixDatagram::bind(&path).unwrap(), path.as_os_str());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        heard(UnixDatagram::bind_addr(&address).unwrap(), OsStr::new(&format!("@{name}")));
        std::fs::remove_file(&path).unwrap();
        assert!(send(path.as_os_str(), "READY=1").is_err());
    }
}
