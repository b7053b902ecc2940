//! The volume that this process has open for others: for a mount, or for the clients of a server.

use fs::FileSystem;
use std::sync::{Arc, RwLock};
use volume::unpoisoned;

/// A volume that is mounted by this process.
pub struct Serving {
    pub fs: Arc<FileSystem>,
    /// Where it is mounted or served, and what to do.
    pub place: String,
    /// Others have it over the network: paths of this machine mean nothing to them, nor theirs to
    /// it.
    pub to_others: bool,
}

static SERVED: RwLock<Option<Arc<Serving>>> = RwLock::new(None);

/// The volume that this process serves, if it is a mount, or the metadata server that has it.
pub fn served() -> Option<Arc<Serving>> {
    unpoisoned(SERVED.read()).clone()
}

/// From now on this process serves a volume.
pub fn set_served(serving: Serving) {
    *unpoisoned(SERVED.write()) = Some(Arc::new(serving));
}

/// This process no longer serves a volume.
pub fn clear_served() {
    unpoisoned(SERVED.write()).take();
}

/// Whether this process serves the volume to a cluster.
pub fn serves_others() -> bool {
    served().is_some_and(|served| served.to_others)
}
