//! Small objects, many in one stripe and one transaction: each of a few threads takes all that
//! wait, and each object is answered when its batch is durable. So the price of a sync is shared by
//! all who came meanwhile, and one that comes alone waits for nobody.

use crate::about::About;
use crate::place::{Objects, now, whole};
use bytes::Bytes;
use fs::{Ino, manifest};
use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// How many batches are on their way at a time.
const THREADS: usize = 4;
/// The most objects of a batch, and the most bytes.
const OBJECTS: usize = 256;
const BYTES: usize = 8 << 20;

/// An object that is to be created.
struct Item {
    parent: Ino,
    name: Vec<u8>,
    about: About,
    data: Bytes,
    /// Learns the number of the file, if the name was free.
    reply: oneshot::Sender<Result<Option<Ino>, String>>,
}

/// Names in directories.
type Names = HashSet<(Ino, Vec<u8>)>;

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Item>,
    ended: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next batch; None at the end. Two objects of one name are never in the same one.
    fn next(&self) -> Option<Vec<Item>> {
        let mut queue = self.queue();
        while queue.waiting.is_empty() {
            if queue.ended {
                return None;
            }
            queue = self.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        let (mut batch, mut names, mut bytes) = (Vec::new(), HashSet::new(), 0);
        let mut later = VecDeque::new();
        while let Some(item) = queue.waiting.pop_front() {
            let is_first = names.insert((item.parent, item.name.clone()));
            if is_first && batch.len() < OBJECTS && (batch.is_empty() || bytes + item.data.len() <= BYTES) {
                bytes += item.data.len();
                batch.push(item);
            } else {
                later.push_back(item);
            }
        }
        queue.waiting = later;
        Some(batch)
    }
}

/// The threads that create small objects.
pub struct Batches {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Batches {
    /// Starts the threads.
    pub fn start(objects: &Arc<Objects>) -> Self {
        let shared = Arc::<Shared>::default();
        let thread = |_| {
            let (shared, objects) = (shared.clone(), objects.clone());
            std::thread::spawn(move || {
                while let Some(batch) = shared.next() {
                    carry_out(&objects, batch);
                }
            })
        };
        Self { threads: (0..THREADS).map(thread).collect(), shared }
    }

    /// Creates a file under a name, and returns its number if the name was free. The file is
    /// durable.
    ///
    /// # Errors
    /// A text, when it may not be there.
    pub async fn put(&self, parent: Ino, name: Vec<u8>, about: About, data: Bytes) -> Result<Option<Ino>, String> {
        let (reply, answer) = oneshot::channel();
        self.shared.queue().waiting.push_back(Item { parent, name, about, data, reply });
        self.shared.wake.notify_one();
        answer.await.unwrap_or_else(|_| Err("a defect ended the batch".into()))
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        self.shared.queue().ended = true;
        self.shared.wake.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn carry_out(objects: &Objects, batch: Vec<Item>) {
    let done = fs::caught("storing objects", |_| {}, || create(objects, &batch));
    let (first, refused) = match done {
        Some(Ok(created)) => created,
        Some(Err(error)) => return answer_all(batch, &error.to_string()),
        None => return answer_all(batch, "a defect ended the batch"),
    };
    for (number, item) in batch.into_iter().enumerate() {
        let is_free = !refused.contains(&(item.parent, item.name));
        // Who asked may have gone.
        let _ = item.reply.send(Ok(is_free.then(|| first.plus(number as u64))));
    }
}

fn answer_all(batch: Vec<Item>, why: &str) {
    for item in batch {
        let _ = item.reply.send(Err(why.to_owned()));
    }
}

/// Creates the files of a batch. Returns the number of the first, and the names that were not free.
fn create(objects: &Objects, batch: &[Item]) -> fs::Result<(Ino, Names)> {
    let fs = &objects.fs;
    let first = fs.new_inos(batch.len() as u32)?;
    let mut load = fs.bulk_load()?;
    for (number, item) in batch.iter().enumerate() {
        let (ino, size, at) = (first.plus(number as u64), item.data.len() as u64, now());
        let file = whole(ino, item.parent, item.name.clone(), item.about.clone(), size, at);
        load.begin(ino, described(&file));
        add(&mut load, 0, &item.data)?;
        load.finish(file);
    }
    Ok((first, load.commit()?.refused.into_iter().collect()))
}

/// What the manifest of a stripe says of a file.
pub fn described(file: &fs::BulkFile) -> manifest::File {
    let (path, size, new) = (file.name.clone(), file.size, &file.new);
    manifest::File { path, size, mode: new.mode, uid: new.uid, gid: new.gid, modified: file.modified }
}

/// Adds bytes to the file that was begun last.
pub fn add(load: &mut fs::BulkLoad<'_>, mut offset: u64, mut data: &[u8]) -> fs::Result<()> {
    while !data.is_empty() {
        let copy = |into: &mut [u8]| {
            into.copy_from_slice(&data[..into.len()]);
            Ok::<usize, fs::Error>(into.len())
        };
        let added = load.add(offset, data.len(), copy)?.len();
        (offset, data) = (offset + added as u64, &data[added..]);
    }
    Ok(())
}
