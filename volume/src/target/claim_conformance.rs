//! The contract of claims, as a part of the conformance of every target.

use super::{
    Allocation, Claim, ClaimRequest, ClaimState, Durable, Epoch, Holder, RENEWAL, Refusal, Target, TargetFile,
};
use crate::format::{CLAIM_BYTES, VolumeId};
use plan::{Position, SetId, TargetId, TxId};
use std::io::{Error, ErrorKind, IoSlice};
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(30);
const CHUNK: TargetFile = TargetFile::Chunk { set: SetId(3), position: Position(1) };
const NEW_CHUNK: TargetFile = TargetFile::NewChunk { set: SetId(3), position: Position(1) };
const PROBE: TargetFile = TargetFile::NewChunk { set: SetId(0), position: Position(7) };

/// A claim of the volume that the target belongs to.
pub(super) fn claim(number: u64, id: u128, holder: u128) -> Claim {
    Claim {
        volume: VolumeId([7; 16]),
        generation: 1,
        epoch: Epoch { number, id },
        mirrors: vec![TargetId(0), TargetId(9)],
        holder: Holder { id: holder, name: format!("holder {holder}"), address: "somewhere:1".into() },
    }
}

fn take(target: &dyn Target, claim: &Claim) -> std::io::Result<ClaimState> {
    target.claim(&ClaimRequest::Take { claim: claim.clone(), lease: LEASE, blank: 0 })
}

fn read(target: &dyn Target) -> ClaimState {
    target.claim(&ClaimRequest::Read).expect("read the claim")
}

fn fenced_by(error: &Error) -> Epoch {
    Refusal::fenced(error).unwrap_or_else(|| panic!("fenced, not {error:?}")).epoch
}

/// Every change of the volume as a whole.
fn change(target: &dyn Target, expected: impl Fn(std::io::Result<()>, &str)) {
    let bytes = [IoSlice::new(b"x")];
    for file in [
        TargetFile::Label,
        TargetFile::NewLabel,
        TargetFile::Journal { first: TxId(1) },
        TargetFile::Snapshot { last: TxId(1) },
    ] {
        let what = format!("{file:?}");
        expected(
            target.write(file, 0, &bytes, Durable::Later).and_then(|_| target.sync(file)).map(drop),
            &format!("write {what}"),
        );
        expected(target.write(file, 0, &bytes, Durable::Now).map(drop), &format!("write {what} durably"));
        expected(target.remove(file), &format!("remove {what}"));
    }
    expected(target.rename(NEW_CHUNK, CHUNK), "rename");
    expected(target.allocate(CHUNK, Allocation::Punch(0..1)), "punch");
    expected(target.remove(CHUNK), "remove a chunk");
    // Another holder may rebuild it by now.
    expected(target.remove(NEW_CHUNK), "remove a chunk that is being rebuilt");
    target.remove(PROBE).expect("remove a probe");
}

/// Claims the target, and releases it at the end. The target has no files, before and after.
pub(super) fn claims(target: &dyn Target) {
    let before = read(target).claim;
    let base = before.map_or(0, |claim| claim.epoch.number);
    let epoch = |number: u64, id: u128| Epoch { number: base + number, id };
    let of = |number: u64, id: u128, holder: u128| claim(base + number, id, holder);
    let missed = target.claim(&ClaimRequest::Release(epoch(1, 1))).expect_err("nobody has that epoch");
    assert!(Refusal::is_unclaimed(&missed), "{missed:?}");
    let first = of(1, 1, 1);
    let taken = take(target, &first).expect("claim");
    assert!(taken.claim.as_ref() == Some(&first) && taken.lease.runs(), "{taken:?}");
    assert!(read(target).claim.as_ref() == Some(&first) && read(target).lease.runs());
    // A renewal. It may name other mirrors.
    let mirrors = Claim { mirrors: vec![TargetId(3)], ..first.clone() };
    take(target, &first).expect("renew");
    assert_eq!(take(target, &mirrors).expect("renew with other mirrors").claim, Some(mirrors.clone()));
    // No other holder gets it while the lease runs, and none at all with a number that is not
    // higher.
    let held = take(target, &of(2, 2, 2)).expect_err("another holder has the lease");
    assert!(matches!(Refusal::of(&held), Some(Refusal::Held { claim: Some(claim), .. }) if **claim == mirrors));
    assert_eq!(held.kind(), ErrorKind::ResourceBusy);
    assert_eq!(fenced_by(&take(target, &of(1, 7, 1)).expect_err("the number is taken")), epoch(1, 1));
    if base > 0 {
        assert_eq!(fenced_by(&take(target, &of(0, 1, 1)).expect_err("a lower number")), epoch(1, 1));
    }
    // The holder that starts again does not wait.
    let second = of(3, 3, 1);
    take(target, &second).expect("the same holder");
    assert_eq!(fenced_by(&take(target, &first).expect_err("the epoch is over")), epoch(3, 3));
    let late = target.claim(&ClaimRequest::Release(epoch(1, 1))).expect_err("the epoch is over");
    assert_eq!(fenced_by(&late), epoch(3, 3));
    assert_eq!(read(target).claim, Some(second.clone()), "nothing of that changed it");
    // The own epoch changes everything.
    let bytes = [IoSlice::new(b"chunk")];
    target.write(NEW_CHUNK, 0, &bytes, Durable::Later).and_then(|_| target.sync(NEW_CHUNK)).expect("write a chunk");
    change(target, |done, what| done.unwrap_or_else(|error| panic!("{what}: {error}")));
    limits(target, &second);
    // A claim in the place of another one makes a target neither blank nor whole.
    let marked = ClaimRequest::Take { claim: second.clone(), lease: LEASE, blank: 7 };
    assert_eq!(target.claim(&marked).expect("renew").blank, 0);
    let whole = |epoch: Epoch| target.claim(&ClaimRequest::Whole { epoch, blank: 7 });
    assert_eq!(whole(second.epoch).expect("it counts already").blank, 0);
    assert_eq!(fenced_by(&whole(first.epoch).expect_err("the epoch is over")), epoch(3, 3));
    assert!(Refusal::is_unclaimed(&whole(epoch(9, 9)).expect_err("nobody has that epoch")));
    // What was released stays so: a renewal that arrives late prolongs nothing.
    let released = target.claim(&ClaimRequest::Release(second.epoch)).expect("release");
    assert!(released.claim == Some(second.clone()) && !released.lease.runs(), "{released:?}");
    target.claim(&ClaimRequest::Release(second.epoch)).expect("release again");
    assert_eq!(fenced_by(&take(target, &second).expect_err("it was released")), epoch(3, 3));
    // Without a claim, only chunks are appended to.
    target.write(CHUNK, 0, &bytes, Durable::Later).and_then(|_| target.sync(CHUNK)).expect("append to a chunk");
    target.write(NEW_CHUNK, 0, &bytes, Durable::Later).and_then(|_| target.sync(NEW_CHUNK)).expect("rebuild a chunk");
    change(target, |done, what| assert_eq!(fenced_by(&done.expect_err(what)), epoch(3, 3), "{what}"));
    // Another holder gets it at once.
    let third = of(4, 4, 2);
    take(target, &third).expect("nobody has it");
    [CHUNK, NEW_CHUNK].into_iter().for_each(|file| target.remove(file).expect("remove chunks"));
    target.claim(&ClaimRequest::Release(third.epoch)).expect("release");
    assert_eq!(read(target).claim, Some(third));
}

/// A target that nobody has claimed yet is blank after a claim with a mark, and keeps the mark when
/// the claim is replaced, until it is whole.
pub(super) fn blank(target: &dyn Target) {
    assert_eq!(read(target), ClaimState::default());
    let take = |number: u64, blank: u32| {
        let claim = claim(number, 1, 1);
        target.claim(&ClaimRequest::Take { claim, lease: LEASE, blank }).expect("claim")
    };
    let epoch = |number: u64| Epoch { number, id: 1 };
    let whole = |number: u64, blank: u32| target.claim(&ClaimRequest::Whole { epoch: epoch(number), blank });
    // A renewal claims nothing.
    let renewal = |number: u64| ClaimRequest::Take { claim: claim(number, 1, 1), lease: LEASE, blank: RENEWAL };
    assert!(Refusal::is_unclaimed(&target.claim(&renewal(1)).expect_err("it has no claim")));
    assert_eq!(read(target), ClaimState::default());
    assert_eq!(take(1, 5).blank, 5);
    assert_eq!(target.claim(&renewal(1)).expect("renew").blank, 5);
    assert_eq!([take(1, 6).blank, take(2, 0).blank, read(target).blank], [5, 5, 5]);
    assert_eq!((read(target).proof(), read(target).claim.map(|claim| claim.epoch)), (None, Some(epoch(2))));
    // It takes what it lacks.
    target.write(TargetFile::Snapshot { last: TxId(1) }, 0, &[IoSlice::new(b"x")], Durable::Now).expect("write");
    target.remove(TargetFile::Snapshot { last: TxId(1) }).expect("remove");
    whole(2, 6).expect_err("that was another time");
    assert_eq!(fenced_by(&whole(1, 5).expect_err("the epoch is over")), epoch(2));
    assert_eq!(read(target).blank, 5);
    assert_eq!(whole(2, 5).expect("it is whole").blank, 0);
    assert_eq!(whole(2, 5).expect("once more").blank, 0);
    assert_eq!([take(2, 7).blank, take(3, 8).blank, read(target).blank], [0; 3]);
    target.claim(&ClaimRequest::Release(epoch(3))).expect("release");
    assert_eq!(fenced_by(&whole(3, 8).expect_err("it was released")), epoch(3));
}

/// Claims that no target can keep are refused, and the longest one is kept.
fn limits(target: &dyn Target, own: &Claim) {
    let with = |name: usize, address: usize, mirrors: u16| {
        let holder = Holder { name: "n".repeat(name), address: "a".repeat(address), ..own.holder.clone() };
        Claim { holder, mirrors: (0..mirrors).map(TargetId).collect(), ..own.clone() }
    };
    let longest = with(256, 512, 512);
    assert_eq!(take(target, &longest).expect("the longest claim").claim, Some(longest));
    let other = Claim { volume: VolumeId([8; 16]), ..own.clone() };
    let zero = Claim { epoch: Epoch { number: 0, id: 5 }, ..own.clone() };
    for bad in [with(257, 0, 0), with(0, 513, 0), with(0, 0, 513), with(CLAIM_BYTES, 0, 0), other, zero] {
        let refused = take(target, &bad).expect_err("no claim");
        assert!(Refusal::of(&refused).is_none() && !refused.to_string().is_empty(), "{refused:?}");
    }
    take(target, own).expect("renew");
}
