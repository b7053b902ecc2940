//! The driver: one Weft volume, and this node.

use crate::messages::{AccessType, Mode, VolumeCapability};
use crate::mounts::WeftMount;
use crate::volumes::Volumes;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tonic::Status;

/// How many calls may wait for the Weft volume. More would keep threads from calls that need none.
const MOST_CALLS: usize = 64;
/// After this time a removal that failed is tried again.
const NEXT_REMOVAL: Duration = Duration::from_secs(60);

/// What all methods use.
pub struct Driver {
    /// What Kubernetes calls this driver.
    pub name: String,
    /// What Kubernetes calls this machine.
    pub node: String,
    pub mount: WeftMount,
    /// The directory of all volumes below the root of the Weft volume.
    root: String,
    /// Asks for a removal of what was deleted.
    removals: Mutex<Sender<()>>,
    /// Where something is published, or unpublished, at the moment.
    targets: Mutex<HashSet<PathBuf>>,
    /// A permit for each call that may wait for the Weft volume.
    pub calls: Arc<Semaphore>,
}

impl Driver {
    pub fn new(name: String, node: String, mount: WeftMount, root: &str, removals: Sender<()>) -> Self {
        let (targets, calls) = (Mutex::default(), Arc::new(Semaphore::new(MOST_CALLS)));
        Self { name, node, mount, root: root.into(), removals: Mutex::new(removals), targets, calls }
    }

    /// The volumes, on a mount that works.
    ///
    /// # Errors
    /// `UNAVAILABLE` when the Weft volume cannot be mounted.
    pub fn volumes(&self) -> Result<Volumes, Status> {
        Volumes::open(self.mount.point()?, &self.root)
    }

    /// Asks for a removal of the files of deleted volumes.
    pub fn remove_deleted(&self) {
        let _ = self.removals.lock().unwrap_or_else(PoisonError::into_inner).send(());
    }

    /// Removes the files of deleted volumes, each time that this is asked for. What fails is tried
    /// again. Only the controller is asked, so not every node does this.
    pub fn remove_what_is_deleted(&self, asked: &Receiver<()>) {
        let mut is_due = false;
        loop {
            let wait = if is_due { NEXT_REMOVAL } else { Duration::MAX };
            if asked.recv_timeout(wait) == Err(RecvTimeoutError::Disconnected) {
                return;
            }
            while asked.try_recv().is_ok() {}
            let removed = self.volumes().and_then(|volumes| volumes.remove_deleted());
            is_due = removed.is_err();
            if let Err(why) = removed {
                eprintln!("weft-csi: deleted volumes: {}", why.message());
            }
        }
    }

    /// Nothing else happens at this target until the claim is dropped.
    ///
    /// # Errors
    /// `ABORTED` if something does already.
    pub fn claim<'a>(&'a self, target: &'a Path) -> Result<Claim<'a>, Status> {
        let mut targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
        match targets.insert(target.into()) {
            true => Ok(Claim { driver: self, target }),
            false => Err(Status::aborted(format!("another call changes {}", target.display()))),
        }
    }
}

/// See [`Driver::claim`].
pub struct Claim<'a> {
    driver: &'a Driver,
    target: &'a Path,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.driver.targets.lock().unwrap_or_else(PoisonError::into_inner).remove(self.target);
    }
}

/// Refuses a text that is empty.
pub fn given<'a>(text: &'a str, what: &str) -> Result<&'a str, Status> {
    if text.is_empty() { Err(Status::invalid_argument(format!("{what} is missing"))) } else { Ok(text) }
}

/// What a volume cannot do of what is asked for, if anything.
///
/// # Errors
/// `INVALID_ARGUMENT` if it does not say what it asks for.
pub fn unsupported(asked: &[VolumeCapability]) -> Result<Option<String>, Status> {
    if asked.is_empty() {
        return Err(Status::invalid_argument("volume capabilities are missing"));
    }
    for capability in asked {
        let mode = capability.access_mode.as_ref().map_or(Mode::Unknown, |mode| mode.mode());
        if mode == Mode::Unknown {
            return Err(Status::invalid_argument("the access mode is missing"));
        }
        match &capability.access_type {
            None => return Err(Status::invalid_argument("the access type is missing")),
            Some(AccessType::Block(_)) => return Ok(Some("volumes are directories, not block devices".into())),
            Some(AccessType::Mount(mount)) => {
                if let Some(flag) = mount.mount_flags.iter().find(|flag| !["ro", "rw"].contains(&flag.as_str())) {
                    return Ok(Some(format!("mount option {flag:?}: options are given to the driver")));
                }
                if !mount.volume_mount_group.is_empty() {
                    return Ok(Some("a mount group: Kubernetes sets fsGroup itself".into()));
                }
            }
        }
    }
    Ok(None)
}

/// Whether what is asked for only reads.
pub fn is_read_only(asked: &VolumeCapability) -> bool {
    let mode = asked.access_mode.as_ref().map_or(Mode::Unknown, |mode| mode.mode());
    let has_flag = match &asked.access_type {
        Some(AccessType::Mount(mount)) => mount.mount_flags.iter().any(|flag| flag == "ro"),
        _ => false,
    };
    has_flag || matches!(mode, Mode::SingleNodeReaderOnly | Mode::MultiNodeReaderOnly)
}

/// As [`unsupported`], which is an error.
pub fn supported(asked: &[VolumeCapability]) -> Result<(), Status> {
    unsupported(asked)?.map_or(Ok(()), |what| Err(Status::invalid_argument(what)))
}
