//! A volume that this process has open for others: for a mount, or for the clients of a server. A
//! metadata server may have several, so a command that a process carries out for others has the
//! volume that it is for.

use cluster::meta_server::Post;
use fs::FileSystem;
use std::cell::RefCell;
use std::sync::{Arc, OnceLock, RwLock};
use volume::unpoisoned;

/// An open volume.
pub struct Serving {
    pub fs: Arc<FileSystem>,
    /// Where it is mounted or served, and what to do.
    pub place: String,
    /// Others have it over the network: paths of this machine mean nothing to them, nor theirs to
    /// it.
    pub to_others: bool,
}

/// A volume of a mount or a metadata server.
#[derive(Default)]
pub struct Hosted {
    serving: RwLock<Option<Arc<Serving>>>,
    post: OnceLock<Arc<Post>>,
}

impl Hosted {
    /// It is open from now on.
    pub fn set_serving(&self, serving: Serving) {
        *unpoisoned(self.serving.write()) = Some(Arc::new(serving));
    }

    /// It is not open any more.
    pub fn clear_serving(&self) {
        unpoisoned(self.serving.write()).take();
    }

    /// This process is one of its metadata servers.
    pub fn set_post(&self, post: Arc<Post>) {
        let _ = self.post.set(post);
    }
}

thread_local! {
    /// The volume of the command that this thread carries out for another process.
    static NOW: RefCell<Option<Arc<Hosted>>> = const { RefCell::new(None) };
}

/// Carries a command out for another process, on this volume.
pub fn under<T>(hosted: &Arc<Hosted>, work: impl FnOnce() -> T) -> T {
    let before = NOW.replace(Some(hosted.clone()));
    let done = work();
    NOW.set(before);
    done
}

fn now() -> Option<Arc<Hosted>> {
    NOW.with_borrow(Clone::clone)
}

/// The volume of the command that this thread carries out for another process, if it is open.
pub fn served() -> Option<Arc<Serving>> {
    now().and_then(|hosted| unpoisoned(hosted.serving.read()).clone())
}

/// Whether the volume of this command is served to a cluster.
pub fn serves_others() -> bool {
    served().is_some_and(|served| served.to_others)
}

/// The post of this process among the metadata servers of this command's volume, if it is one.
pub fn post() -> Option<Arc<Post>> {
    now()?.post.get().cloned()
}

/// The same, if it stands by.
pub fn standing_by() -> Option<Arc<Post>> {
    post().filter(|post| post.open().is_none())
}

/// Why this process cannot do what the client asks for: it stands by.
pub fn elsewhere() -> String {
    let holder = post().and_then(|post| post.standings().holder);
    match holder {
        Some(holder) => {
            format!("this metadata server stands by; {} has the volume: give weft://{}/..", holder.name, holder.address)
        }
        None => "this metadata server stands by, and no other one has the volume".into(),
    }
}
