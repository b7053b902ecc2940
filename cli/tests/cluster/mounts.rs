//! Where mounts of a cluster have their logs and sockets, and what is left of that; mounting again;
//! and what the kernel keeps of files.

use crate::capabilities::Secured;
use crate::handles;
use crate::lab::{Cluster, WAIT_TIMEOUT, possible};
use crate::promptly;
use crate::scratch::{Ended, run, weft};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A mount in the background, as users have them; killed when it is dropped.
struct Background {
    point: PathBuf,
    process: i32,
}

fn mount(cluster: &Cluster, point: &Path, runtime: &Path) -> Ended {
    let _ = fs::create_dir(point);
    run(weft().env("WEFT_RUNTIME_DIR", runtime).args(["mount", "--json"]).arg(cluster.url()).arg(point))
}

impl Background {
    #[track_caller]
    fn new(cluster: &Cluster, point: &Path, runtime: &Path) -> Self {
        let ended = mount(cluster, point, runtime);
        assert_eq!(ended.status, 0, "{}", ended.errors);
        Self { point: point.into(), process: ended.json()["process"].as_i64().unwrap() as i32 }
    }

    fn signal(&self, signal: Signal) {
        let _ = kill_process(Pid::from_raw(self.process).unwrap(), signal);
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        run(Command::new("umount").arg("-l").arg(&self.point));
    }
}

fn entries(directory: &Path) -> usize {
    fs::read_dir(directory).unwrap().count()
}

#[track_caller]
fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < WAIT_TIMEOUT, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The server does not know of data that a mount has not committed; the mount says it.
#[test]
fn the_status_of_a_mount_has_what_is_not_committed() {
    if !possible("the_status_of_a_mount_has_what_is_not_committed") {
        return;
    }
    let cluster = Cluster::new("rs:2+1", 3);
    let (point, runtime) = (cluster.scratch.path.join("m"), cluster.scratch.path.join("run"));
    let mounted = Background::new(&cluster, &point, &runtime);
    let said = || run(weft().env("WEFT_RUNTIME_DIR", &runtime).args(["status", "--json"]).arg(&mounted.point)).json();
    let committed = || cluster.on(&["status", "--json"]).json()["bytes"].as_u64().unwrap();
    let mut file = File::create(point.join("file")).unwrap();
    file.write_all(&[7; 100_000]).unwrap();
    let before = said();
    let of = |name: &str| before[name].as_u64().unwrap();
    // On a slow machine it is committed by now.
    let all = of("uncommitted_files") == 1 && of("uncommitted_bytes") == 100_000;
    assert!(all || committed() == 100_000, "{before}");
    file.sync_all().unwrap();
    let after = said();
    assert!(after["uncommitted_files"] == 0 && after["uncommitted_bytes"] == 0, "{after}");
    assert_eq!(committed(), 100_000);
}

#[test]
fn handles_of_files_outlive_a_mount_and_hold_in_others() {
    if !possible("handles_of_files_outlive_a_mount_and_hold_in_others") {
        return;
    }
    let cluster = Cluster::new("rs:2+1", 3);
    let (point, runtime) = (cluster.scratch.path.join("m"), cluster.scratch.path.join("run"));
    let (first, mut next) = (Background::new(&cluster, &point, &runtime), None);
    let tried = handles::outlive(&point, || {
        run(weft().env("WEFT_RUNTIME_DIR", &runtime).arg("unmount").arg(&point)).good();
        drop(first);
        next = Some(Background::new(&cluster, &point, &runtime));
    });
    if !tried {
        return;
    }
    // The client of NFS may be sent to another machine.
    let elsewhere = cluster.scratch.path.join("elsewhere");
    let other = Background::new(&cluster, &elsewhere, &runtime);
    let file = handles::Handle::of(&point.join("a/b/file")).unwrap().open(&elsewhere).unwrap();
    assert_eq!(std::io::read_to_string(&file).unwrap(), "file");
    drop((file, other, next));
}

#[test]
fn mounts_leave_nothing_and_are_mounted_again_at_once() {
    if !possible("mounts_leave_nothing_and_are_mounted_again_at_once") {
        return;
    }
    let cluster = Cluster::new("rs:2+1", 3);
    let (point, runtime) = (cluster.scratch.path.join("m"), cluster.scratch.path.join("run"));
    for round in 0..3 {
        let mounted = Background::new(&cluster, &point, &runtime);
        let mut file = File::create(point.join("file")).unwrap();
        file.write_all(format!("{round}").as_bytes()).unwrap();
        file.sync_all().unwrap();
        drop(file);
        let modes: Vec<u32> = [runtime.clone(), fs::read_dir(&runtime).unwrap().next().unwrap().unwrap().path()]
            .iter()
            .map(|path| path.metadata().unwrap().permissions().mode() & 0o7777)
            .collect();
        assert_eq!((entries(&runtime), modes), (1, vec![0o700, 0o700]));
        let again = mount(&cluster, &point, &runtime).failed(1);
        assert!(again.contains("mounted here already"), "{again}");
        // The next one comes while this one has not even noticed that it was unmounted.
        mounted.signal(Signal::STOP);
        rustix::mount::unmount(&point, rustix::mount::UnmountFlags::empty()).unwrap();
        let next = std::thread::scope(|scope| {
            let next = scope.spawn(|| Background::new(&cluster, &point, &runtime));
            std::thread::sleep(Duration::from_millis(200));
            mounted.signal(Signal::CONT);
            next.join().unwrap()
        });
        assert_eq!(fs::read_to_string(point.join("file")).unwrap(), format!("{round}"));
        run(weft().env("WEFT_RUNTIME_DIR", &runtime).arg("unmount").arg(&point)).good();
        until("something is left", || entries(&runtime) == 0);
        drop((mounted, next));
    }
    // What a killed one leaves goes with the next mount, wherever that is.
    let killed = Background::new(&cluster, &point, &runtime);
    drop(killed);
    assert_eq!(entries(&runtime), 1);
    let other = Background::new(&cluster, &cluster.scratch.path.join("other"), &runtime);
    assert_eq!(entries(&runtime), 1);
    run(weft().env("WEFT_RUNTIME_DIR", &runtime).arg("unmount").arg(&other.point)).good();
    until("something is left", || entries(&runtime) == 0);
    // One that cannot be leaves nothing either.
    let refused = mount(&cluster, &cluster.scratch.file("file", 1), &runtime).failed(1);
    assert!(refused.contains("not a directory") && entries(&runtime) == 0, "{refused}");
    // Nothing is written where others may put links.
    let open = cluster.scratch.path.join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
    let said = mount(&cluster, &point, &open).failed(1);
    assert!(said.contains("others may write to it") && said.contains("WEFT_RUNTIME_DIR"), "{said}");
    let link = cluster.scratch.path.join("link");
    std::os::unix::fs::symlink(&runtime, &link).unwrap();
    let said = mount(&cluster, &point, &link).failed(1);
    assert!(said.contains("not a directory"), "{said}");
    assert_eq!((entries(&runtime), entries(&open)), (0, 0));
}

/// By mount(8) and its helper, with a certificate.
#[test]
fn a_line_of_fstab_mounts_a_served_volume() {
    if !possible("a_line_of_fstab_mounts_a_served_volume") {
        return;
    }
    let cluster = Secured::with("rs:2+1", 3, &[], &[], 5);
    let path = &cluster.scratch.path;
    let (point, helpers) = (path.join("point"), path.join("helpers"));
    [&point, &helpers].into_iter().for_each(|path| fs::create_dir(path).unwrap());
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_weft"), helpers.join("mount.weft")).unwrap();
    let options = format!("_netdev,nofail,identity={}", path.join("laptop/laptop").display());
    let line = format!("{} {} weft {options} 0 0\n", cluster.url(), point.display());
    fs::write(path.join("fstab"), line).unwrap();
    let script = r#"
        cd "$0"
        mount --make-rprivate /
        mount --bind helpers /usr/sbin
        test -e /sbin/mount.weft || mount --bind helpers /sbin
        mount -a -T fstab
        mount -a -T fstab
        grep -c "$0/point fuse.weft" /proc/self/mounts
        echo content > point/file
        sync point/file
        umount point
        ! grep "$0/point fuse.weft" /proc/self/mounts
        mount -a -T fstab
        cat point/file
        umount point
    "#;
    let mut mount = Command::new("unshare");
    mount.env("WEFT_RUNTIME_DIR", path.join("run")).args(["-m", "sh", "-ec", script]).arg(path);
    assert_eq!(String::from_utf8(run(&mut mount).good()).unwrap(), "1\ncontent\n");
    until("something is left", || entries(&path.join("run")) == 0);
}

/// Its metadata server is gone, and files are open for writing with unsynced data: all that waits
/// for the server ends together.
#[test]
fn a_mount_whose_server_is_gone_ends_within_one_patience() {
    if !possible("a_mount_whose_server_is_gone_ends_within_one_patience") {
        return;
    }
    let cluster = Cluster::new("rs:2+1", 3);
    let (point, runtime) = (cluster.scratch.path.join("m"), cluster.scratch.path.join("run"));
    fs::create_dir(&point).unwrap();
    let mut command = weft();
    command.env("WEFT_RUNTIME_DIR", &runtime).args(["mount", "--json", "--patience", "20"]);
    let ended = run(command.arg(cluster.url()).arg(&point));
    assert_eq!(ended.status, 0, "{}", ended.errors);
    let mounted = Background { point: point.clone(), process: ended.json()["process"].as_i64().unwrap() as i32 };
    let mut files: Vec<File> = (0..4).map(|number| File::create(point.join(format!("f{number}"))).unwrap()).collect();
    files.iter_mut().for_each(|file| file.write_all(&[7; 10_000]).unwrap());
    cluster.meta.kill();
    let files = files.into_iter().map(|file| std::thread::spawn(move || drop(file))).collect::<Vec<_>>();
    rustix::mount::unmount(&point, rustix::mount::UnmountFlags::DETACH).unwrap();
    let log = || {
        let directories = fs::read_dir(&runtime).unwrap().flatten();
        directories
            .map(|entry| fs::read_to_string(entry.path().join("mount.log")).unwrap_or_default())
            .collect::<String>()
    };
    let stat = format!("/proc/{}/stat", mounted.process);
    // Until then programs use it, and each waits for its own operation.
    files.into_iter().for_each(|closed| closed.join().unwrap());
    let begun = Instant::now();
    // A process without a parent that asks for its end stays in the list.
    until("the mount does not end", || fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z ")));
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(60), "{took:?}: {}", log());
    assert_eq!(log().matches("40000 bytes of 4 files that nobody synced are lost").count(), 1, "{}", log());
}

/// While the mount is alone, the kernel keeps attributes for a while.
#[test]
fn how_much_space_a_file_takes_is_told_right_after_a_sync() {
    if !possible("how_much_room_a_file_takes_is_told_right_after_a_sync") {
        return;
    }
    let cluster = Cluster::new("rs:2+1", 3);
    for options in [&[][..], &["-o", "writeback"]] {
        let mount = cluster.mount_with("m", options);
        let file = File::create(mount.at("file")).unwrap();
        for round in 0..5 {
            let mut content = vec![0; 1 << 20];
            fastrand::fill(&mut content);
            file.write_all_at(&content, 0).unwrap();
            file.metadata().unwrap();
            file.sync_all().unwrap();
            assert_eq!(file.metadata().unwrap().blocks(), 2048, "round {round}, {options:?}");
        }
        drop(file);
        mount.unmount();
    }
}

/// The kernel has pages of a file that it did not write back when the session of its mount ends.
#[test]
fn pages_of_an_old_session_are_not_written_in_a_new_one() {
    if !possible("pages_of_an_old_session_are_not_written_in_a_new_one") {
        return;
    }
    let cluster = Cluster::with("rs:2+1", 3, &["--lease", "10"]);
    let (a, b) = (cluster.mount_with("a", &["-o", "writeback"]), cluster.mount("b"));
    fs::write(a.at("file"), "nobody").unwrap();
    let ours = OpenOptions::new().read(true).write(true).open(a.at("file")).unwrap();
    ours.sync_all().unwrap();
    ours.write_all_at(b"ours", 0).unwrap();
    a.signal(Signal::STOP);
    // This waits until the other session is over: it may have what was written.
    fs::write(b.at("file"), "theirs").unwrap();
    File::open(b.at("file")).unwrap().sync_all().unwrap();
    a.signal(Signal::CONT);
    until("it does not hear that its session is over", || a.log().contains("silent for longer than its lease"));
    let refused = ours.sync_all().unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(Errno::IO.raw_os_error()));
    assert_eq!(fs::read_to_string(b.at("file")).unwrap(), "theirs");
    // The program got the error, and can go on.
    until("pages of before are not dropped", || fs::read_to_string(a.at("file")).unwrap() == "theirs");
    until("it cannot be written any more", || {
        ours.write_all_at(b"T", 0).unwrap();
        ours.sync_all().is_ok()
    });
    assert_eq!(fs::read_to_string(b.at("file")).unwrap(), "Theirs");
    drop(ours);
    b.unmount();
    // The unmount reports that something was lost.
    drop(a);
}

/// What programs ask right after a change.
#[test]
fn times_space_and_syncs_are_as_on_a_local_file_system() {
    if !possible("times_room_and_syncs_are_as_on_a_local_file_system") {
        return;
    }
    let cluster = Cluster::new("rs:2+1", 3);
    for options in [&[][..], &["-o", "writeback"]] {
        let mount = cluster.mount_with("m", options);
        promptly::times_space_and_syncs(&mount.point);
        mount.unmount();
    }
    // With another client, which takes away the exclusive lease.
    let (mount, _other) = (cluster.mount("m"), cluster.mount("n"));
    promptly::times_space_and_syncs(&mount.point);
}

/// A file is cut off and written again, over and over. A reader at another mount may find any part
/// of the old content or of the new one, and no bytes that nobody wrote.
#[test]
fn a_reader_beside_a_truncate_and_write_sees_old_or_new_bytes() {
    if !possible("a_reader_beside_a_truncate_and_write_sees_old_or_new_bytes") {
        return;
    }
    let cluster = Cluster::new("rs:4+2", 6);
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    for length in [1000, 60_000, 3_000_000] {
        fs::write(a.at("f"), vec![1; length]).unwrap();
        let (reads, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let (wrong, last) = std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut wrong = None;
                while wrong.is_none() && !stop.load(Ordering::SeqCst) {
                    let read = fs::read(b.at("f")).unwrap();
                    wrong = read.iter().position(|&byte| byte == 0);
                    reads.fetch_add(1, Ordering::SeqCst);
                }
                wrong
            });
            // Until the reader has been there often enough, and at least so many times.
            let mut round = 1u8;
            let begun = Instant::now();
            while !reader.is_finished() && (round < 40 || reads.load(Ordering::SeqCst) < 20) {
                assert!(begun.elapsed() < WAIT_TIMEOUT, "nobody reads");
                round = round % 250 + 1;
                fs::write(a.at("f"), vec![round; length]).unwrap();
            }
            stop.store(true, Ordering::SeqCst);
            (reader.join().unwrap(), round)
        });
        assert_eq!(wrong, None, "a zero that nobody wrote, of {length} bytes");
        assert!(fs::read(b.at("f")).unwrap() == vec![last; length]);
    }
    a.unmount();
    b.unmount();
    cluster.is_healthy();
}
