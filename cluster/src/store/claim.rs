//! Claims at a store: the messages, and the gate that makes a change of the claim atomic among the
//! operations on a target.

use super::protocol::encode;
use plan::TargetId;
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::{RwLock, RwLockReadGuard};
use std::time::Duration;
use volume::format::VolumeId;
use volume::target::{
    Claim, ClaimRequest, ClaimState, ClaimedChange, Epoch, Holder, Lease, Refusal, Target, TargetFile,
};
use volume::unpoisoned;

/// The epoch of a request, which follows its operands. Older clients do not send it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// The request comes from a client that knows no claims.
    Nothing,
    /// The epoch under which it changes the volume, if it has claimed the target.
    Epoch(Option<Epoch>),
}

/// Encodes what follows the operands.
pub fn encode_epoch(epoch: Option<Epoch>) -> Vec<u8> {
    encode(&epoch.map(|epoch| (epoch.number, epoch.id)))
}

/// Decodes what follows the operands.
///
/// # Errors
/// If there is something else.
pub fn decode_epoch(rest: &[u8]) -> io::Result<Said> {
    if rest.is_empty() {
        return Ok(Said::Nothing);
    }
    let epoch: Option<(u64, u128)> = postcard::from_bytes(rest).map_err(|_| unreadable("an epoch"))?;
    Ok(Said::Epoch(epoch.map(|(number, id)| Epoch { number, id })))
}

fn unreadable(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{what} that cannot be read"))
}

/// A claim in messages.
#[derive(Serialize, Deserialize)]
struct ClaimMessage {
    volume: [u8; 16],
    generation: u64,
    epoch: (u64, u128),
    mirrors: Vec<u16>,
    holder: (u128, String, String),
}

impl From<&Claim> for ClaimMessage {
    fn from(claim: &Claim) -> Self {
        let Claim { volume, generation, epoch, mirrors, holder } = claim;
        Self {
            volume: volume.0,
            generation: *generation,
            epoch: (epoch.number, epoch.id),
            mirrors: mirrors.iter().map(|mirror| mirror.0).collect(),
            holder: (holder.id, holder.name.clone(), holder.address.clone()),
        }
    }
}

impl From<ClaimMessage> for Claim {
    fn from(message: ClaimMessage) -> Self {
        let ClaimMessage { volume, generation, epoch: (number, id), mirrors, holder: (holder, name, address) } =
            message;
        Self {
            volume: VolumeId(volume),
            generation,
            epoch: Epoch { number, id },
            mirrors: mirrors.into_iter().map(TargetId).collect(),
            holder: Holder { id: holder, name, address },
        }
    }
}

/// A request in messages. Times are in milliseconds. The mark of a target without a claim follows
/// `Take`, if it is not 0; so does that of a blank target the state of a claim. Who knows no marks
/// reads no further.
#[derive(Serialize, Deserialize)]
enum Ask {
    Read,
    Take(ClaimMessage, u64),
    Release(u64, u128),
    Whole(u64, u128, u32),
}

/// The state of a lease in messages.
#[derive(Serialize, Deserialize)]
enum LeaseMessage {
    Over,
    Released,
    Runs(u64),
    Locked,
}

/// A refusal in messages.
#[derive(Serialize, Deserialize)]
enum Refused {
    Fenced(ClaimMessage),
    Held(Option<ClaimMessage>, Option<u64>),
    Unclaimed(Option<(u64, u128)>),
}

/// Milliseconds, rounded up, so that no caller asks again too early.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Encodes a request.
pub fn encode_ask(ask: &ClaimRequest) -> Vec<u8> {
    let (asked, mark) = match ask {
        ClaimRequest::Read => (Ask::Read, 0),
        ClaimRequest::Take { claim, lease, blank } => (Ask::Take(claim.into(), millis(*lease)), *blank),
        ClaimRequest::Release(epoch) => (Ask::Release(epoch.number, epoch.id), 0),
        ClaimRequest::Whole { epoch, blank } => (Ask::Whole(epoch.number, epoch.id, *blank), 0),
    };
    [encode(&asked), encode_mark(mark)].concat()
}

fn encode_mark(mark: u32) -> Vec<u8> {
    if mark == 0 { Vec::new() } else { encode(&mark) }
}

fn decode_mark(rest: &[u8]) -> io::Result<u32> {
    if rest.is_empty() { Ok(0) } else { postcard::from_bytes(rest).map_err(|_| unreadable("a mark")) }
}

/// Decodes a request.
fn decode_ask(bytes: &[u8]) -> io::Result<ClaimRequest> {
    let (ask, rest) = postcard::take_from_bytes(bytes).map_err(|_| unreadable("a claim"))?;
    Ok(match ask {
        Ask::Read => ClaimRequest::Read,
        Ask::Take(message, lease) => {
            let lease = Duration::from_millis(lease);
            ClaimRequest::Take { claim: message.into(), lease, blank: decode_mark(rest)? }
        }
        Ask::Release(number, id) => ClaimRequest::Release(Epoch { number, id }),
        Ask::Whole(number, id, blank) => ClaimRequest::Whole { epoch: Epoch { number, id }, blank },
    })
}

/// Encodes an answer.
fn encode_state(state: &ClaimState) -> Vec<u8> {
    let lease = match state.lease {
        Lease::Over => LeaseMessage::Over,
        Lease::Released => LeaseMessage::Released,
        Lease::Runs(left) => LeaseMessage::Runs(millis(left)),
        Lease::Locked => LeaseMessage::Locked,
    };
    [encode(&(state.claim.as_ref().map(ClaimMessage::from), lease)), encode_mark(state.blank)].concat()
}

/// Decodes an answer.
///
/// # Errors
/// If it cannot be read.
pub fn decode_state(body: &[u8]) -> io::Result<ClaimState> {
    let ((claim, lease), rest): ((Option<ClaimMessage>, LeaseMessage), &[u8]) =
        postcard::take_from_bytes(body).map_err(|_| unreadable("a claim"))?;
    let lease = match lease {
        LeaseMessage::Over => Lease::Over,
        LeaseMessage::Released => Lease::Released,
        LeaseMessage::Runs(left) => Lease::Runs(Duration::from_millis(left)),
        LeaseMessage::Locked => Lease::Locked,
    };
    Ok(ClaimState { claim: claim.map(Claim::from), lease, blank: decode_mark(rest)? })
}

/// Encodes a refusal as the body of an answer; None if the error is something else.
pub fn encode_refusal(error: &io::Error) -> Option<Vec<u8>> {
    Some(encode(&match Refusal::of(error)? {
        Refusal::Fenced(claim) => Refused::Fenced((&**claim).into()),
        Refusal::Held { claim, remaining } => {
            Refused::Held(claim.as_deref().map(ClaimMessage::from), remaining.map(millis))
        }
        Refusal::Unclaimed(held) => Refused::Unclaimed(held.map(|epoch| (epoch.number, epoch.id))),
    }))
}

/// Decodes the refusal in the body of an answer.
pub fn decode_refusal(body: &[u8]) -> io::Error {
    match postcard::from_bytes(body) {
        Ok(Refused::Fenced(message)) => Refusal::Fenced(Box::new(message.into())).into(),
        Ok(Refused::Held(message, left)) => {
            let claim = message.map(|message| Box::new(message.into()));
            Refusal::Held { claim, remaining: left.map(Duration::from_millis) }.into()
        }
        Ok(Refused::Unclaimed(held)) => Refusal::Unclaimed(held.map(|(number, id)| Epoch { number, id })).into(),
        Err(_) => unreadable("a refusal"),
    }
}

/// Lets changes of a target pass at the same time, and a change of its claim only alone. So an
/// operation that was checked under one epoch has ended before another epoch is granted.
#[derive(Debug, Default)]
pub struct Gate(RwLock<()>);

impl Gate {
    /// Executes a request, which is the payload of a message. Returns the body of the answer.
    /// `volume` is the one that the label of the target names, if there is one.
    ///
    /// # Errors
    /// Those of [`Target::claim`]; `InvalidInput` for the claim of another volume.
    pub fn claim(&self, target: &dyn Target, volume: Option<[u8; 16]>, request: &[u8]) -> io::Result<Vec<u8>> {
        let ask = decode_ask(request)?;
        if let (ClaimRequest::Take { claim, .. }, Some(volume)) = (&ask, volume)
            && claim.volume.0 != volume
        {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the target belongs to another volume"));
        }
        {
            let _pass = self.pass();
            let held = || Ok::<_, io::Error>(target.claim(&ClaimRequest::Read)?.claim.map(|claim| claim.epoch));
            // A renewal changes no epoch, and must not wait for the disk.
            let alone = match &ask {
                ClaimRequest::Read | ClaimRequest::Whole { .. } => false,
                ClaimRequest::Take { claim, .. } => held()? != Some(claim.epoch),
                ClaimRequest::Release(_) => true,
            };
            if !alone {
                return Ok(encode_state(&target.claim(&ask)?));
            }
        }
        let _alone = unpoisoned(self.0.write());
        Ok(encode_state(&target.claim(&ask)?))
    }

    fn pass(&self) -> RwLockReadGuard<'_, ()> {
        unpoisoned(self.0.read())
    }

    /// Lets a change of a file pass if it needs no claim or has it. The claim stays as it is while
    /// the value that this returns exists.
    ///
    /// # Errors
    /// A [`Refusal`]. For a client that knows no claims, a text that says so.
    pub fn allow(
        &self,
        target: &dyn Target,
        change: ClaimedChange,
        file: TargetFile,
        said: Said,
    ) -> io::Result<Option<RwLockReadGuard<'_, ()>>> {
        if !change.needs_claim(file) {
            return Ok(None);
        }
        let pass = self.pass();
        let state = target.claim(&ClaimRequest::Read)?;
        match (said, &state.claim) {
            (Said::Epoch(epoch), _) => state.check(epoch)?,
            (Said::Nothing, None) => {}
            (Said::Nothing, Some(_)) => {
                let what = "the volume is claimed by a newer weft, and this one is too old to change it";
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
            }
        }
        Ok(Some(pass))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{is_table, line};
    use plan::Position;
    use plan::SetId;
    use std::io::IoSlice;
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use volume::target::{Durable, Memory};

    const LABEL: TargetFile = TargetFile::Label;

    fn claim(number: u64, holder: u128) -> Claim {
        Claim {
            volume: VolumeId([7; 16]),
            generation: 5,
            epoch: Epoch { number, id: u128::MAX - 3 },
            mirrors: vec![TargetId(1), TargetId(u16::MAX)],
            holder: Holder { id: holder, name: "server".into(), address: "here:1".into() },
        }
    }

    fn take(number: u64, holder: u128) -> ClaimRequest {
        ClaimRequest::Take { claim: claim(number, holder), lease: Duration::from_millis(1500), blank: 0 }
    }

    /// `messages_keep_what_they_mean` decodes each of these kinds.
    #[test]
    fn messages_have_fixed_bytes() {
        let ask = |name, ask: ClaimRequest| line(name, &encode_ask(&ask));
        let state = |name, claim, lease, blank| line(name, &encode_state(&ClaimState { claim, lease, blank }));
        let refusal = |name, refusal: Refusal| line(name, &encode_refusal(&refusal.into()).unwrap());
        let (left, epoch) = (Duration::from_millis(300), Epoch { number: 300, id: 5 });
        let lines = [
            ask("read", ClaimRequest::Read),
            ask("take", take(300, 9)),
            ask("take-marked", ClaimRequest::Take { claim: claim(300, 9), lease: Duration::ZERO, blank: 300 }),
            ask("release", ClaimRequest::Release(claim(300, 9).epoch)),
            ask("whole", ClaimRequest::Whole { epoch: claim(4, 9).epoch, blank: 7 }),
            state("over", None, Lease::Over, 0),
            state("released", Some(claim(1, 9)), Lease::Released, 0),
            state("runs", Some(claim(2, 9)), Lease::Runs(left), 0),
            state("locked", Some(claim(3, 9)), Lease::Locked, 0),
            state("marked", None, Lease::Over, 300),
            refusal("fenced", Refusal::Fenced(Box::new(claim(4, 9)))),
            refusal("held", Refusal::Held { claim: Some(Box::new(claim(5, 9))), remaining: Some(left) }),
            refusal("held-unknown", Refusal::Held { claim: None, remaining: None }),
            refusal("unclaimed", Refusal::Unclaimed(Some(epoch))),
            refusal("unclaimed-unknown", Refusal::Unclaimed(None)),
            line("epoch", &encode_epoch(Some(epoch))),
            line("no-epoch", &encode_epoch(None)),
        ];
        is_table(include_str!("../golden/claim.txt"), &lines);
    }

    #[test]
    fn messages_keep_what_they_mean() {
        let whole = ClaimRequest::Whole { epoch: claim(4, 9).epoch, blank: 7 };
        let marked = ClaimRequest::Take { claim: claim(4, 9), lease: Duration::ZERO, blank: u32::MAX };
        for ask in [ClaimRequest::Read, take(4, 9), ClaimRequest::Release(claim(4, 9).epoch), whole, marked] {
            assert_eq!(decode_ask(&encode_ask(&ask)).unwrap(), ask);
        }
        for lease in [Lease::Over, Lease::Released, Lease::Runs(Duration::from_millis(7)), Lease::Locked] {
            for claim in [None, Some(claim(3, 1))] {
                for blank in [0, 1, u32::MAX] {
                    let state = ClaimState { claim: claim.clone(), lease, blank };
                    assert_eq!(decode_state(&encode_state(&state)).unwrap(), state);
                }
            }
        }
        let refusals = [
            Refusal::Fenced(Box::new(claim(1, 1))),
            Refusal::Held { claim: None, remaining: None },
            Refusal::Held { claim: Some(Box::new(claim(1, 1))), remaining: Some(Duration::from_millis(3)) },
            Refusal::Unclaimed(None),
            Refusal::Unclaimed(Some(Epoch { number: 1, id: 2 })),
        ];
        for refusal in refusals {
            let body = encode_refusal(&refusal.clone().into()).unwrap();
            assert_eq!(Refusal::of(&decode_refusal(&body)), Some(&refusal));
        }
        assert_eq!(encode_refusal(&io::ErrorKind::NotFound.into()), None);
        for epoch in [None, Some(Epoch { number: u64::MAX, id: u128::MAX })] {
            assert_eq!(decode_epoch(&encode_epoch(epoch)).unwrap(), Said::Epoch(epoch));
        }
        assert_eq!(decode_epoch(&[]).unwrap(), Said::Nothing);
        let odd = [0xff; 9];
        assert!(decode_ask(&odd).is_err() && decode_state(&odd).is_err() && decode_epoch(&odd).is_err());
        assert!(Refusal::of(&decode_refusal(&odd)).is_none());
    }

    /// Without a mark, the bytes are those of before marks. With one, they say as much to who knows
    /// no marks.
    #[test]
    fn who_knows_no_marks_reads_the_rest() {
        let message = |mark: u32| {
            let ask = ClaimRequest::Take { claim: claim(4, 9), lease: Duration::ZERO, blank: mark };
            let state = ClaimState { claim: Some(claim(4, 9)), lease: Lease::Over, blank: mark };
            (encode_ask(&ask), encode_state(&state))
        };
        let (plain, marked) = (message(0), message(300));
        let expected = encode(&Ask::Take((&claim(4, 9)).into(), 0));
        assert_eq!((&plain.0, marked.0.strip_prefix(&plain.0[..])), (&expected, Some(&[0xac, 2][..])));
        assert_eq!(plain.1, encode(&(Some(ClaimMessage::from(&claim(4, 9))), LeaseMessage::Over)));
        assert!(postcard::from_bytes::<Ask>(&marked.0).is_ok());
        assert!(postcard::from_bytes::<(Option<ClaimMessage>, LeaseMessage)>(&marked.1).is_ok());
    }

    #[test]
    fn a_client_that_knows_no_claims_changes_only_what_nobody_claimed() {
        let (gate, memory) = (Gate::default(), Memory::default());
        let allow = |said| gate.allow(&memory, ClaimedChange::Write, LABEL, said).map(drop);
        allow(Said::Nothing).unwrap();
        allow(Said::Epoch(None)).unwrap();
        gate.claim(&memory, Some([7; 16]), &encode_ask(&take(2, 1))).unwrap();
        assert!(allow(Said::Nothing).unwrap_err().to_string().contains("too old"));
        assert!(Refusal::fenced(&allow(Said::Epoch(None)).unwrap_err()).is_some());
        allow(Said::Epoch(Some(claim(2, 1).epoch))).unwrap();
        assert!(Refusal::fenced(&allow(Said::Epoch(Some(claim(1, 1).epoch))).unwrap_err()).is_some());
        assert!(Refusal::is_unclaimed(&allow(Said::Epoch(Some(claim(3, 1).epoch))).unwrap_err()));
        // Chunks are appended to by other rules.
        let chunk = TargetFile::Chunk { set: SetId(1), position: Position(1) };
        gate.allow(&memory, ClaimedChange::Write, chunk, Said::Nothing).unwrap();
        assert!(gate.allow(&memory, ClaimedChange::Remove, chunk, Said::Nothing).is_err());
        assert!(gate.claim(&memory, Some([8; 16]), &encode_ask(&take(5, 1))).is_err(), "of another volume");
    }

    /// What was allowed under an epoch has ended when the next one is granted. A renewal does not
    /// wait for it.
    #[test]
    fn a_new_epoch_waits_for_the_operations_of_the_old_one() {
        let (gate, memory) = (Arc::new(Gate::default()), Arc::new(Memory::default()));
        gate.claim(&*memory, None, &encode_ask(&take(1, 1))).unwrap();
        let pass = gate.allow(&*memory, ClaimedChange::Write, LABEL, Said::Epoch(Some(claim(1, 1).epoch))).unwrap();
        gate.claim(&*memory, None, &encode_ask(&take(1, 1))).unwrap();
        let (sender, granted) = channel();
        let taking = std::thread::spawn({
            let (gate, memory) = (gate.clone(), memory.clone());
            move || {
                gate.claim(&*memory, None, &encode_ask(&take(2, 1))).unwrap();
                sender.send(()).unwrap();
            }
        });
        assert!(granted.recv_timeout(Duration::from_millis(50)).is_err());
        memory.write(LABEL, 0, &[IoSlice::new(b"old")], Durable::Later).unwrap();
        assert_eq!(memory.claim(&ClaimRequest::Read).unwrap().claim, Some(claim(1, 1)));
        drop(pass);
        granted.recv().unwrap();
        taking.join().unwrap();
        assert_eq!(memory.claim(&ClaimRequest::Read).unwrap().claim, Some(claim(2, 1)));
    }
}
