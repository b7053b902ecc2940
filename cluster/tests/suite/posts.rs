//! A metadata server's post goes on, or ends with an error, when something on its threads panics.

use cluster::meta_server::{Commands, Host, MetaServer, Peer, Post, PostOptions};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Opens nothing: the first attempts say that targets are away, and the next one panics.
#[derive(Default)]
struct Defective {
    attempts: AtomicU32,
    lines: std::sync::Mutex<Vec<String>>,
}

impl Host for Defective {
    fn open(&self, _: bool) -> fs::Result<Arc<MetaServer>> {
        assert!(self.attempts.fetch_add(1, Ordering::Relaxed) < 2, "a defect");
        Err(fs::Error::Unavailable("targets are away".into()))
    }

    fn ready(&self, _: Option<&Peer>) {}

    fn closing(&self) {}

    fn closed(&self) {}

    fn waits(&self, _: &fs::Error, _: Duration) -> bool {
        true
    }

    fn say(&self, line: &str) {
        self.lines.lock().unwrap().push(line.into());
    }
}

fn post(directory: &Path) -> Arc<Post> {
    let own = Peer { name: "a".into(), address: "127.0.0.1:1".into() };
    let options = PostOptions {
        directory: directory.into(),
        own,
        id: 7,
        places: Arc::default(),
        key: None,
        commands: Commands::new(|_, _, _| Vec::new()),
    };
    Post::new(options).unwrap()
}

#[test]
fn an_opening_that_panics_ends_the_start_with_an_error() {
    let path = std::env::temp_dir().join(format!("weft-posts-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    let volume = path.join("volume");
    let targets = (0..3).map(|number| path.join(format!("disk{number}"))).collect();
    fs::Create::new("films", "rs:2+1", targets).run(&volume).unwrap();
    let (post, host) = (post(&volume), Arc::new(Defective::default()));
    let ended = post.run(&host);
    assert!(ended.is_err_and(|why| why.to_string().contains("a defect in opening the volume")));
    assert_eq!(host.attempts.load(Ordering::Relaxed), 3);
    let lines = host.lines.lock().unwrap();
    assert!(lines.len() == 1 && lines[0].contains("opening the volume, see the message about a panic"), "{lines:?}");
    std::fs::remove_dir_all(&path).unwrap();
}
