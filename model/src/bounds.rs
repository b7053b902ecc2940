//! How large the model is, and which rule of the protocol is broken in it.

/// A change of the targets that vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// One more.
    Add,
    /// One less.
    Remove,
    /// One for another.
    Replace,
}

impl Change {
    /// All of them, with their names.
    pub const ALL: [(&'static str, Self); 3] =
        [("add", Self::Add), ("remove", Self::Remove), ("replace", Self::Replace)];
}

/// The bounds of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The voters, N: 5 at most.
    pub voters: u8,
    /// How many of them may be lost, m.
    pub losses: u8,
    /// Openings of the volume, each by a server of its own: 4 at most. A server that is started
    /// again is another one here: its old process goes on at any time, or never.
    pub openings: u8,
    /// How many transactions each of them writes.
    pub writes: u8,
    /// How many times a voter loses all that it has. At most m voters lack what they had at a time.
    pub wipes: u8,
    /// How many times a holder drops a mirror and removes its journal.
    pub drops: u8,
    /// Whether claims have leases. Without them any opening is granted at any time, which is more
    /// than with them, but nobody may answer reads.
    pub leases: bool,
    /// The change that a holder may begin, once: others complete it, or go on without it.
    pub change: Option<Change>,
}

impl Bounds {
    /// How many targets the label before the change lists, or that with it.
    pub fn members(&self, new: bool) -> u8 {
        match self.change.filter(|_| new) {
            Some(Change::Add) => self.voters + 1,
            Some(Change::Remove) => self.voters - 1,
            Some(Change::Replace) | None => self.voters,
        }
    }

    /// All targets: the voters, and the one that becomes one.
    pub fn targets(&self) -> usize {
        usize::from(self.voters + u8::from(matches!(self.change, Some(Change::Add | Change::Replace))))
    }

    /// The claims that an opening needs of the targets in a label.
    pub fn quorum(&self, new: bool) -> usize {
        usize::from((self.members(new) - self.losses).max(self.losses + 1))
    }

    /// The mirrors that make a transaction durable.
    pub fn durable(&self) -> usize {
        usize::from(self.losses) + 1
    }

    /// What is wrong with the bounds themselves.
    ///
    /// # Errors
    /// A sentence.
    pub fn sound(&self) -> Result<(), String> {
        let whole = usize::from(self.openings) * usize::from(self.writes);
        match () {
            () if self.losses > 2 => Err("at most 2 voters are lost".into()),
            () if self.targets() > 5 || self.openings > 4 => Err("at most 5 voters and 4 openings".into()),
            () if self.voters.min(self.members(true)) < 2 * self.losses + 1 => {
                Err("with m voters gone, m+1 must be left".into())
            }
            () if self.change.is_some() && self.wipes > 0 => Err("no losses beside a change".into()),
            () if self.wipes > 0 && self.losses == 0 => Err("no voter may be lost".into()),
            () if self.wipes > 4 => Err("at most 4 losses".into()),
            () if whole > 8 => Err("at most 8 transactions, in all openings together".into()),
            () => Ok(()),
        }
    }
}

/// A rule that is broken, so that the check must find a way to a wrong state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// A voter takes what a mirror gets without looking at its epoch.
    Fence,
    /// N-m-1 voters are enough for an opening.
    Quorum,
    /// m mirrors are enough for a transaction.
    Durable,
    /// A new mirror counts although it has only what is written from now on.
    Recruit,
    /// Epochs with one number are the same.
    Ids,
    /// The longest journal is adopted, of whatever epoch it is.
    Lineage,
    /// A voter grants a claim although it has promised not to.
    Lease,
    /// The claim that a voter had, which is read before the new one is made, alone says what it
    /// missed.
    ClaimRead,
    /// A voter that has lost everything is claimed and counts from then on.
    Blank,
    /// A blank voter counts before it, or enough others, have all that is durable.
    Whole,
    /// A blank voter counts although others may have the claim that was lost with it.
    Fresh,
    /// A server claims a voter that it counts as a mirror.
    Renewal,
    /// A new label is used when m+1 of its own voters have it, and not also m+1 of those before.
    Label,
    /// An opening that finds a new label needs claims of that one's voters alone, although it may
    /// never have been used.
    Joint,
    /// An opening reads labels before it claims, and not once more.
    Reread,
    /// A voter leaves although it is a mirror.
    Leave,
    /// During a change, a holder's lease counts at the voters before it alone.
    BothLeases,
}

impl Broken {
    /// All of them, with their names.
    pub const ALL: [(&'static str, Self); 17] = [
        ("fence", Self::Fence),
        ("quorum", Self::Quorum),
        ("durable", Self::Durable),
        ("recruit", Self::Recruit),
        ("ids", Self::Ids),
        ("lineage", Self::Lineage),
        ("lease", Self::Lease),
        ("claim-read", Self::ClaimRead),
        ("blank", Self::Blank),
        ("whole", Self::Whole),
        ("fresh", Self::Fresh),
        ("renewal", Self::Renewal),
        ("label", Self::Label),
        ("joint", Self::Joint),
        ("reread", Self::Reread),
        ("leave", Self::Leave),
        ("both-leases", Self::BothLeases),
    ];
}
