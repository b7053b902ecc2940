//! How machines join a cluster without files that are copied by hand. On the first machine, which
//! has the authority, a desk ([`Desk`]) gives certificates to those that show a token; a machine
//! that has one asks for its certificate ([`Visit`]). A token names the desk's address, the
//! fingerprint of the authority and a secret that expires.
//!
//! ```text
//! machine                              desk
//! "weft join 1\n"                 ->
//!                                 <-   the authority's certificate, which is public
//! (compares its fingerprint with the token; from here on TLS 1.3, the desk has a certificate)
//! secret, name, public key, proof  ->
//!                                 <-   certificate, and for servers the cluster's key
//! ```
//!
//! The proof is a signature by the machine's key of what only the two ends of the connection know:
//! names and public keys are visible to everybody, and give no one the certificate of another.

mod desk;
mod names;
mod register;
mod stream;
mod token;
mod visit;

pub use desk::Desk;
pub use register::{Machine, Register, machines};
pub use token::{Kind, Token};
pub use visit::Visit;

use serde::{Deserialize, Serialize};

/// What a machine says first: the version of what follows.
const GREETING: &str = "weft join 1\n";

/// What a machine asks for: a certificate (as RFC 2986, with other fields).
#[derive(Serialize, Deserialize)]
struct Request {
    /// That of the token.
    secret: String,
    /// What the machine is called.
    name: String,
    /// Where others reach it: IP addresses and host names.
    addresses: Vec<String>,
    /// The public half of its key.
    public: Vec<u8>,
    /// What its store has, as `store://HOST:PORT/TARGET`.
    targets: Vec<String>,
    /// That the machine has the key, on this connection.
    proof: Vec<u8>,
}

/// What a machine gets.
#[derive(Clone, Serialize, Deserialize)]
pub struct Admitted {
    /// Its certificate (PEM).
    pub certificate: String,
    /// The text of the file with the cluster's key: only for servers.
    pub cluster_key: Option<String>,
    /// What it is from now on.
    pub kind: Kind,
}

#[derive(Serialize, Deserialize)]
enum Answer {
    Admitted(Admitted),
    Refused(String),
}
