//! The ranks of the locks of this crate, in the order in which a thread takes them; see
//! docs/threads.md. Those of the metadata are between the turns and the others.

use ::volume::ranked::FIRST_BRIEF;

::volume::ranks! {
    // Turns: a server or a target may be asked under them.
    pub(crate) TargetChanges = 10;
    pub(crate) OrphanRemoval = 12;
    pub(crate) LabelChange = 14;
    pub(crate) FileContent = 20;
    pub(crate) FileNames = 22;
    pub(crate) SetBeginning = 40;
    pub(crate) SetRequest = 42;
    pub(crate) Heartbeat = 44;
    /// Within a request, when another server answers it.
    pub(crate) Reclaiming = 48;
    pub(crate) SetHistory = 50;

    // What is held for moments only.
    pub(crate) FileTable = FIRST_BRIEF;
    pub(crate) FileStates = FIRST_BRIEF + 2;
    pub(crate) UnsyncedSets = FIRST_BRIEF + 4;
    pub(crate) LackingSets = FIRST_BRIEF + 5;
    pub(crate) OpenSets = FIRST_BRIEF + 6;
    pub(crate) LeasedSets = FIRST_BRIEF + 7;
    pub(crate) PinnedSets = FIRST_BRIEF + 8;
    pub(crate) SealedSets = FIRST_BRIEF + 10;
    pub(crate) SetLayouts = FIRST_BRIEF + 12;
    pub(crate) StoreDetails = FIRST_BRIEF + 14;
    pub(crate) MemoryWait = FIRST_BRIEF + 20;
    pub(crate) MemoryStuck = FIRST_BRIEF + 22;
    pub(crate) OrphanCandidates = FIRST_BRIEF + 24;
    pub(crate) VolumeLabel = FIRST_BRIEF + 26;
    pub(crate) MissingTargets = FIRST_BRIEF + 28;
    // A client.
    pub(crate) ClientOpens = FIRST_BRIEF + 50;
    pub(crate) ClientDirty = FIRST_BRIEF + 52;
    pub(crate) ClientReservations = FIRST_BRIEF + 54;
    pub(crate) ClientOwed = FIRST_BRIEF + 56;
    pub(crate) ClientRecalled = FIRST_BRIEF + 58;
    pub(crate) ClientLocks = FIRST_BRIEF + 60;
    pub(crate) ClientHeard = FIRST_BRIEF + 62;
    pub(crate) UnsyncedChanges = FIRST_BRIEF + 64;
    pub(crate) CachedNames = FIRST_BRIEF + 66;
}
