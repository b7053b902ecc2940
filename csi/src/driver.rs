//! The driver: one Weft volume, and this node.

use crate::messages::{AccessType, Mode, VolumeCapability};
use crate::mounts::WeftMount;
use crate::volumes::Volumes;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use tonic::Status;

/// What all methods use.
pub struct Driver {
    /// What Kubernetes calls this driver.
    pub name: String,
    /// What Kubernetes calls this machine.
    pub node: String,
    pub mount: WeftMount,
    /// The directory of all volumes below the root of the Weft volume.
    root: String,
    /// Asks the thread that removes what was deleted.
    removals: Mutex<Option<Sender<Arc<Volumes>>>>,
}

impl Driver {
    pub fn new(name: String, node: String, mount: WeftMount, root: &str) -> Self {
        Self { name, node, mount, root: root.trim_matches('/').into(), removals: Mutex::default() }
    }

    /// The volumes, on a mount that works.
    ///
    /// # Errors
    /// `UNAVAILABLE` when the Weft volume cannot be mounted.
    pub fn volumes(&self) -> Result<Volumes, Status> {
        Volumes::open(self.mount.point()?.join(&self.root))
    }

    /// Removes the files of deleted volumes on a thread of its own.
    pub fn remove_deleted(&self, volumes: Volumes) {
        let mut removals = self.removals.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = removals.get_or_insert_with(|| {
            let (sender, asked) = channel::<Arc<Volumes>>();
            std::thread::spawn(move || asked.iter().for_each(|volumes| volumes.remove_deleted()));
            sender
        });
        let _ = sender.send(Arc::new(volumes));
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
