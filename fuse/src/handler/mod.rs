//! Requests of the kernel, answered by a file system.
//!
//! File handles say nothing but which opening it was, for locks: what a request needs is the number
//! of the file, and listings go on by cookies that stay valid. Files that are open, and those that
//! the kernel looked up and did not forget, are known to the file system, which keeps them when
//! their last name goes.

mod call;
mod content;
mod convert;
mod directory;
mod extended;
mod generations;
mod init;
mod locks;
mod losses;
mod names;
mod opens;
mod permission;
mod reads;
mod seek;
mod signals;
mod sizes;
mod telling;
mod thread;

use crate::Options;
use crate::files::Files;
use call::Caller;
pub(crate) use call::Refused;
use convert::{GENERATION, NONE, file_attributes, kind_of_mode, new_file};
use fs::{FileKind, Ino, New};
use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags, INodeNo, IoctlFlags,
    KernelConfig, LockOwner, Notifier, OpenFlags, PollEvents, PollFlags, PollNotifier, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLock,
    ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use opens::Opens;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::mpsc::Sender;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

/// Every open directory has this handle.
const HANDLE: FileHandle = FileHandle(0);

/// Answers requests.
pub(crate) struct Handler<F: Files> {
    caller: Caller<F>,
    opens: Arc<Opens>,
    held: Arc<locks::Held>,
    losses: losses::Losses,
    again: permission::LooksAgain,
    generations: generations::Generations,
    reads: reads::Reads,
    /// Others change files, too: the kernel keeps little.
    shared: bool,
    /// What the mount says of at its end.
    refused: Arc<Refused>,
    /// What is done after the kernel has written back and dropped its pages of a file.
    seeks: Sender<seek::Job>,
    /// Unasked messages to the kernel go here, once there is a connection.
    kernel: Arc<OnceLock<Notifier>>,
}

impl<F: Files> Handler<F> {
    /// A handler, and what must be started once there is a connection to the kernel. Writes that
    /// are refused are noted in `refused`.
    pub(crate) fn new(files: Arc<F>, options: &Options, refused: Arc<Refused>) -> (Self, seek::Late) {
        let kernel = Arc::<OnceLock<Notifier>>::default();
        let (seeks, late) = seek::queue(kernel.clone());
        // With `writeback` the kernel also keeps what is written to files that others may change.
        let shared = files.is_shared() && !options.writeback;
        let caller = Caller::new(files, options.log.clone());
        (
            Self {
                caller,
                opens: Arc::default(),
                held: Arc::default(),
                losses: losses::Losses::default(),
                again: permission::LooksAgain::default(),
                generations: generations::Generations::default(),
                reads: reads::Reads::new(options.threads),
                shared,
                refused,
                seeks,
                kernel,
            },
            late,
        )
    }

    /// How long the kernel may rely on an answer.
    fn valid(&self) -> Duration {
        self.caller.files().valid_for()
    }

    /// The handle of a new opening.
    fn handle(&self, ino: Ino, flags: i32) -> FileHandle {
        let files = self.caller.files();
        let direct = self.kept(flags).contains(FopenFlags::FOPEN_DIRECT_IO);
        let handle = self.held.handle(files.alone(), direct);
        if files.is_shared() && opens::may_write(flags) {
            self.losses.opened(handle, files.losses(ino));
        }
        handle
    }

    /// What the kernel may keep of a file that is opened. Pages that no other process changes stay
    /// valid, even while the file is not open. If a program appends to a file that others append
    /// to, no page is where the kernel expects it.
    fn kept(&self, flags: i32) -> FopenFlags {
        match (self.shared, flags & libc::O_APPEND != 0) {
            (false, _) => FopenFlags::FOPEN_KEEP_CACHE,
            (true, true) => FopenFlags::FOPEN_DIRECT_IO,
            (true, false) => FopenFlags::empty(),
        }
    }
}

/// Answers with what a call gave, or with its error.
macro_rules! answer {
    ($reply:ident, $result:expr, $value:pat => $answer:expr) => {
        match $result {
            Ok($value) => $answer,
            Err(error) => $reply.error(error),
        }
    };
}

#[allow(clippy::too_many_arguments, reason = "the trait's")]
impl<F: Files> Filesystem for Handler<F> {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        init::configure(config, self.shared);
        Ok(())
    }

    fn destroy(&mut self) {
        self.caller.files().begin_end();
        // The kernel does not always tell of the last files that were closed.
        for ino in self.opens.take() {
            self.close(ino, libc::O_RDONLY);
        }
        // What the last files wrote is durable when the mount is gone, as with any file system.
        // Failing is logged by the call.
        let _ = self.caller.call("unmounting", fs::ROOT, F::sync_all);
        // The kernel may end before it has forgotten a file that was removed.
        self.refused.retain(|ino| self.caller.files().attributes(ino).is_ok_and(|found| found.links > 0));
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let parent = Ino(parent.0);
        let found = self.look_up(parent, name.as_bytes());
        match found {
            Ok(found) => {
                let (valid, generation) = (self.valid(), self.tell_generation(&found));
                self.tell_size(&found, move |told| reply.entry(&valid, &told, generation));
            }
            // File 0 makes the kernel remember that no file has that name.
            Err(error) if i32::from(error) == libc::ENOENT => reply.entry(&self.valid(), &NONE, GENERATION),
            Err(error) => reply.error(error),
        }
    }

    fn forget(&self, _: &Request, ino: INodeNo, count: u64) {
        let ino = Ino(ino.0);
        let _ = self.caller.call("forgetting", ino, |_| {
            self.forget_generation(ino, count);
            Ok(())
        });
    }

    fn getattr(&self, request: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let ino = Ino(ino.0);
        let found = self.caller.call("reading attributes", ino, |files| files.attributes(ino));
        let found = found.map_err(|error| self.not_there(request.pid(), ino, error));
        answer!(reply, found, found => {
            let valid = self.valid();
            self.tell_size(&found, move |told| reply.attr(&valid, &told));
        });
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let ino = Ino(ino.0);
        let change = fs::SetAttributes {
            mode: mode.map(|mode| mode & 0o7777),
            uid,
            gid,
            size,
            just_opened: false,
            accessed: atime.map(convert::set_time),
            modified: mtime.map(convert::set_time),
            changed: ctime.map(convert::time),
            created: None,
        };
        // As the kernel writes times back, for which it takes no notice of the answer.
        let times_alone = (mode, uid, gid, size, atime).eq(&(None, None, None, None, None));
        let set = || self.set_attributes(request.uid(), ino, change);
        // `ftruncate` changes content, as a write does.
        let set = match handle.filter(|_| size.is_some()) {
            Some(handle) => self.with_its_locks(handle, set),
            None => set(),
        };
        let set = set.map_err(|error| self.not_there(request.pid(), ino, error));
        let said = |set| if times_alone { file_attributes(set) } else { self.tell(set) };
        answer!(reply, set, set => reply.attr(&self.valid(), &said(&set)));
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        let ino = Ino(ino.0);
        let target = self.caller.call("reading the link", ino, |files| files.read_link(ino));
        answer!(reply, target, target => reply.data(&target));
    }

    fn mknod(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, rdev: u32, reply: ReplyEntry) {
        let Some(kind) = kind_of_mode(mode) else { return reply.error(Errno::EINVAL) };
        let new = New { device: rdev, ..new_file(request, kind, mode) };
        let made = self.make(Ino(parent.0), name.as_bytes(), &new);
        answer!(reply, made, made => reply.entry(&self.valid(), &self.tell(&made), GENERATION));
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, reply: ReplyEntry) {
        let made = self.make(Ino(parent.0), name.as_bytes(), &new_file(request, FileKind::Directory, mode));
        answer!(reply, made, made => reply.entry(&self.valid(), &self.tell(&made), GENERATION));
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let link = target.as_os_str().as_bytes().to_vec();
        let new = New { link, ..new_file(request, FileKind::Symlink, 0o777) };
        let made = self.make(Ino(parent.0), name.as_bytes(), &new);
        answer!(reply, made, made => reply.entry(&self.valid(), &self.tell(&made), GENERATION));
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let new = new_file(request, FileKind::File, mode);
        let created = self.create(request.pid(), Ino(parent.0), name.as_bytes(), &new, flags);
        answer!(reply, created, created => {
            let told = self.tell(&created);
            if self.shared {
                self.opens.created(created.ino, request.pid());
            }
            let (generation, handle) = (self.tell_generation(&created), self.handle(created.ino, flags));
            reply.created(&self.valid(), &told, generation, handle, self.kept(flags));
        });
    }

    fn link(&self, _: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let ino = Ino(ino.0);
        let linked = self.introduce("linking", ino, |files| files.link(ino, Ino(parent.0), name.as_bytes()));
        answer!(reply, linked, linked => {
            reply.entry(&self.valid(), &self.tell(&linked), self.tell_generation(&linked))
        });
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let parent = Ino(parent.0);
        let done = self.caller.call("unlinking in", parent, |files| files.unlink(parent, name.as_bytes()));
        answer!(reply, done, () => reply.ok());
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let parent = Ino(parent.0);
        let remove = |files: &F| files.remove_directory(parent, name.as_bytes());
        let done = self.caller.call("removing a directory in", parent, remove);
        answer!(reply, done, () => reply.ok());
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let done = self.rename((Ino(parent.0), name.as_bytes()), (Ino(new_parent.0), new_name.as_bytes()), flags);
        answer!(reply, done, () => reply.ok());
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let ino = Ino(ino.0);
        let opened = self.open(request.uid(), ino, flags.0);
        let opened = opened.map_err(|error| self.looks_again(request.pid(), ino, error));
        answer!(reply, opened, () => reply.opened(self.handle(ino, flags.0), self.kept(flags.0)));
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if let Err(error) = self.has_its_locks(handle) {
            return reply.error(error);
        }
        let pages = self.shared && !locks::is_direct(handle) && flags.0 & libc::O_DIRECT == 0;
        self.read(Ino(ino.0), offset, size, pages, |data| answer!(reply, data, data => reply.data(data)));
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
        open_flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let ino = Ino(ino.0);
        let take_privileges = flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        let cached = flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        // The kernel knows the end only of files that no other process changes.
        let offset = if self.shared && open_flags.0 & libc::O_APPEND != 0 { None } else { Some(offset) };
        let written = self.with_its_locks(handle, || self.write(ino, offset, data, cached, take_privileges));
        if let Some(offset) = offset.filter(|_| self.shared && written.is_ok()) {
            self.opens.wrote(ino, offset + data.len() as u64);
        }
        answer!(reply, written, written => reply.written(written));
    }

    fn getlk(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        typ: i32,
        pid: u32,
        reply: ReplyLock,
    ) {
        locks::Asked::new(Ino(ino.0), handle, owner.0, (start, end), typ, pid).test(&self.caller, reply);
    }

    fn setlk(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        typ: i32,
        pid: u32,
        sleep: bool,
        reply: ReplyEmpty,
    ) {
        if let Err(error) = self.settle_locks(handle) {
            return reply.error(error);
        }
        let waiter = sleep.then(|| request.pid());
        let asked = locks::Asked::new(Ino(ino.0), handle, owner.0, (start, end), typ, pid);
        asked.set(&self.caller, &self.held, &self.kernel, waiter, reply);
    }

    fn flush(&self, _: &Request, ino: INodeNo, handle: FileHandle, owner: LockOwner, reply: ReplyEmpty) {
        let ino = Ino(ino.0);
        if self.shared {
            let locked = self.had_its_locks(handle);
            // Closing any descriptor of a file gives up all locks that the process has on it.
            self.held.forget(ino, owner.0);
            let writes = self.losses.is_writer(handle);
            let done = self.caller.call("closing", ino, |files| {
                let unlocked = files.unlock(ino, owner.0, 0, u64::MAX);
                let committed = if writes { unlocked.and_then(|()| files.commit_at_close(ino)) } else { unlocked };
                committed.and(files.check_loss_at_close(ino))
            });
            let done = self.or_lost(ino, handle, locked.and(done));
            return answer!(reply, done, () => reply.ok());
        }
        // There is nothing to do on close(2): the kernel has written its pages by now. It
        // understands this as "never ask again".
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        flags: OpenFlags,
        owner: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let ino = Ino(ino.0);
        // A lock by `flock`, or of an opening, is free with the last descriptor. No program can
        // learn of a failure here.
        for owner in self.held.end(handle).into_iter().chain(owner.map(|owner| owner.0)) {
            let _ = self.caller.call("unlocking", ino, |files| files.unlock(ino, owner, 0, u64::MAX));
        }
        self.losses.end(handle);
        self.close(ino, flags.0);
        reply.ok();
    }

    fn fsync(&self, _: &Request, ino: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        let ino = Ino(ino.0);
        let locked = self.has_its_locks(handle);
        let done = self.caller.call("making durable", ino, |files| files.sync(ino));
        self.forget_allocated(ino);
        let done = self.or_lost(
            ino,
            handle,
            locked.and(done.map_err(|error| self.lost_if_gone("making durable", ino, error))),
        );
        answer!(reply, done, () => reply.ok());
    }

    fn opendir(&self, request: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let ino = Ino(ino.0);
        let opened = self.open(request.uid(), ino, libc::O_RDONLY);
        let opened = opened.map_err(|error| self.looks_again(request.pid(), ino, error));
        let keep = FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE;
        let keep = if self.shared { FopenFlags::empty() } else { keep };
        answer!(reply, opened, () => reply.opened(HANDLE, keep));
    }

    fn readdir(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let listed = self.list(Ino(ino.0), offset, |entry| {
            let kind = convert::file_type(entry.attributes.kind);
            reply.add(INodeNo(entry.attributes.ino.0), entry.cookie, kind, OsStr::from_bytes(&entry.name))
        });
        answer!(reply, listed, () => reply.ok());
    }

    fn readdirplus(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectoryPlus) {
        let files = self.caller.files();
        let _until_they_are_known = files.looking_up();
        let mut added = Vec::new();
        let listed = self.list(Ino(ino.0), offset, |entry| {
            let attributes = self.tell(&entry.attributes);
            // `.` and `..` are no lookups.
            let looked_up = if entry.cookie < directory::FIRST_COOKIE { INodeNo(0) } else { attributes.ino };
            let name = OsStr::from_bytes(&entry.name);
            let generation = self.generation(&entry.attributes);
            let is_full = reply.add(looked_up, entry.cookie, name, &self.valid(), &attributes, generation);
            if !is_full && looked_up != INodeNo(0) {
                added.push((Ino(looked_up.0), generation));
            }
            is_full
        });
        answer!(reply, listed, () => {
            for (ino, generation) in added {
                files.looked_up(ino);
                self.generations.tell(ino, generation.0);
            }
            reply.ok();
        });
    }

    fn releasedir(&self, _: &Request, ino: INodeNo, _: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.close(Ino(ino.0), libc::O_RDONLY);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let ino = Ino(ino.0);
        let done = self.caller.call("making durable", ino, |files| files.sync(ino));
        answer!(reply, done, () => reply.ok());
    }

    fn statfs(&self, _: &Request, ino: INodeNo, reply: ReplyStatfs) {
        let usage = self.caller.call("measuring", Ino(ino.0), F::usage);
        answer!(reply, usage, usage => {
            const BLOCK: u64 = 4096;
            let (total, free) = (usage.total / BLOCK, usage.free / BLOCK);
            // Files need only space: for df, there is space for one more file in each free block.
            let files = usage.files.saturating_add(free);
            reply.statfs(total, free, free, files, free, BLOCK as u32, 255, BLOCK as u32);
        });
    }

    fn setxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, value: &[u8], flags: i32, _: u32, reply: ReplyEmpty) {
        answer!(reply, self.set_attribute(Ino(ino.0), name.as_bytes(), value, flags), () => reply.ok());
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        extended::answer(reply, size, self.attribute(Ino(ino.0), name.as_bytes()));
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        extended::answer(reply, size, self.attribute_names(Ino(ino.0), request.uid()));
    }

    fn removexattr(&self, _: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.remove_attribute(Ino(ino.0), name.as_bytes()), () => reply.ok());
    }

    fn access(&self, _: &Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        // The kernel checks permissions (default_permissions).
        reply.error(Errno::ENOSYS);
    }

    fn ioctl(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        _: u32,
        _: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(Errno::ENOTTY);
    }

    fn poll(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: PollNotifier,
        _: PollEvents,
        _: PollFlags,
        reply: ReplyPoll,
    ) {
        // Files are always ready; without an answer, the kernel assumes that.
        reply.error(Errno::ENOSYS);
    }

    fn fallocate(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let done = self.with_its_locks(handle, || self.allocate(request.uid(), Ino(ino.0), mode, offset, length));
        answer!(reply, done, () => reply.ok());
    }

    fn lseek(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        self.seek(Ino(ino.0), offset, whence, reply);
    }

    fn copy_file_range(
        &self,
        request: &Request,
        from: INodeNo,
        _: FileHandle,
        from_offset: u64,
        to: INodeNo,
        handle: FileHandle,
        to_offset: u64,
        length: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let copied = self.with_its_locks(handle, || {
            self.copy_range(request.uid(), (Ino(from.0), from_offset), (Ino(to.0), to_offset), length)
        });
        answer!(reply, copied, copied => reply.written(copied));
    }
}
