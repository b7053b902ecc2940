//! The ranks of the locks of this crate, in the order in which a thread takes them; see
//! docs/threads.md.

use volume::ranked::FIRST_BRIEF;

volume::ranks! {
    // Turns: a server or a target may be asked under them. A request for tokens is under those of
    // the file system, and when another server answers it, the session is reclaimed under it.
    pub(crate) TokenRequest = 46;
    pub(crate) StandbyIndex = 80;
    pub(crate) Formatting = 82;

    // What is held for moments only. This one is before the sessions' table.
    pub(crate) SessionAnswers = FIRST_BRIEF + 29;
    pub(crate) RetiredServer = FIRST_BRIEF + 102;
    pub(crate) StandbyWalk = FIRST_BRIEF + 104;
    pub(crate) StandbyCourse = FIRST_BRIEF + 106;
    pub(crate) StandbyPosition = FIRST_BRIEF + 108;
    pub(crate) LinkServers = FIRST_BRIEF + 110;
    pub(crate) LinkVolume = FIRST_BRIEF + 112;
    pub(crate) LinkRequests = FIRST_BRIEF + 114;
    pub(crate) LinkProof = FIRST_BRIEF + 116;
    pub(crate) KnownTokens = FIRST_BRIEF + 118;
    // A store.
    pub(crate) StoreSlots = FIRST_BRIEF + 123;
    pub(crate) PeersInUse = FIRST_BRIEF + 120;
    pub(crate) PeerNumbers = FIRST_BRIEF + 122;
    pub(crate) ServedTarget = FIRST_BRIEF + 124;
    pub(crate) ServedVolume = FIRST_BRIEF + 126;
    pub(crate) AppendLedger = FIRST_BRIEF + 128;
    // The way to a store.
    pub(crate) StoreClients = FIRST_BRIEF + 130;
    pub(crate) StoreFence = FIRST_BRIEF + 132;
    pub(crate) StoreUnsynced = FIRST_BRIEF + 134;
    pub(crate) StoreEpoch = FIRST_BRIEF + 136;
}
