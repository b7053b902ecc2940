//! The machine that joins: it asks the desk of a token for its certificate.

use super::stream::{Timed, failed, receive, receive_bytes, send};
use super::{Admitted, Answer, GREETING, Request, Token};
use fs::Error;
use std::io::{self, Write};
use std::net::{IpAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;
use wire::admission::MachineKey;

/// How long the desk may take to be reached, and for everything.
const CONNECT: Duration = Duration::from_secs(10);
const LIMIT: Duration = Duration::from_secs(30);

/// A visit at the desk, which has proved that it is the token's.
pub struct Visit {
    token: Token,
    stream: Timed,
    /// The authority's certificate.
    pub authority: String,
    /// The address of this machine on the way to the desk.
    pub own: IpAddr,
}

impl Visit {
    /// Connects, and gets the authority's certificate that the token is about.
    ///
    /// # Errors
    /// When nobody answers there, or somebody else than the token says.
    pub fn begin(token: Token) -> fs::Result<Self> {
        let at = |why: io::Error| failed(&token.address, &why);
        let mut last = io::Error::new(io::ErrorKind::NotFound, "there is no such address");
        let mut connected = None;
        for address in token.address.to_socket_addrs().map_err(at)? {
            match TcpStream::connect_timeout(&address, CONNECT) {
                Ok(stream) => connected = Some(stream),
                Err(why) => last = why,
            }
            if connected.is_some() {
                break;
            }
        }
        let stream = connected.ok_or_else(|| at(last))?;
        let own = stream.local_addr().map_err(at)?.ip();
        let mut stream = Timed::new(stream, LIMIT);
        stream.write_all(GREETING.as_bytes()).map_err(at)?;
        let authority = String::from_utf8(receive_bytes(&mut stream).map_err(at)?).unwrap_or_default();
        match wire::admission::fingerprint(&authority) {
            Ok(fingerprint) if fingerprint == token.fingerprint => {}
            _ => {
                let address = &token.address;
                return Err(Error::Invalid(format!("{address} is not of the cluster that the token is for")));
            }
        }
        Ok(Self { token, stream, authority, own })
    }

    /// Asks for a certificate for a name, the addresses at which others reach the machine, and a
    /// key; `targets` are those of its store. Returns it and the authority's.
    ///
    /// # Errors
    /// When the desk refuses, or is not the authority's.
    pub fn ask(
        self,
        name: &str,
        addresses: Vec<String>,
        targets: Vec<String>,
        key: &MachineKey,
    ) -> fs::Result<(Admitted, String)> {
        let Self { token, stream, authority, .. } = self;
        let invalid = |why: wire::Error| Error::Invalid(why.to_string());
        let mut stream = wire::admission::pinned(&authority, &token.host(), stream).map_err(invalid)?;
        let binding = wire::admission::channel_binding(&mut stream).map_err(invalid)?;
        let proof = key.prove(&binding).map_err(invalid)?;
        let (secret, public) = (token.secret.clone(), key.public.clone());
        let request = Request { secret, name: name.into(), addresses, public, targets, proof };
        let answer = send(&mut stream, &request).and_then(|()| receive::<Answer>(&mut stream));
        match answer.map_err(|why| failed(&token.address, &why))? {
            Answer::Admitted(admitted) => Ok((admitted, authority)),
            Answer::Refused(why) => Err(Error::Invalid(format!("{} refuses: {why}", token.address))),
        }
    }
}
