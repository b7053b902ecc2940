//! The steps by name.

use std::fmt;

/// A step. Voters are numbers, servers letters.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// A server reads claims and asks all voters for one with this number. Whether it has found
    /// the new label.
    Start(usize, u8, bool),
    /// A voter gets a claim; whether its answer arrives.
    Claim(usize, usize, bool),
    /// A server reads journals and adopts a history.
    Adopt(usize),
    /// A voter gets all that the server had adopted, with the new epoch: the barrier, or a new
    /// mirror's copy.
    Put(usize, usize),
    /// A mirror gets the next transaction.
    Append(usize, usize),
    /// A server begins to answer.
    Establish(usize),
    /// A server writes a transaction.
    Write(usize),
    /// A server answers all that it knows to be durable.
    Answer(usize),
    /// A voter shows a server that it has its claim, and is not blank.
    Show(usize, usize),
    /// A blank voter counts from now on.
    Whole(usize, usize),
    /// A voter renews the lease.
    Renew(usize, usize),
    /// The lease that a voter gave runs out, for its holder not later than for the voter.
    Expire(usize),
    /// A server drops a mirror and removes the journal there.
    Drop(usize, usize),
    /// A voter loses all that it has.
    Wipe(usize),
    /// A server begins to change the label. The voters that leave and join.
    Change(usize, Option<usize>, Option<usize>),
    /// A voter gets the new label.
    Label(usize, usize),
    /// A server uses the new label from now on.
    Use(usize),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |server: usize| char::from(b'a' + server as u8);
        match *self {
            Self::Start(server, number, new) => {
                let found = if new { "; it has found the new label" } else { "" };
                write!(f, "server {} asks for claims with number {number}{found}", name(server))
            }
            Self::Claim(server, voter, true) => write!(f, "voter {voter} grants server {} its claim", name(server)),
            Self::Claim(server, voter, false) => {
                write!(f, "voter {voter} grants server {} its claim; the answer is lost", name(server))
            }
            Self::Adopt(server) => write!(f, "server {} adopts a history", name(server)),
            Self::Put(server, voter) => write!(f, "voter {voter} gets the state from server {}", name(server)),
            Self::Append(server, voter) => write!(f, "voter {voter} gets a transaction from server {}", name(server)),
            Self::Establish(server) => write!(f, "server {} begins to answer", name(server)),
            Self::Write(server) => write!(f, "server {} writes a transaction", name(server)),
            Self::Answer(server) => write!(f, "server {} answers what is durable", name(server)),
            Self::Show(server, voter) => write!(f, "voter {voter} shows server {} its claim", name(server)),
            Self::Whole(server, voter) => write!(f, "voter {voter} counts again, says server {}", name(server)),
            Self::Renew(server, voter) => write!(f, "voter {voter} renews the lease of server {}", name(server)),
            Self::Expire(voter) => write!(f, "the lease runs out at voter {voter}"),
            Self::Drop(server, voter) => write!(f, "server {} removes its journal at voter {voter}", name(server)),
            Self::Wipe(voter) => write!(f, "voter {voter} loses everything"),
            Self::Change(server, leaves, joins) => {
                write!(f, "server {} changes the label", name(server))?;
                leaves.map_or(Ok(()), |voter| write!(f, "; voter {voter} leaves"))?;
                joins.map_or(Ok(()), |voter| write!(f, "; voter {voter} joins"))
            }
            Self::Label(server, voter) => write!(f, "voter {voter} gets the new label from server {}", name(server)),
            Self::Use(server) => write!(f, "server {} uses the new label", name(server)),
        }
    }
}
