//! The ranks of the locks of this crate, in the order in which a thread takes them; see
//! docs/threads.md.

use volume::ranked::FIRST_BRIEF;

volume::ranks! {
    // Turns: targets may be waited for under them.
    pub(crate) FileNumbers = 60;
    pub(crate) SetNumbers = 62;
    pub(crate) NameOrdersMade = 64;
    pub(crate) MirrorChanges = 70;
    pub(crate) CommitOrder = 72;

    // What is held for moments only.
    pub(crate) NameOrders = FIRST_BRIEF + 77;
    pub(crate) LeaseGrants = FIRST_BRIEF + 78;
    pub(crate) Changes = FIRST_BRIEF + 80;
    pub(crate) MirrorFiles = FIRST_BRIEF + 82;
    pub(crate) MirrorStates = FIRST_BRIEF + 84;
    pub(crate) CommitLog = FIRST_BRIEF + 86;
    pub(crate) CheckpointTasks = FIRST_BRIEF + 88;
}
