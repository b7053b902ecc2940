//! What is agreed with the kernel at the beginning.

use fuser::{InitFlags, KernelConfig};

/// The largest write, and so the largest read: as many pages as the kernel puts in one request
/// (256).
pub(super) const MAX_WRITE: u32 = 1 << 20;
/// Read-aheads and write-backs on their way at once: four read-aheads of the longest (64 MiB, in
/// reads of 1 MiB). The kernel holds them back from three quarters on.
const MAX_BACKGROUND: u16 = 256;

/// What is wanted of the kernel where it can do it.
///
/// Left out on purpose: `POSIX_LOCKS` and `FLOCK_LOCKS`, except in shared mounts, since locks among
/// the processes of one machine are the kernel's business; `DONT_MASK`, since it applies the umask;
/// `POSIX_ACL`, since there are none; `AUTO_INVAL_DATA`, since no other process changes files;
/// `NO_OPEN_SUPPORT` and `NO_OPENDIR_SUPPORT`, since files that are open must be known when their
/// last name goes; `SPLICE_*`, since fuser does not splice.
const WANTED: [InitFlags; 12] = [
    // Pages are written back when there are many, in large requests, and small writes cost no
    // request.
    InitFlags::FUSE_WRITEBACK_CACHE,
    InitFlags::FUSE_BIG_WRITES,
    InitFlags::FUSE_MAX_PAGES,
    InitFlags::FUSE_ASYNC_READ,
    InitFlags::FUSE_ASYNC_DIO,
    // Listings bring attributes along, if a program wants them.
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_CACHE_SYMLINKS,
    // Servers of NFS and others open files by handle. The kernel asks for `.` and `..` of files
    // that it has forgotten, or that a mount before it knew: the numbers of files stay.
    InitFlags::FUSE_EXPORT_SUPPORT,
    // Opening with O_TRUNC is one request instead of two.
    InitFlags::FUSE_ATOMIC_O_TRUNC,
    // Set-user-ID bits go on writes, truncation and chown. When that is the server's job, the
    // kernel need not ask for the extended attribute security.capability before each write.
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
];

/// The same where others change files too: pages are written at once, and thrown away when the file
/// changed.
fn wanted(shared: bool) -> impl Iterator<Item = InitFlags> {
    let only_alone = InitFlags::FUSE_WRITEBACK_CACHE | InitFlags::FUSE_CACHE_SYMLINKS;
    let kept = WANTED.into_iter().filter(move |flag| !shared || !only_alone.contains(*flag));
    let more = [InitFlags::FUSE_AUTO_INVAL_DATA, InitFlags::FUSE_POSIX_LOCKS, InitFlags::FUSE_FLOCK_LOCKS];
    kept.chain(more.into_iter().filter(move |_| shared))
}

pub(super) fn configure(config: &mut KernelConfig, shared: bool) {
    for flag in wanted(shared) {
        // An older kernel does without.
        let _ = config.add_capabilities(flag);
    }
    config.set_max_write(MAX_WRITE).expect("fuser takes up to 16 MiB");
    config.set_max_background(MAX_BACKGROUND).expect("it is not 0");
    config.set_congestion_threshold(MAX_BACKGROUND / 4 * 3).expect("it is not 0");
}
