//! The ranks of the locks of this crate, in the order in which a thread takes them; see
//! docs/threads.md.

use volume::ranked::FIRST_BRIEF;

volume::ranks! {
    // Turns: a target may be waited for under them.
    pub(crate) SessionEnds = 30;
    pub(crate) SessionNotes = 32;

    // What is held for moments only.
    pub(crate) ServerTicks = FIRST_BRIEF + 30;
    // A session that takes a lock of a file must not have ended.
    pub(crate) FileLocks = FIRST_BRIEF + 32;
    pub(crate) SessionTable = FIRST_BRIEF + 34;
    pub(crate) SessionsBefore = FIRST_BRIEF + 36;
    pub(crate) SetsBefore = FIRST_BRIEF + 38;
    pub(crate) SessionKey = FIRST_BRIEF + 40;
    pub(crate) SessionOpenings = FIRST_BRIEF + 42;
    pub(crate) RecallWays = FIRST_BRIEF + 44;
    pub(crate) Answers = FIRST_BRIEF + 100;
}
