//! Real programs on a real mount of files in memory.

mod lost;

use crate::files::Files;
use crate::memory::{Before, Memory};
use crate::mount::mount_files;
use crate::{Error, Log, Mounted, Options};
use ::fs::Ino;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

/// A mount that ends with the test.
struct Mount {
    files: Arc<Memory>,
    path: PathBuf,
    mounted: Arc<Mounted>,
    lines: Arc<Mutex<Vec<String>>>,
}

/// Mounts files in memory, or says why that is not possible here.
fn mount(name: &str, options: &Options) -> Option<Mount> {
    mount_of(name, Memory::new(), options)
}

fn mount_of(name: &str, files: Memory, options: &Options) -> Option<Mount> {
    let path = std::env::temp_dir().join(format!("weft-fuse-{name}-{}", std::process::id()));
    fs::create_dir_all(&path).unwrap();
    let files = Arc::new(files);
    let lines = Arc::new(Mutex::new(Vec::new()));
    let kept = lines.clone();
    let log = Log::new(move |line| kept.lock().unwrap().push(line.to_owned()));
    match mount_files(files.clone(), &path, &Options { log, ..options.clone() }) {
        Ok(mounted) => Some(Mount { files, path, mounted: Arc::new(mounted), lines }),
        Err(error @ (Error::NoFuse(_) | Error::NoHelper | Error::Helper(_))) => {
            println!("skipped, since mounting is not possible here: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = self.mounted.unmount(true);
        let _ = self.mounted.wait();
        let _ = fs::remove_dir(&self.path);
    }
}

/// Runs a program of the shell in the mount.
fn shell(mount: &Path, script: &str) -> String {
    let output = Command::new("sh").args(["-ec", script]).current_dir(mount).output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {words}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn programs_work() {
    let Some(mount) = mount("programs", &Options::default()) else { return };
    let path = &mount.path;
    shell(
        path,
        "dd if=/dev/urandom of=../weft-fuse-random bs=1M count=40 2>&1; cp ../weft-fuse-random a; cmp a \
         ../weft-fuse-random",
    );
    shell(
        path,
        "cp --reflink=never a b; cp a c; echo more >> c; head -c 41943040 c | cmp - a; tail -c 5 c | grep more; rm \
         ../weft-fuse-random",
    );
    shell(
        path,
        "mkdir -p d/e/f; mv a d/e; ln d/e/a d/g; ln -s d/e/a l; test $(stat -c %h d/g) = 2; cmp l d/g; rm d/e/a; test \
         $(stat -c %h d/g) = 1",
    );
    shell(path, "tar cf - d | (mkdir t; tar xf - -C t); diff -r d t/d; rm -r t d b c l; test -z \"$(ls -A)\"");
    assert!(shell(path, "df -PT . | tail -1").contains("fuse.weft"));
    assert!(shell(path, "df -Pk . | tail -1").contains("10485760"));
    if Command::new("git").arg("--version").output().is_ok() {
        let script = "git init -q r; cd r; git config user.email a@b; git config user.name c; seq 1 100000 > f; git \
            add f; git commit -qm 1; sed -i s/5/6/ f; git commit -qam 2; git gc -q; git fsck; git reset -q \
            --hard HEAD~1; seq 1 100000 | cmp - f; cd ..; rm -r r";
        shell(path, script);
    }
    mount.mounted.unmount(false).unwrap();
    mount.mounted.wait().unwrap();
    assert_eq!(mount.files.opens(), 0, "every open file was closed");
}

#[test]
fn the_kernel_keeps_what_it_was_told() {
    let Some(mount) = mount("cache", &Options::default()) else { return };
    fs::write(mount.path.join("a"), "content").unwrap();
    let stat = || (fs::metadata(mount.path.join("a")).unwrap(), mount.path.join("missing").exists());
    stat();
    let before = mount.files.attribute_calls.load(Ordering::Relaxed);
    for _ in 0..100 {
        stat();
    }
    assert_eq!(mount.files.attribute_calls.load(Ordering::Relaxed), before);
    mount.files.broken.store(true, Ordering::Relaxed);
    assert_eq!(fs::read(mount.path.join("a")).unwrap(), b"content", "from the pages that were written");
}

#[test]
fn small_writes_become_large_requests() {
    let Some(mount) = mount("requests", &Options::default()) else { return };
    let mut file = File::create(mount.path.join("a")).unwrap();
    for _ in 0..8 << 10 {
        file.write_all(&[7; 4096]).unwrap();
    }
    drop(file);
    let (longest, writes) = (&mount.files.longest_write, &mount.files.writes);
    let (longest, writes) = (longest.load(Ordering::Relaxed), writes.load(Ordering::Relaxed));
    assert!(longest == 1 << 20 && writes < 100, "{writes} writes of up to {longest} bytes");
}

#[test]
fn a_large_directory_lists_once_each() {
    let Some(mount) = mount("large", &Options::default()) else { return };
    let count = 5000;
    (0..count).for_each(|n| drop(File::create(mount.path.join(format!("a rather long name {n}"))).unwrap()));
    for plus in [false, true] {
        let mut names = Vec::new();
        for entry in fs::read_dir(&mount.path).unwrap() {
            let entry = entry.unwrap();
            if plus {
                assert!(entry.metadata().unwrap().is_file());
            }
            names.push(entry.file_name());
        }
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }
    assert_eq!(shell(&mount.path, "ls -a | head -3 | wc -l; ls -ai | grep -c rather").trim(), "3\n5000");
    fs::create_dir(mount.path.join("d")).unwrap();
    let numbers = shell(&mount.path, "ls -aid d/. d/.. . d | awk '{print $1}' | sort -n | uniq | wc -l");
    assert_eq!(numbers.trim(), "2");
    // Removing while listing.
    shell(&mount.path, "rm -r ./*; test -z \"$(ls -A)\"");
}

#[test]
fn open_files_outlive_their_names() {
    let Some(mount) = mount("orphans", &Options::default()) else { return };
    let path = mount.path.join("a");
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o640).open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    file.write_all(b"still there").unwrap();
    file.sync_all().unwrap();
    assert_eq!(mount.files.syncs.load(Ordering::Relaxed), 1);
    file.rewind().unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "still there");
    let attributes = file.metadata().unwrap();
    assert_eq!((attributes.nlink(), attributes.len(), attributes.mode() & 0o7777), (0, 11, 0o640));
    // The same with a directory.
    fs::create_dir(mount.path.join("d")).unwrap();
    let directory = File::open(mount.path.join("d")).unwrap();
    fs::remove_dir(mount.path.join("d")).unwrap();
    assert_eq!(directory.metadata().unwrap().nlink(), 0);
}

#[test]
fn writing_only_and_appending_work() {
    let Some(mount) = mount("append", &Options::default()) else { return };
    let path = mount.path.join("a");
    fs::write(&path, vec![1; 10_000]).unwrap();
    // A part of a page, which must be read first.
    OpenOptions::new().write(true).open(&path).unwrap().write_all_at(&[2; 10], 5000).unwrap();
    OpenOptions::new().append(true).open(&path).unwrap().write_all(&[3; 10]).unwrap();
    let content = fs::read(&path).unwrap();
    assert_eq!((content.len(), content[4999], content[5005], content[5010], content[10_005]), (10_010, 1, 2, 1, 3));
    fs::write(&path, "short").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"short");
    File::options().write(true).open(&path).unwrap().set_len(2).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"sh");
}

#[test]
fn attributes_are_kept() {
    let Some(mount) = mount("attributes", &Options::default()) else { return };
    let path = mount.path.join("a");
    let file = File::create(&path).unwrap();
    let times = [UNIX_EPOCH - Duration::from_millis(1500), UNIX_EPOCH + Duration::new(1 << 33, 123_456_789)];
    for time in times {
        file.set_times(fs::FileTimes::new().set_modified(time).set_accessed(time)).unwrap();
        drop_caches();
        let attributes = file.metadata().unwrap();
        assert_eq!((attributes.modified().unwrap(), attributes.accessed().unwrap()), (time, time));
    }
    symlink("a", mount.path.join("l")).unwrap();
    assert_eq!(fs::read_link(mount.path.join("l")).unwrap(), Path::new("a"));
    fs::DirBuilder::new().mode(0o1750).create(mount.path.join("d")).unwrap();
    assert_eq!(fs::metadata(mount.path.join("d")).unwrap().mode(), libc::S_IFDIR | 0o1750);
    shell(&mount.path, "mkfifo p; test -p p; mknod c c 1 3; stat -c %t:%T c | grep 1:3");
    assert_eq!(fs::metadata(&path).unwrap().blksize(), 128 << 10);
}

/// So that the next question goes to the server; without root, it stays a question to the kernel.
fn drop_caches() {
    let _ = fs::write("/proc/sys/vm/drop_caches", "2");
}

#[test]
fn content_takes_privileges_away() {
    let Some(mount) = mount("privileges", &Options::default()) else { return };
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: it takes root to be somebody else");
    }
    let path = mount.path.join("a");
    let mode = || fs::metadata(&path).unwrap().mode() & 0o7777;
    let write = "printf x | dd of=a conv=notrunc 2>&1";
    for change in [write, "truncate -s 5 a", "fallocate -l 10 a", ": > a"] {
        fs::write(&path, "content").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
        shell(&mount.path, &format!("setpriv --reuid 1234 --regid 1234 --clear-groups sh -ec '{change}'"));
        assert_eq!(mode(), 0o777, "{change}");
        drop_caches();
        assert_eq!(mode(), 0o777, "{change}, by the server");
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o6767)).unwrap();
    shell(&mount.path, "chown 5:6 a");
    assert_eq!(mode(), 0o2767 & !0o4000, "mandatory locking is no privilege");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
    shell(&mount.path, "echo x > a");
    assert_eq!(mode(), 0o6777, "root keeps them");
}

/// No program sees the mode from before, not even for a moment: the kernel asks for no more than a
/// program does (`stat -c %a`: the mode alone).
#[test]
fn a_changed_program_runs_with_nobodys_rights() {
    let Some(mount) = mount("program", &Options { suid: true, ..Options::default() }) else { return };
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: it takes root to be somebody else");
    }
    let path = mount.path.join("a");
    let nobody = "setpriv --reuid 1234 --regid 1234 --clear-groups";
    // None of these hurts the program.
    for change in [
        "printf x >> a",
        "head -c 8 a | dd of=a conv=notrunc 2>&1",
        "dd if=a of=page bs=4096 count=1 2>&1; dd if=page of=a bs=4096 conv=notrunc oflag=direct 2>&1",
        "fallocate -l 4M a",
        "fallocate -p -o 2M -l 4096 a",
        "truncate -s 3M a",
    ] {
        shell(
            &mount.path,
            "cp --reflink=never $(command -v id) a; chmod 6777 a .; sync a; test $(stat -c %a a) = 6777; ./a",
        );
        let seen = shell(&mount.path, &format!("{nobody} sh -ec '{change}; stat -c %a a; ./a -u; ./a -g'"));
        let seen: Vec<&str> = seen.lines().rev().take(3).collect();
        assert_eq!(seen, ["1234", "1234", "777"], "{change}");
        // Capabilities too, also where they came without the kernel's knowledge: to bind to ports
        // below 1024, all users, as setcap writes it.
        let ino = Ino(fs::metadata(&path).unwrap().ino());
        let capability: Vec<u8> =
            [0x0200_0001_u32, 1 << 10, 0, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
        Files::set_attribute(&*mount.files, ino, b"security.capability", &capability, None).unwrap();
        shell(&mount.path, &format!("{nobody} sh -ec '{change}'"));
        if change.contains("direct") || change.contains("truncate") || change.contains("fallocate") {
            let left = Files::attribute(&*mount.files, ino, b"security.capability");
            assert!(left.is_err(), "{change}: {left:?}");
        }
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn extended_attributes() {
    let Some(mount) = mount("extended", &Options::default()) else { return };
    let path = mount.path.join("a");
    fs::write(&path, "").unwrap();
    xattr::set(&path, "user.one", b"1").unwrap();
    xattr::set(&path, "user.large", &vec![7; 60_000]).unwrap();
    assert_eq!(xattr::get(&path, "user.large").unwrap(), Some(vec![7; 60_000]));
    assert_eq!(xattr::get(&path, "user.two").unwrap(), None);
    let mut names: Vec<_> = xattr::list(&path).unwrap().collect();
    names.sort();
    assert_eq!(names, ["user.large", "user.one"]);
    xattr::remove(&path, "user.one").unwrap();
    assert_eq!(xattr::remove(&path, "user.one").unwrap_err().raw_os_error(), Some(libc::ENODATA));
    for name in ["system.posix_acl_access", "system.other"] {
        assert_eq!(xattr::get(&path, name).unwrap_err().raw_os_error(), Some(libc::EOPNOTSUPP), "{name}");
    }
    let set = |flags| rustix::fs::setxattr(&path, "user.new", b"x", flags).map_err(|error| error.raw_os_error());
    use rustix::fs::XattrFlags;
    assert_eq!(set(XattrFlags::REPLACE), Err(libc::ENODATA));
    assert_eq!(set(XattrFlags::CREATE), Ok(()));
    assert_eq!(set(XattrFlags::CREATE), Err(libc::EEXIST));
    assert_eq!(rustix::fs::getxattr(&path, "user.large", &mut [0; 10]).unwrap_err(), rustix::io::Errno::RANGE);
}

#[test]
fn holes_and_ranges() {
    let Some(mount) = mount("holes", &Options::default()) else { return };
    let path = mount.path.join("a");
    let mut file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    file.write_all_at(&[1; 8192], 1 << 20).unwrap();
    // Nothing of this was sent to the server yet, except the question.
    let seek = |what| rustix::fs::seek(&file, what).map(|at| at as i64).map_err(|error| error.raw_os_error());
    use rustix::fs::SeekFrom::{Data, Hole};
    assert_eq!(seek(Data(0)), Ok(1 << 20));
    assert_eq!(seek(Hole(1 << 20)), Ok((1 << 20) + 8192));
    assert_eq!(seek(Hole(0)), Ok(0));
    use rustix::fs::FallocateFlags as Flags;
    rustix::fs::fallocate(&file, Flags::PUNCH_HOLE | Flags::KEEP_SIZE, 1 << 20, 4096).unwrap();
    assert_eq!(rustix::fs::seek(&file, Data(0)).unwrap(), (1 << 20) + 4096);
    rustix::fs::fallocate(&file, Flags::empty(), 0, 2 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 2 << 20);
    let refused = rustix::fs::fallocate(&file, Flags::COLLAPSE_RANGE, 0, 4096).unwrap_err();
    assert_eq!(refused, rustix::io::Errno::OPNOTSUPP);
    let copy = File::options().read(true).write(true).create_new(true).open(mount.path.join("b")).unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let copied = rustix::fs::copy_file_range(&file, Some(&mut (1 << 20)), &copy, Some(&mut 3), 8192).unwrap();
    assert_eq!(copied, 8192);
    let mut byte = [9];
    copy.read_exact_at(&mut byte, 3 + 4096).unwrap();
    assert_eq!((byte, copy.metadata().unwrap().len()), ([1], 8195));
}

#[test]
fn renames() {
    let Some(mount) = mount("renames", &Options::default()) else { return };
    use rustix::fs::{CWD, RenameFlags as Flags, renameat_with};
    let (a, b) = (mount.path.join("a"), mount.path.join("b"));
    fs::write(&a, "a").unwrap();
    fs::write(&b, "b").unwrap();
    let rename = |flags| renameat_with(CWD, &a, CWD, &b, flags).map_err(|error| error.raw_os_error());
    assert_eq!(rename(Flags::NOREPLACE), Err(libc::EEXIST));
    assert_eq!(rename(Flags::EXCHANGE), Ok(()));
    assert_eq!((fs::read(&a).unwrap(), fs::read(&b).unwrap()), (b"b".to_vec(), b"a".to_vec()));
    assert_eq!(rename(Flags::WHITEOUT), Err(libc::EINVAL));
    assert_eq!(rename(Flags::empty()), Ok(()));
    assert!(!a.exists() && fs::read(&b).unwrap() == b"b");
}

#[test]
fn failures_are_logged_once_and_defects_survived() {
    let Some(mount) = mount("failures", &Options { threads: 2, ..Options::default() }) else { return };
    for name in ["a", "b", "c", "d"] {
        fs::write(mount.path.join(name), vec![1; 100_000]).unwrap();
        let file = File::open(mount.path.join(name)).unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }
    mount.files.broken.store(true, Ordering::Relaxed);
    assert_eq!(fs::read(mount.path.join("a")).unwrap_err().raw_os_error(), Some(libc::EIO));
    mount.files.defective.store(true, Ordering::Relaxed);
    for name in ["b", "c", "d"] {
        assert_eq!(fs::read(mount.path.join(name)).unwrap_err().raw_os_error(), Some(libc::EIO));
    }
    mount.files.defective.store(false, Ordering::Relaxed);
    mount.files.broken.store(false, Ordering::Relaxed);
    assert_eq!(fs::read(mount.path.join("d")).unwrap().len(), 100_000);
    let lines = mount.lines.lock().unwrap();
    // Each reason once.
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("no target answers") && lines[1].contains("a defect"), "{lines:?}");
    // In the mount.
    assert!(lines[0].contains("/a (inode "), "{lines:?}");
}

/// A mount takes requests while all its reads wait for a target.
#[test]
fn reads_that_wait_hold_up_nothing_else() {
    let Some(mount) = mount("waits", &Options { threads: 2, ..Options::default() }) else { return };
    let paths: Vec<_> = (0..8).map(|n| mount.path.join(format!("file {n}"))).collect();
    for path in &paths {
        fs::write(path, vec![1; 100_000]).unwrap();
        let file = File::open(path).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }
    let hang = mount.files.hanging.write().unwrap();
    let (ended, ends) = std::sync::mpsc::channel();
    for path in paths {
        let ended = ended.clone();
        std::thread::spawn(move || ended.send(fs::read(path).unwrap().len()).unwrap());
    }
    for n in 0..20 {
        fs::create_dir(mount.path.join(format!("directory {n}"))).unwrap();
    }
    assert!(ends.try_recv().is_err(), "all reads wait");
    drop(hang);
    for _ in 0..8 {
        assert_eq!(ends.recv().unwrap(), 100_000);
    }
}

/// Data that a program left in the kernel's cache without a sync is refused when the mount ends;
/// data of a removed file is not missed.
#[test]
fn the_end_says_that_data_was_lost() {
    for removed in [false, true] {
        let Some(mount) = mount("lost", &Options::default()) else { return };
        let path = mount.path.join("file");
        mount.files.full.store(true, Ordering::Relaxed);
        // Closing reports no error that a program must get.
        let _ = fs::write(&path, vec![1; 10_000]);
        if removed {
            fs::remove_file(&path).unwrap();
        }
        mount.mounted.unmount(false).unwrap();
        let ended = mount.mounted.wait();
        assert_eq!(matches!(ended, Err(Error::Lost(1..))), !removed, "{ended:?}");
        assert!(mount.mounted.wait().is_ok());
    }
}

#[test]
fn unmounting_says_who_is_in_the_way() {
    let Some(mount) = mount("busy", &Options::default()) else { return };
    fs::write(mount.path.join("a"), "content").unwrap();
    let file = File::open(mount.path.join("a")).unwrap();
    let error = crate::unmount(&mount.path, false).unwrap_err();
    assert!(error.to_string().contains(&format!("({})", std::process::id())), "{error}");
    let again = mount_files(mount.files.clone(), &mount.path, &Options::default()).unwrap_err();
    assert!(again.to_string().contains("already"), "{again}");
    crate::unmount(&mount.path, true).unwrap();
    assert!(matches!(crate::unmount(&mount.path, false), Err(Error::NotMounted(_))));
    let mut text = String::new();
    (&file).read_to_string(&mut text).unwrap();
    assert_eq!(text, "content", "who is still there can go on");
    drop(file);
    mount.mounted.wait().unwrap();
    assert_eq!(mount.files.opens(), 0);
}

#[test]
fn the_mount_of_a_killed_server_goes_away() {
    // Skips where mounting is not possible.
    let Some(first) = mount("killed", &Options::default()) else { return };
    first.mounted.unmount(false).unwrap();
    let mut server = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "tests::hold"])
        .env("WEFT_MOUNT", &first.path)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    while crate::mounts::at(&first.path).is_none() {
        std::thread::sleep(Duration::from_millis(5));
    }
    shell(&first.path, "echo content > a");
    server.kill().unwrap();
    server.wait().unwrap();
    let error = mount_files(first.files.clone(), &first.path, &Options::default()).unwrap_err();
    assert!(error.to_string().contains("weft unmount"), "{error}");
    crate::unmount(&first.path, false).unwrap();
    assert!(fs::read_dir(&first.path).unwrap().next().is_none());
}

#[test]
fn unusable_mount_points_are_refused() {
    let base = std::env::temp_dir().join(format!("weft-fuse-points-{}", std::process::id()));
    fs::create_dir_all(base.join("full/entry")).unwrap();
    fs::write(base.join("file"), "").unwrap();
    for (name, words) in [("missing", "no such"), ("file", "not a directory"), ("full", "entries")] {
        let error = mount_files(Arc::new(Memory::new()), &base.join(name), &Options::default()).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
    assert!(matches!(crate::unmount(&base, false), Err(Error::NotMounted(_))));
    fs::remove_dir_all(base).unwrap();
}

/// For looking around by hand: `WEFT_MOUNT=/mnt/x cargo test -p fuse --release -- --ignored hold`.
#[test]
#[ignore = "it waits until the mount is taken away"]
fn hold() {
    let Some(path) = std::env::var_os("WEFT_MOUNT") else { return };
    let options = crate::parse_options(&std::env::var("WEFT_OPTIONS").unwrap_or_default()).unwrap();
    let mounted = mount_files(Arc::new(Memory::new()), Path::new(&path), &options).unwrap();
    mounted.wait().unwrap();
}

/// Another client makes a file with this content.
fn make_elsewhere(files: &Memory, name: &str, content: &str) {
    let owner = rustix::process::geteuid().as_raw();
    let new = ::fs::New { kind: ::fs::FileKind::File, mode: 0o644, uid: owner, gid: 0, device: 0, link: Vec::new() };
    let made = Files::make(files, ::fs::ROOT, name.as_bytes(), &new).unwrap();
    Files::write(files, made.ino, 0, content.as_bytes()).unwrap();
}

#[test]
fn what_somebody_else_made_is_opened() {
    let Some(mount) = mount("elsewhere", &Options::default()) else { return };
    let path = mount.path.join("a");
    assert!(!path.exists());
    make_elsewhere(&mount.files, "a", "theirs");
    let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "theirs");
}

#[test]
fn a_file_of_somebody_else_stays_when_a_new_one_cannot_be_opened() {
    let Some(mount) = mount("replaced", &Options::default()) else { return };
    let path = mount.path.join("a");
    let replace: Before = Box::new(|files| {
        Files::unlink(files, ::fs::ROOT, b"a")?;
        make_elsewhere(files, "a", "theirs");
        Err(meta::Error::Unavailable("no server answers".into()).into())
    });
    mount.files.before_opening.lock().unwrap().push_back(replace);
    assert_eq!(File::create(&path).unwrap_err().raw_os_error(), Some(libc::EIO));
    // The kernel remembers that no file had that name.
    assert!(Files::lookup(&*mount.files, ::fs::ROOT, b"a").is_ok());
    // Without others, nothing is left.
    let refuse: Before = Box::new(|_| Err(meta::Error::Unavailable("no server answers".into()).into()));
    mount.files.before_opening.lock().unwrap().push_back(refuse);
    assert_eq!(File::create(mount.path.join("b")).unwrap_err().raw_os_error(), Some(libc::EIO));
    assert!(Files::lookup(&*mount.files, ::fs::ROOT, b"b").is_err());
}

/// In a mount that writes back, the kernel alone says how long a file is. What made it longer may
/// be lost with the session of the mount.
#[test]
fn a_file_that_lost_its_end_with_the_session_is_as_short_as_it_is() {
    let files = Memory::new();
    files.shared.store(true, Ordering::Relaxed);
    let options = Options { writeback: true, ..Options::default() };
    let Some(mount) = mount_of("shorter", files, &options) else { return };
    let paths = ["open", "closed"].map(|name| mount.path.join(name));
    paths.iter().for_each(|path| fs::write(path, "longer").unwrap());
    let length = |path: &Path| fs::metadata(path).unwrap().len();
    // The kernel tells later that a file was closed.
    let until = |path: &Path, wanted: u64| {
        let begun = std::time::Instant::now();
        while length(path) != wanted {
            assert!(begun.elapsed() < Duration::from_secs(60), "{} bytes, not {wanted}", length(path));
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let mut file = File::open(&paths[0]).unwrap();
    for name in ["open", "closed"] {
        let ino = Files::lookup(&*mount.files, ::fs::ROOT, name.as_bytes()).unwrap().ino;
        let shorter = ::fs::SetAttributes { size: Some(4), ..::fs::SetAttributes::default() };
        Files::set_attributes(&*mount.files, ino, shorter).unwrap();
    }
    assert_eq!((length(&paths[0]), length(&paths[1])), (6, 6));
    mount.files.fences.store(1, Ordering::Relaxed);
    until(&paths[1], 4);
    assert_eq!(fs::read(&paths[1]).unwrap(), b"long");
    // A program that has a file open goes on with it.
    assert_eq!(length(&paths[0]), 6);
    file.read_to_end(&mut Vec::new()).unwrap();
    drop(file);
    until(&paths[0], 4);
    for path in &paths {
        fs::write(path, "new content").unwrap();
        assert_eq!((length(path), fs::read(path).unwrap()), (11, b"new content".to_vec()));
    }
}

/// As with a local file system, a file that the kernel knows is there until it forgets it: names
/// may go while a program is about to open a file that it found.
#[test]
fn what_the_kernel_knows_stays_until_it_forgets_it() {
    let Some(mount) = mount("known", &Options::default()) else { return };
    let (path, files) = (&mount.path, &mount.files);
    fs::write(path.join("f"), "content").unwrap();
    fs::create_dir(path.join("d")).unwrap();
    symlink("elsewhere", path.join("l")).unwrap();
    fs::hard_link(path.join("f"), path.join("g")).unwrap();
    let found = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path.join("f")).unwrap();
    ["f", "g", "l"].iter().for_each(|name| fs::remove_file(path.join(name)).unwrap());
    // Not opened so far: the file system heard only of lookups.
    let opened = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&found));
    assert_eq!(fs::read_to_string(&opened).unwrap(), "content");
    assert_eq!(fs::metadata(&opened).unwrap().nlink(), 0);
    drop(found);
    let names: Vec<_> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().metadata().unwrap().ino()).collect();
    assert_eq!(names.len(), 1);
    fs::remove_dir(path.join("d")).unwrap();
    let begun = std::time::Instant::now();
    while files.known() > 0 {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "the kernel forgets {} files less than it was told",
            files.known()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}
