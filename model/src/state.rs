//! States of the model. All that belongs to one voter is in one place, so that voters can be
//! sorted: states that differ only in the order of voters are one.

use std::fmt;

/// The most voters and openings.
pub(crate) const VOTERS: usize = 5;
pub(crate) const OPENINGS: usize = 4;

/// An epoch. Number 0 means no epoch. The id is the opening's, from 1; id 0 created the volume.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Epoch {
    pub number: u8,
    pub id: u8,
}

/// Transactions in order, four bits each: the opening that wrote it, or a hole.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Log {
    bits: u32,
    length: u8,
}

/// A transaction that a mirror does not have although it has a later one.
const HOLE: u8 = 15;

impl Log {
    pub fn length(self) -> u8 {
        self.length
    }

    pub fn push(self, writer: u8) -> Self {
        Self { bits: self.bits | u32::from(writer) << (4 * self.length), length: self.length + 1 }
    }

    pub fn at(self, number: u8) -> u8 {
        (self.bits >> (4 * number) & 15) as u8
    }

    pub fn first(self, length: u8) -> Self {
        let mask = ((1u64 << (4 * length)) - 1) as u32;
        Self { bits: self.bits & mask, length: length.min(self.length) }
    }

    pub fn holes(length: u8) -> Self {
        (0..length).fold(Self::default(), |log, _| log.push(HOLE))
    }

    /// Whether it begins with another one.
    pub fn has(self, other: Self) -> bool {
        other.length <= self.length && self.first(other.length) == other
    }
}

/// The journal of a mirror: what it has got under an epoch, snapshot included.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Journal {
    /// None (number 0): there is no journal.
    pub epoch: Epoch,
    pub log: Log,
}

/// What an opening knows of a voter.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct View {
    /// The claim that the opening read before it asked for its own, if that rule is broken.
    pub before: Epoch,
    pub granted: bool,
    /// The voter has promised, by the clock of the holder, to grant no other claim.
    pub fresh: bool,
    /// One more than the number of transactions that it is known to have. 0: not a mirror.
    pub has: u8,
    /// It has told that it is blank.
    pub blank: bool,
    /// That is still so: it has lost nothing since, and has no other claim.
    pub marked: bool,
    /// Enough others have shown their claims since it told that: no claim was lost with it that
    /// still matters.
    pub sure: bool,
    /// It has shown the claim of this opening, and that it is not blank, since one told that it is.
    pub shown: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Voter {
    /// None (number 0): it has lost everything, and nobody has claimed it since.
    pub claim: Epoch,
    /// It was claimed after it had lost everything, and may lack what it had.
    pub blank: bool,
    /// The lease of the claim runs.
    pub lease: bool,
    pub journal: Journal,
    /// The label before the change lists it, that with the change does, and it has the latter.
    pub was: bool,
    pub is: bool,
    pub label: bool,
    pub views: [View; OPENINGS],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    #[default]
    Idle,
    /// It has asked all voters for a claim.
    Claiming,
    /// It has adopted a history, and brings it to mirrors.
    Adopted,
    /// It answers.
    Holder,
    /// It could not adopt one.
    Failed,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Opening {
    pub phase: Phase,
    pub epoch: Epoch,
    /// How many transactions it has adopted.
    pub base: u8,
    /// One more than what it knew to be durable when it found that a mirror has lost everything.
    pub kept: u8,
    pub log: Log,
    /// It has adopted less than was answered by then.
    pub lacks: bool,
    /// It uses the new label, or knows it while it claims.
    pub new: bool,
    /// It brings the new label to its voters.
    pub changes: bool,
}

/// What a step has done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fault {
    /// An opening answers, and has adopted less than was answered as durable.
    Lost,
    /// Two answers for one number.
    Forked,
}

/// A state of all voters and servers. What is on the network follows from it: see `voters.rs`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct State {
    pub(crate) voters: [Voter; VOTERS],
    pub(crate) openings: [Opening; OPENINGS],
    /// What was answered as durable, by all together.
    pub(crate) answered: Log,
    pub(crate) wipes: u8,
    pub(crate) drops: u8,
    /// A change was begun: it is known which voters the new label lists.
    pub(crate) changed: bool,
    pub(crate) fault: Option<Fault>,
}

impl Voter {
    /// Whether an opening counts it.
    pub fn counts(&self) -> bool {
        self.claim.number > 0 && !self.blank
    }

    /// Whether the label before the change lists it, or that with it.
    pub fn is_in(&self, new: bool) -> bool {
        if new { self.is } else { self.was }
    }
}

impl State {
    /// How many transactions were answered as durable.
    pub fn answered(&self) -> usize {
        self.answered.length().into()
    }

    /// Whether a server answers that uses the label of the change.
    pub fn is_changed(&self) -> bool {
        self.openings.iter().any(|opening| opening.new && opening.phase == Phase::Holder)
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.number == 0 { f.write_str("none") } else { write!(f, "{}.{}", self.number, self.id) }
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |number| match self.at(number) {
            HOLE => "-".to_owned(),
            writer => char::from(b'a' + writer - 1).to_string(),
        };
        write!(f, "[{}]", (0..self.length).map(name).collect::<String>())
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "answered {:?};", self.answered)?;
        for (number, voter) in self.voters.iter().enumerate() {
            if *voter == Voter::default() {
                continue;
            }
            let lease = if voter.lease { " leased" } else { "" };
            let Journal { epoch, log } = voter.journal;
            let blank = if voter.blank { " blank" } else { "" };
            let label = match (self.changed, voter.was, voter.is) {
                (false, true, _) => "",
                (false, false, _) => " spare",
                (true, true, true) => " stays",
                (true, true, false) => " leaves",
                (true, false, _) => " joins",
            };
            let has = if voter.label { ", has the new label" } else { "" };
            write!(f, " voter {number}{label}: claim {:?}{lease}{blank}{has}", voter.claim)?;
            if epoch.number > 0 { write!(f, ", journal {epoch:?} {log:?};")? } else { f.write_str(";")? }
        }
        for (number, opening) in self.openings.iter().enumerate().filter(|(_, opening)| opening.phase != Phase::Idle) {
            let Opening { phase, epoch, log, .. } = opening;
            let server = char::from(b'a' + number as u8);
            let new = if opening.new { ", new label" } else { "" };
            let changes = if opening.changes { ", changes it" } else { "" };
            write!(f, " server {server}: {phase:?} {epoch:?} {log:?}{new}{changes};")?;
        }
        Ok(())
    }
}
