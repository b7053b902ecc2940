//! What a mount needs of a file system, so that tests can do without a volume.

use fs::{
    Allocate, Attributes, FileLock, FileSystem, Listed, Lookup, New, RenameMode, Result, Seek, SetAttributes, Usage,
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
    fn lookup(&self, parent: u64, name: &[u8]) -> Result<Attributes>;
    fn attributes(&self, ino: u64) -> Result<Attributes>;
    fn set_attributes(&self, ino: u64, change: SetAttributes) -> Result<Attributes>;
    fn take_privileges(&self, ino: u64) -> Result<bool>;
    fn make(&self, parent: u64, name: &[u8], new: &New) -> Result<Attributes>;
    fn link(&self, ino: u64, parent: u64, name: &[u8]) -> Result<Attributes>;
    fn read_link(&self, ino: u64) -> Result<Vec<u8>>;
    fn unlink(&self, parent: u64, name: &[u8]) -> Result<()>;
    fn unlink_file(&self, parent: u64, name: &[u8], ino: u64) -> Result<()>;
    fn remove_directory(&self, parent: u64, name: &[u8]) -> Result<()>;
    fn rename(&self, from: (u64, &[u8]), to: (u64, &[u8]), mode: RenameMode) -> Result<()>;
    fn list(&self, parent: u64, cookie: u64, limit: usize) -> Result<Vec<Listed>>;
    fn parent(&self, ino: u64) -> Result<u64>;
    fn attribute(&self, ino: u64, name: &[u8]) -> Result<Vec<u8>>;
    fn attribute_names(&self, ino: u64) -> Result<Vec<Vec<u8>>>;
    fn set_attribute(&self, ino: u64, name: &[u8], value: &[u8], must_exist: Option<bool>) -> Result<()>;
    fn remove_attribute(&self, ino: u64, name: &[u8]) -> Result<()>;
    fn open(&self, ino: u64, write: bool) -> Result<()>;
    fn close(&self, ino: u64) -> ();
    fn check_loss_at_close(&self, ino: u64) -> Result<()>;
    fn commit_at_close(&self, ino: u64) -> Result<()>;
    fn read(&self, ino: u64, offset: u64, into: &mut [u8]) -> Result<usize>;
    fn write(&self, ino: u64, offset: u64, data: &[u8]) -> Result<()>;
    fn sync(&self, ino: u64) -> Result<()>;
    fn sync_all(&self) -> Result<()>;
    fn allocate(&self, ino: u64, how: Allocate, offset: u64, length: u64) -> Result<()>;
    fn seek(&self, ino: u64, offset: u64, what: Seek) -> Result<u64>;
    fn copy_range(&self, from: (u64, u64), to: (u64, u64), length: u64) -> Result<u64>;
    fn usage(&self) -> Result<Usage>;
    fn append(&self, ino: u64, data: &[u8]) -> Result<()>;
    fn is_read_only(&self) -> bool;
    fn lock(&self, ino: u64, wanted: &FileLock, wait: Option<&dyn Fn() -> bool>) -> Result<bool>;
    fn unlock(&self, ino: u64, owner: u64, first: u64, last: u64) -> Result<()>;
    fn conflicting_lock(&self, ino: u64, wanted: &FileLock) -> Result<Option<FileLock>>;
    fn begin_end(&self) -> ();
    fn is_shared(&self) -> bool;
    fn valid_for(&self) -> Duration;
    fn alone(&self) -> Option<u64>;
    fn looking_up(&self) -> Option<Lookup<'_>>;
    fn looked_up(&self, ino: u64) -> ();
    fn forget(&self, ino: u64, count: u64) -> ();
    fn knows(&self, ino: u64) -> bool;
    fn losses(&self, ino: u64) -> u64;
    fn path_of(&self, ino: u64) -> Option<Vec<u8>>;
    fn note_refused_write(&self, ino: u64) -> ();
    fn fences(&self) -> u64;
    fn has_lost_locks(&self) -> bool;
    fn take_lost_locks(&self) -> Vec<(u64, u64)>;
}
