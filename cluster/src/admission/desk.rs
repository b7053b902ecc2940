//! The desk of a cluster: it has the authority's key and gives certificates to machines that show a
//! token.

use super::stream::{Timed, receive, send, send_bytes};
use super::{Admitted, Answer, GREETING, Kind, Machine, Register, Request, Token, names};
use crate::capability::KEY_FILE;
use crate::identity::{self, Identity, OPERATOR, authority_file};
use crate::whole;
use fs::Error;
use std::io::{self, Read};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use wire::admission::{AdmissionTls, ChannelBinding};

/// How long an admission takes at most.
const LIMIT: Duration = Duration::from_secs(20);
/// How many are in progress at a time; the desk hangs up on others.
const AT_ONCE: usize = 16;
/// Pause after a failed accept.
const PAUSE: Duration = Duration::from_millis(50);

/// A desk.
pub struct Desk {
    directory: PathBuf,
    authority: String,
    tls: AdmissionTls,
}

fn invalid(why: impl std::fmt::Display) -> Error {
    Error::Invalid(why.to_string())
}

/// The place of a machine that is talked with.
struct Place {
    busy: Arc<AtomicUsize>,
    /// How many there were before.
    number: usize,
}

impl Place {
    fn take(busy: &Arc<AtomicUsize>) -> Self {
        Self { busy: busy.clone(), number: busy.fetch_add(1, Ordering::SeqCst) }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.busy.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Desk {
    /// For the authority in a directory, with the certificate of the machine `DIR/NAME`.
    ///
    /// # Errors
    /// When files cannot be read, or others can read a key.
    pub fn open(directory: &Path, identity: &Path) -> fs::Result<Self> {
        let tls = Identity::at(identity).admission()?;
        let authority = whole::read(&directory.join(authority_file("pem")))?;
        let desk = Self { directory: directory.into(), authority, tls };
        desk.authority_key()?;
        Ok(desk)
    }

    fn authority_key(&self) -> fs::Result<String> {
        whole::read(&self.directory.join(authority_file("key")))
    }

    /// Answers those that come, for ever. `tell` hears of each outcome in a line without secrets.
    pub fn serve(self, listener: &TcpListener, tell: impl Fn(String) + Send + Sync + 'static) {
        let (desk, tell, busy) = (Arc::new(self), Arc::new(tell), Arc::new(AtomicUsize::new(0)));
        loop {
            let Ok((stream, peer)) = listener.accept() else {
                std::thread::sleep(PAUSE);
                continue;
            };
            let place = Place::take(&busy);
            if place.number >= AT_ONCE {
                continue;
            }
            let (desk, tell) = (desk.clone(), tell.clone());
            // Without a thread for it, the machine asks again.
            let _ = std::thread::Builder::new().spawn(move || {
                let _place = place;
                match desk.receive(stream) {
                    Ok(Ok((name, kind))) => tell(format!("{name} at {peer} is a {} of the cluster now", kind.word())),
                    Ok(Err(why)) => tell(format!("{peer} was refused: {why}")),
                    Err(why) => tell(format!("{peer}: {why}")),
                }
            });
        }
    }

    /// Talks with one machine.
    fn receive(&self, stream: TcpStream) -> io::Result<Result<(String, Kind), Error>> {
        let mut stream = Timed::new(stream, LIMIT);
        let mut greeting = [0; GREETING.len()];
        stream.read_exact(&mut greeting)?;
        if greeting != GREETING.as_bytes() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it wants something else than to join"));
        }
        send_bytes(&mut stream, self.authority.as_bytes())?;
        let mut stream = self.tls.accept(stream).map_err(io::Error::other)?;
        let binding = wire::admission::channel_binding(&mut stream).map_err(io::Error::other)?;
        let request: Request = receive(&mut stream)?;
        let decided = self.decide(&request, &binding);
        let (answer, outcome) = match decided {
            Ok(admitted) => {
                let kind = admitted.kind;
                (Answer::Admitted(admitted), Ok((request.name, kind)))
            }
            Err(why) => (Answer::Refused(why.to_string()), Err(why)),
        };
        send(&mut stream, &answer)?;
        stream.conn.send_close_notify();
        let _ = io::Write::flush(&mut stream);
        Ok(outcome)
    }

    /// Admits a machine or not. One that asks again by the same token, since it did not hear the
    /// answer, gets another certificate of the same. That and every other certificate is only for
    /// who has the key.
    fn decide(&self, request: &Request, binding: &ChannelBinding) -> fs::Result<Admitted> {
        let Request { secret, name, addresses, public, targets, proof } = request;
        let register = Register::open(&self.directory)?;
        let allowed = register.allowed(secret)?;
        let unknown = || {
            invalid("this token is not known here, has expired or was used up; weft cluster token makes another one")
        };
        let (kind, left) = allowed.ok_or_else(unknown)?;
        if !wire::admission::proves(public, binding, proof) {
            return Err(invalid("the machine does not prove that it has the key"));
        }
        // A client is reached nowhere: its certificate is for no address.
        let serves = kind == Kind::Server;
        let list = |words: &Vec<String>| if serves { words.clone() } else { Vec::new() };
        let hexadecimal = public.iter().map(|byte| format!("{byte:02x}")).collect();
        let token = Token::hash(secret).to_hex().to_string();
        let (addresses, targets) = (list(addresses), list(targets));
        let machine = Machine { name: name.clone(), kind, public: hexadecimal, addresses, targets, token };
        let known = register.machines()?;
        // A member keeps its key and its kind. What it says of its disks may be another thing now.
        let earlier = known.iter().find(|other| other.name == *name);
        let earlier = earlier.filter(|other| other.public == machine.public && other.kind == kind);
        let is_again =
            earlier.is_some_and(|other| other.token == machine.token && other.addresses == machine.addresses);
        if left == 0 && !is_again {
            return Err(unknown());
        }
        self.check(&machine, earlier.is_some(), &known)?;
        let mut names = machine.addresses.clone();
        names.extend((kind == Kind::Operator).then(|| OPERATOR.into()));
        let authority = self.authority_key()?;
        let made = wire::certificates::new_node_for(&authority, public, name, &names, serves).map_err(invalid)?;
        let cluster_key = serves.then(|| whole::read(&self.directory.join(KEY_FILE))).transpose()?;
        // The use counts before the certificate exists: a crash in between costs a use.
        if !is_again {
            register.used(secret)?;
        }
        // The note comes first: by it, a machine that asks again is known.
        register.note(&machine)?;
        let certificate = self.certificate(name);
        whole::replace(&certificate, &made, 0o644)
            .map_err(|why| invalid(format_args!("cannot write {}: {why}", certificate.display())))?;
        Ok(Admitted { certificate: made, cluster_key, kind })
    }

    fn certificate(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.pem"))
    }

    /// Whether a machine may have what it asks for. `is_member`: it has joined before.
    fn check(&self, machine: &Machine, is_member: bool, known: &[Machine]) -> fs::Result<()> {
        let Machine { name, kind, addresses, .. } = machine;
        identity::check_names(name, addresses)?;
        machine.check()?;
        if *kind == Kind::Server && addresses.is_empty() {
            return Err(invalid("a server has an address"));
        }
        let conflict = |what: String| Err(Error::Conflict(what));
        let is_there = known.iter().any(|other| other.name == *name) || self.certificate(name).exists();
        if is_there && !is_member {
            return conflict(format!(
                "the cluster has a member {name} already; choose another --name, or say weft cluster forget {name} on \
                 the first machine if it is the same machine, and has lost its key"
            ));
        }
        let owner = |wanted: &str| names::owner(&self.directory, known, name, wanted);
        if let Some(other) = owner(name)? {
            return conflict(format!("{name} is a name or an address of the member {other}; choose another --name"));
        }
        for address in addresses.iter().filter(|address| !is_loopback(address)) {
            if let Some(other) = owner(address)? {
                return conflict(format!(
                    "another machine has the address {address}: {other}; if it is this one, say weft cluster forget \
                     {other} on the first machine"
                ));
            }
        }
        Ok(())
    }
}

/// Several machines of a cluster that is tried on one machine have the same address.
fn is_loopback(address: &str) -> bool {
    address.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
}

#[cfg(test)]
#[path = "desk_tests.rs"]
mod tests;
