//! What must not be dropped by a thread that moves messages.

use std::ops::Deref;
use tokio::runtime::{Handle, RuntimeFlavor};

/// Content whose end may wait for threads and disks, as that of an open volume does. If a thread of
/// the runtime has it last, a thread of its own drops it.
#[derive(Debug)]
pub(super) struct DroppedBeside<T: Send + 'static>(Option<T>);

impl<T: Send + 'static> DroppedBeside<T> {
    pub fn new(content: T) -> Self {
        Self(Some(content))
    }
}

impl<T: Send + 'static> Deref for DroppedBeside<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl<T: Send + 'static> Drop for DroppedBeside<T> {
    fn drop(&mut self) {
        let content = self.0.take();
        // Blocking the only thread of a simulation delays nothing else.
        if Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() != RuntimeFlavor::CurrentThread) {
            // Without a thread, it is dropped here.
            let _ = std::thread::Builder::new().spawn(move || drop(content));
        }
    }
}
