//! What a mount needs of a file system, so that tests can do without a volume.

use fs::{
    Allocate, Attributes, FileLock, FileSystem, Ino, Listed, Lookup, New, RenameMode, Result, Seek, SetAttributes,
    Usage,
};
use std::time::Duration;

/// Declares [`Files`] and implements it for [`FileSystem`].
macro_rules! files {
    ($(fn $name:ident(&self $(, $argument:ident: $kind:ty)*) -> $result:ty;)*) => {
        /// The methods of [`FileSystem`], with their meaning there.
        pub(crate) trait Files: Send + Sync + 'static {
            fn in_this_session<T>(&self, work: impl FnOnce() -> T) -> T;
            $(fn $name(&self $(, $argument: $kind)*) -> $result;)*
        }

        impl Files for FileSystem {
            fn in_this_session<T>(&self, work: impl FnOnce() -> T) -> T {
                FileSystem::in_this_session(self, work)
            }
            $(fn $name(&self $(, $argument: $kind)*) -> $result {
                FileSystem::$name(self $(, $argument)*)
            })*
        }
    };
}

files! {
    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attributes>;
    fn attributes(&self, ino: Ino) -> Result<Attributes>;
    fn set_attributes(&self, ino: Ino, change: SetAttributes) -> Result<Attributes>;
    fn take_privileges(&self, ino: Ino) -> Result<bool>;
    fn make(&self, parent: Ino, name: &[u8], new: &New) -> Result<Attributes>;
    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attributes>;
    fn read_link(&self, ino: Ino) -> Result<Vec<u8>>;
    fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()>;
    fn unlink_file(&self, parent: Ino, name: &[u8], ino: Ino) -> Result<()>;
    fn remove_directory(&self, parent: Ino, name: &[u8]) -> Result<()>;
    fn rename(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), mode: RenameMode) -> Result<()>;
    fn list(&self, parent: Ino, cookie: u64, limit: usize) -> Result<Vec<Listed>>;
    fn parent(&self, ino: Ino) -> Result<Ino>;
    fn attribute(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>>;
    fn attribute_names(&self, ino: Ino) -> Result<Vec<Vec<u8>>>;
    fn set_attribute(&self, ino: Ino, name: &[u8], value: &[u8], must_exist: Option<bool>) -> Result<()>;
    fn remove_attribute(&self, ino: Ino, name: &[u8]) -> Result<()>;
    fn open(&self, ino: Ino, write: bool) -> Result<()>;
    fn close(&self, ino: Ino) -> ();
    fn check_loss_at_close(&self, ino: Ino) -> Result<()>;
    fn commit_at_close(&self, ino: Ino) -> Result<()>;
    fn read(&self, ino: Ino, offset: u64, into: &mut [u8]) -> Result<usize>;
    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<()>;
    fn sync(&self, ino: Ino) -> Result<()>;
    fn sync_all(&self) -> Result<()>;
    fn allocate(&self, ino: Ino, how: Allocate, offset: u64, length: u64) -> Result<()>;
    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64>;
    fn copy_range(&self, from: (Ino, u64), to: (Ino, u64), length: u64) -> Result<u64>;
    fn usage(&self) -> Result<Usage>;
    fn append(&self, ino: Ino, data: &[u8]) -> Result<()>;
    fn is_read_only(&self) -> bool;
    fn read_ahead_bytes(&self) -> usize;
    fn lock(&self, ino: Ino, wanted: &FileLock, wait: Option<&dyn Fn() -> bool>) -> Result<bool>;
    fn unlock(&self, ino: Ino, owner: u64, first: u64, last: u64) -> Result<()>;
    fn conflicting_lock(&self, ino: Ino, wanted: &FileLock) -> Result<Option<FileLock>>;
    fn begin_end(&self) -> ();
    fn is_shared(&self) -> bool;
    fn valid_for(&self) -> Duration;
    fn alone(&self) -> Option<u64>;
    fn looking_up(&self) -> Option<Lookup<'_>>;
    fn looked_up(&self, ino: Ino) -> ();
    fn forget(&self, ino: Ino, count: u64) -> ();
    fn knows(&self, ino: Ino) -> bool;
    fn losses(&self, ino: Ino) -> u64;
    fn path_of(&self, ino: Ino) -> Option<Vec<u8>>;
    fn note_refused_write(&self, ino: Ino) -> ();
    fn fences(&self) -> u64;
    fn has_lost_locks(&self) -> bool;
    fn take_lost_locks(&self) -> Vec<(Ino, u64)>;
}
