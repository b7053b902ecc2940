//! Handles of files, as servers of NFS keep them.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The bytes of a handle. The system gives at most as many.
const HANDLE_BYTES: usize = 128;

/// A handle as the system lays it out.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Handle {
    bytes: u32,
    kind: i32,
    handle: [u8; HANDLE_BYTES],
}

impl Handle {
    /// The handle of a file or directory.
    pub fn of(path: &Path) -> io::Result<Self> {
        let mut handle = Self { bytes: HANDLE_BYTES as u32, kind: 0, handle: [0; HANDLE_BYTES] };
        let (path, mut mount) = (CString::new(path.as_os_str().as_bytes())?, 0);
        // SAFETY: the path ends with 0, and the handle has the room that it says.
        let done = unsafe {
            libc::name_to_handle_at(libc::AT_FDCWD, path.as_ptr(), (&raw mut handle).cast(), &raw mut mount, 0)
        };
        if done == 0 { Ok(handle) } else { Err(io::Error::last_os_error()) }
    }

    /// Opens what it is of, in the file system that is mounted at `point`. Takes root.
    pub fn open(mut self, point: &Path) -> io::Result<File> {
        let mount = File::open(point)?;
        // SAFETY: the handle has the room that it says, and the system only reads it.
        let opened = unsafe {
            libc::open_by_handle_at(mount.as_raw_fd(), (&raw mut self).cast(), libc::O_RDONLY | libc::O_CLOEXEC)
        };
        // SAFETY: the descriptor is new, and nobody else has it.
        if opened < 0 { Err(io::Error::last_os_error()) } else { Ok(unsafe { File::from_raw_fd(opened) }) }
    }
}

/// Files and directories below `point` keep their handles, whatever `mount_again` does. One that is
/// removed has none any more. Returns false, with a word, where nothing may be opened by handle.
pub fn outlive(point: &Path, mount_again: impl FnOnce()) -> bool {
    let deep = point.join("a/b");
    std::fs::create_dir_all(&deep).unwrap();
    for name in ["file", "removed"] {
        std::fs::write(deep.join(name), name).unwrap();
    }
    let paths = [deep.join("file"), deep.clone(), point.join("a"), deep.join("removed")];
    let handles = paths.clone().map(|path| Handle::of(&path).unwrap());
    let inodes = paths.map(|path| inode(&File::open(path).unwrap()));
    let [file, below, above, removed] = handles;
    // All in the cache of the kernel, then none.
    match file.open(point) {
        Err(why) if why.raw_os_error() == Some(libc::EPERM) => {
            eprintln!("opening by handle is skipped: it takes CAP_DAC_READ_SEARCH");
            return false;
        }
        opened => assert_eq!(inode(&opened.unwrap()), inodes[0]),
    }
    mount_again();
    let opened = file.open(point).unwrap();
    assert_eq!((io::read_to_string(&opened).unwrap(), inode(&opened)), ("file".into(), inodes[0]));
    assert_eq!([below, above].map(|handle| inode(&handle.open(point).unwrap())), [inodes[1], inodes[2]]);
    // From a directory that only its handle found, names lead up and down.
    let directory = below.open(point).unwrap();
    let names = std::fs::read_dir(format!("/proc/self/fd/{}/..", directory.as_raw_fd())).unwrap();
    assert_eq!(names.map(|name| name.unwrap().file_name()).collect::<Vec<_>>(), ["b"]);
    std::fs::remove_file(deep.join("removed")).unwrap();
    let gone = removed.open(point).unwrap_err();
    assert_eq!(gone.raw_os_error(), Some(libc::ESTALE), "{gone}");
    true
}

fn inode(file: &File) -> u64 {
    std::os::unix::fs::MetadataExt::ino(&file.metadata().unwrap())
}
