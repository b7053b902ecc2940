//! The post of this process among the metadata servers of a volume.

use cluster::meta_server::Post;
use std::sync::{Arc, OnceLock};

static POST: OnceLock<Arc<Post>> = OnceLock::new();

/// From now on this process is a metadata server.
pub fn take(post: Arc<Post>) {
    let _ = POST.set(post);
}

/// The post of this process, if it is a metadata server.
pub fn post() -> Option<&'static Arc<Post>> {
    POST.get()
}

/// The post of this process, if it stands by.
pub fn standing_by() -> Option<&'static Arc<Post>> {
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
