//! Mounted volumes: what was synced survives any end of the mount, and commands reach the volume
//! under it. Skipped, with a word, where nothing can be mounted.

use crate::scratch::{Ended, noise, run, weft};
use crate::volumes::Volume;
use crate::{handles, promptly};
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A mounted volume, unmounted when it is dropped.
struct Mounted {
    volume: Volume,
    point: PathBuf,
    process: i32,
}

fn possible(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    let possible = root && File::options().read(true).write(true).open("/dev/fuse").is_ok();
    if !possible {
        eprintln!("{test} is skipped: it takes root and /dev/fuse");
    }
    possible
}

impl Mounted {
    fn new(code: &str, disks: usize) -> Self {
        let volume = Volume::new(code, disks);
        let point = volume.scratch.path.join("mount point");
        fs::create_dir(&point).unwrap();
        let mut mounted = Self { volume, point, process: 0 };
        mounted.mount(&[]);
        mounted
    }

    #[track_caller]
    fn mount(&mut self, more: &[&str]) {
        let ended = run(weft().args(["mount", "--json"]).args(more).args([&self.volume.path, &self.point]));
        assert_eq!(ended.status, 0, "{}", ended.errors);
        self.process = ended.json()["process"].as_i64().unwrap() as i32;
    }

    fn unmount(&self, more: &[&str]) -> Ended {
        let unmount = || run(weft().arg("unmount").args(more).arg(&self.point));
        self.while_copied(unmount, |ended| ended.errors.contains("is in use by"))
    }

    /// Tries again while the mount is in use, but not by an open file of this process: a process
    /// that another test starts has copies of all files until it executes its program.
    fn while_copied<T>(&self, mut work: impl FnMut() -> T, is_busy: impl Fn(&T) -> bool) -> T {
        let is_there = |entry: fs::DirEntry| fs::read_link(entry.path()).is_ok_and(|to| to.starts_with(&self.point));
        let begun = Instant::now();
        loop {
            let done = work();
            let own = fs::read_dir("/proc/self/fd").unwrap().flatten().any(is_there);
            if own || !is_busy(&done) || begun.elapsed() > Duration::from_secs(300) {
                return done;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn umount(&self) {
        let unmount = || run(Command::new("umount").env("LC_ALL", "C").arg(&self.point));
        self.while_copied(unmount, |ended| ended.errors.contains("busy")).good();
    }

    /// As `umount`, which would look at the files first: that waits for the mount.
    fn unmount_at_once(&self) {
        let unmount = || rustix::mount::unmount(&self.point, rustix::mount::UnmountFlags::empty());
        self.while_copied(unmount, |done| *done == Err(rustix::io::Errno::BUSY)).unwrap();
    }

    fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_raw(self.process).unwrap(), signal).unwrap();
    }

    /// Waits until the process of the mount is gone.
    #[track_caller]
    fn gone(&self) {
        let begun = Instant::now();
        let is_there = || {
            // A process without a parent that asks for its end stays in the list.
            fs::read_to_string(format!("/proc/{}/stat", self.process)).is_ok_and(|stat| !stat.contains(") Z "))
        };
        while is_there() {
            assert!(begun.elapsed() < Duration::from_secs(300), "the mount does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        run(weft().args(["unmount", "--lazy"]).arg(&self.point));
    }
}

/// Writes files and syncs each, until the mount is gone; returns how many were synced.
fn write_synced(point: &std::path::Path, round: usize, killed: &AtomicBool, synced: &AtomicUsize) {
    for number in 0.. {
        let write = || {
            let mut file = File::create(point.join(format!("{round}-{number}")))?;
            file.write_all(&noise(content_of(round, number)))?;
            file.sync_all()
        };
        match write() {
            Ok(()) => synced.store(number + 1, Ordering::SeqCst),
            Err(why) => {
                assert!(killed.load(Ordering::SeqCst), "before the mount was killed: {why}");
                return;
            }
        }
    }
}

/// From some bytes to some stripes.
fn content_of(round: usize, number: usize) -> usize {
    [17, 5_000, 40_000, 300_000, 2_000_000][(round * 7 + number * 3) % 5] + number
}

#[test]
fn what_was_synced_survives_a_killed_mount() {
    if !possible("what_was_synced_survives_a_killed_mount") {
        return;
    }
    let mut mounted = Mounted::new("rs:4+2", 6);
    let mut random = fastrand::Rng::with_seed(5);
    let mut all = Vec::new();
    for round in 0..5 {
        let (killed, synced) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| write_synced(&mounted.point, round, &killed, &synced));
            std::thread::sleep(Duration::from_millis(random.u64(100..900)));
            killed.store(true, Ordering::SeqCst);
            mounted.signal(rustix::process::Signal::KILL);
        });
        mounted.gone();
        all.push(synced.into_inner());
        // What is left of the mount is in the way, and it is said how it goes away.
        let said = run(weft().arg("mount").args([&mounted.volume.path, &mounted.point])).failed(1);
        assert!(said.contains("weft unmount"), "{said}");
        mounted.unmount(&[]).good();
        mounted.mount(&[]);
        for (round, &files) in all.iter().enumerate() {
            for number in 0..files {
                let read = fs::read(mounted.point.join(format!("{round}-{number}"))).unwrap();
                assert!(read == noise(content_of(round, number)), "file {number} of round {round}");
            }
        }
    }
    assert!(all.iter().sum::<usize>() > 5, "{all:?}");
    mounted.unmount(&[]).good();
    mounted.volume.is_healthy();
}

#[test]
fn a_signal_commits_everything() {
    if !possible("a_signal_commits_everything") {
        return;
    }
    let mut mounted = Mounted::new("rs:2+1", 3);
    for (round, signal) in [rustix::process::Signal::TERM, rustix::process::Signal::INT].into_iter().enumerate() {
        let (big, small) = (format!("big{round}"), format!("small{round}"));
        fs::write(mounted.point.join(&big), noise(20_000_000 + round)).unwrap();
        fs::write(mounted.point.join(&small), noise(100 + round)).unwrap();
        mounted.signal(signal);
        mounted.gone();
        assert!(mounted.volume.cat(&big).good() == noise(20_000_000 + round));
        assert!(mounted.volume.cat(&small).good() == noise(100 + round));
        mounted.mount(&[]);
    }
    // In use: it goes out of sight, and ends once it is no longer used.
    let mut held = File::create(mounted.point.join("held")).unwrap();
    mounted.signal(rustix::process::Signal::TERM);
    let begun = Instant::now();
    while mounted.point.join("big0").exists() {
        assert!(begun.elapsed() < Duration::from_secs(300), "the mount does not go");
        std::thread::sleep(Duration::from_millis(5));
    }
    held.write_all(&noise(1000)).unwrap();
    drop(held);
    mounted.gone();
    assert!(mounted.volume.cat("held").good() == noise(1000));
    mounted.volume.is_healthy();
}

#[test]
fn unmounting_waits_until_the_volume_can_be_opened() {
    if !possible("unmounting_waits_until_the_volume_can_be_opened") {
        return;
    }
    let mut mounted = Mounted::new("rs:2+1", 3);
    for round in 0..3 {
        let name = format!("f{round}");
        fs::write(mounted.point.join(&name), noise(10_000_000 + round)).unwrap();
        mounted.unmount(&[]).good();
        assert!(mounted.volume.cat(&name).good() == noise(10_000_000 + round));
        assert!(mounted.unmount(&[]).failed(1).contains("no Weft volume is mounted"));
        mounted.mount(&[]);
    }
    let held = File::open(mounted.point.join("f0")).unwrap();
    let said = mounted.unmount(&[]).failed(1);
    assert!(said.contains("is in use by") && said.contains("--lazy"), "{said}");
    drop(held);
    // By another program, and of the foreground.
    mounted.umount();
    mounted.gone();
    let mut command = weft();
    command.args(["mount", "--foreground"]).args([&mounted.volume.path, &mounted.point]).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let begun = Instant::now();
    while !mounted.point.join("f0").exists() {
        assert!(begun.elapsed() < Duration::from_secs(300) && child.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(5));
    }
    mounted.unmount(&[]).good();
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_mounted_volume_is_looked_after() {
    if !possible("a_mounted_volume_is_looked_after") {
        return;
    }
    let mut mounted = Mounted::new("rs:4+2", 6);
    let (volume, point) = (&mounted.volume, &mounted.point);
    fs::write(point.join("f"), noise(9_000_000)).unwrap();
    File::open(point.join("f")).unwrap().sync_all().unwrap();
    volume.becomes_healthy();
    assert_eq!(run(weft().arg("ls").arg(volume.at(""))).good(), b"f\n");
    // What takes a volume of one's own says where the files are.
    for command in [vec!["cat"], vec!["rm"]] {
        let said = run(weft().args(command).arg(volume.at("f"))).failed(1);
        assert!(said.contains("is mounted on") && said.contains("mount point"), "{said}");
    }
    let said = run(weft().arg("mount").args([&volume.path, point])).failed(1);
    assert!(said.contains("is mounted on"), "{said}");
    assert!(run(weft().args(["fsck", "--rebuild"]).arg(&volume.path)).failed(1).contains("unmount it first"));
    // A disk dies and is replaced under it, given relative to another directory than that of the
    // mount.
    fs::remove_dir_all(&volume.scratch.disks[3]).unwrap();
    fs::write(point.join("later"), noise(3_000_000)).unwrap();
    File::open(point.join("later")).unwrap().sync_all().unwrap();
    let below = volume.scratch.path.join("below");
    fs::create_dir(&below).unwrap();
    let here = |arguments: &[&str]| run(weft().current_dir(&below).args(arguments));
    let status = here(&["status", "../a volume", "--json"]);
    assert_eq!((status.status, &status.json()["healthy"]), (1, &false.into()));
    here(&["target", "replace", "../a volume", "../disk3", "../new disk"]).good();
    assert!(volume.scratch.path.join("new disk/weft.label").exists());
    here(&["repair", "../a volume"]).good();
    here(&["verify", "../a volume"]).good();
    here(&["status", "../a volume"]).good();
    let absent = here(&["target", "drain", "../a volume", "nothing"]).failed(1);
    assert!(absent.contains("is not a target"), "{absent}");
    assert!(fs::read(point.join("f")).unwrap() == noise(9_000_000));
    mounted.unmount(&[]).good();
    mounted.volume.is_healthy();
    mounted.mount(&["-o", "ro"]);
    assert!(fs::write(mounted.point.join("f"), "x").is_err());
    assert!(
        mounted.volume.target("add", &[&mounted.volume.scratch.path.join("more")]).failed(1).contains("reading only")
    );
    assert!(fs::read(mounted.point.join("later")).unwrap() == noise(3_000_000));
}

/// The process of the mount has the chunks open, and reads them yet.
#[test]
fn chunks_that_are_removed_under_a_mount_are_noticed() {
    if !possible("chunks_that_are_removed_under_a_mount_are_noticed") {
        return;
    }
    let mounted = Mounted::new("rs:4+2", 6);
    let (volume, point) = (&mounted.volume, &mounted.point);
    fs::write(point.join("f"), noise(3_000_000)).unwrap();
    // A commit in the background may come between its two figures.
    let counted = || {
        let status = volume.on(&["status", "--json"]).json();
        status["bytes"].as_u64().unwrap() + status["uncommitted_bytes"].as_u64().unwrap()
    };
    assert!((0..100).any(|_| counted() == 3_000_000), "{}", counted());
    File::open(point.join("f")).unwrap().sync_all().unwrap();
    volume.becomes_healthy();
    (0..3).for_each(|disk| volume.chunks(disk).iter().for_each(|chunk| fs::remove_file(chunk).unwrap()));
    for command in ["status", "fsck", "verify"] {
        assert_eq!(volume.on(&[command]).status, 1, "{command}");
    }
    let repaired = volume.on(&["repair", "--json"]);
    assert_eq!((repaired.status, &repaired.json()["chunks"]), (0, &3.into()), "{}", repaired.errors);
    volume.is_healthy();
    mounted.unmount(&[]).good();
    assert!(volume.cat("f").good() == noise(3_000_000));
    volume.is_healthy();
}

#[test]
fn what_cannot_be_mounted_is_refused_in_one_line() {
    if !possible("what_cannot_be_mounted_is_refused_in_one_line") {
        return;
    }
    let volume = Volume::new("rs:2+1", 3);
    let file = volume.scratch.file("f", 1);
    for (point, says) in [(volume.scratch.path.join("absent"), "no such directory"), (file, "not a directory")] {
        let said = run(weft().arg("mount").args([&volume.path, &point])).failed(1);
        assert!(said.contains(says), "{said}");
    }
    let said = run(weft().arg("mount").args([&volume.path, &volume.scratch.path])).failed(1);
    assert!(said.contains("has entries"), "{said}");
    let said = run(weft().args(["mount", "-o", "bogus"]).args([&volume.path, &volume.path])).failed(2);
    assert!(said.contains("unknown mount option bogus"), "{said}");
    volume.is_healthy();
}

/// What programs ask right after a change.
#[test]
fn times_space_and_syncs_are_as_on_a_local_file_system() {
    if !possible("times_room_and_syncs_are_as_on_a_local_file_system") {
        return;
    }
    let mounted = Mounted::new("rs:2+1", 3);
    promptly::times_space_and_syncs(&mounted.point);
    assert_eq!(mounted.unmount(&[]).status, 0);
}

#[test]
fn handles_of_files_outlive_a_mount() {
    if !possible("handles_of_files_outlive_a_mount") {
        return;
    }
    let mut mounted = Mounted::new("rs:2+1", 3);
    let _ = handles::outlive(&mounted.point.clone(), || {
        mounted.unmount(&[]).good();
        mounted.mount(&[]);
    });
    mounted.unmount(&[]).good();
}

/// `umount` returns before the process of the mount has committed and let go of the volume: the
/// next mount waits for that.
#[test]
fn a_volume_is_mounted_again_right_after_umount() {
    if !possible("a_volume_is_mounted_again_right_after_umount") {
        return;
    }
    let mut mounted = Mounted::new("rs:2+1", 3);
    for round in 0..3 {
        let mut file = File::create(mounted.point.join("file")).unwrap();
        file.write_all(&noise(100_000 + round)).unwrap();
        file.sync_all().unwrap();
        drop(file);
        // So busy that it does not even say so.
        mounted.signal(rustix::process::Signal::STOP);
        mounted.unmount_at_once();
        let mut again = weft();
        again.args(["mount", "--json"]).args([&mounted.volume.path, &mounted.point]);
        let mut again = again.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(300));
        assert!(again.try_wait().unwrap().is_none(), "{:?}", again.wait_with_output());
        mounted.signal(rustix::process::Signal::CONT);
        let ended = again.wait_with_output().unwrap();
        let ended = Ended::new(ended.status, ended.stdout, &ended.stderr);
        assert_eq!(ended.status, 0, "{}", ended.errors);
        mounted.process = ended.json()["process"].as_i64().unwrap() as i32;
        assert_eq!(fs::read(mounted.point.join("file")).unwrap(), noise(100_000 + round));
    }
    // And a command: it is not sent to a mount that ends.
    mounted.umount();
    mounted.volume.on(&["status"]).good();
}

/// In a namespace of mounts of its own, where `mount.weft` is what the documentation says: a link
/// to this program.
#[test]
fn lines_of_fstab_are_mounted() {
    if !possible("lines_of_fstab_are_mounted") {
        return;
    }
    let volume = Volume::new("rs:2+1", 3);
    let path = &volume.scratch.path;
    let (point, helpers) = (path.join("point"), path.join("helpers"));
    [&point, &helpers].into_iter().for_each(|path| fs::create_dir(path).unwrap());
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_weft"), helpers.join("mount.weft")).unwrap();
    let options = "defaults,_netdev,nofail,x-systemd.automount,x-systemd.mount-timeout=30,suid";
    let source = volume.path.display().to_string().replace(' ', r"\040");
    let line = format!("{source} {} weft {options} 0 0\n", point.display());
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
        umount point
        mount -T fstab "$0/point"
        cat point/file
        umount point
        mount -t weft "$0/a volume" "$0/point" -o ro
        ! touch point/file 2> /dev/null
        umount point
        mount -t weft "$0/a volume" "$0/nowhere" 2> errors || echo $?
        mount -t weft "$0/a volume" "$0/point" -o odd 2> errors || echo $?
        mount -f -t weft "$0/a volume" "$0/point"
        ! grep "$0/point fuse.weft" /proc/self/mounts
    "#;
    let said = run(Command::new("unshare").args(["-m", "sh", "-ec", script]).arg(path)).good();
    assert_eq!(String::from_utf8(said).unwrap(), "1\ncontent\n32\n1\n");
    volume.on(&["status"]).good();
}

/// The log of such a mount is in the runtime directory, which is this user's alone.
#[test]
fn a_volume_that_cannot_be_written_has_its_log_where_nobody_else_may_write() {
    if !possible("a_volume_that_cannot_be_written_has_its_log_where_nobody_else_may_write") {
        return;
    }
    let volume = Volume::new("rs:2+1", 3);
    let path = &volume.scratch.path;
    run(weft().arg("cp").arg(volume.scratch.file("file", 100_000)).arg(volume.at("file"))).good();
    ["point", "open", "own"].iter().for_each(|name| fs::create_dir(path.join(name)).unwrap());
    let script = r#"
        cd "$0"
        mount --make-rprivate /
        mount --bind "$2" "$2"
        mount -o remount,bind,ro "$2"
        chmod 777 open
        ! WEFT_RUNTIME_DIR="$0/open" "$1" mount "$2" point -o ro 2> errors
        cat errors
        WEFT_RUNTIME_DIR="$0/own" "$1" mount "$2" point -o ro --quiet
        ls open own
        cmp point/file file
        "$1" unmount point
    "#;
    let mut all = Command::new("unshare");
    all.args(["-m", "sh", "-ec", script]).arg(path).arg(env!("CARGO_BIN_EXE_weft")).arg(&volume.path);
    let said = String::from_utf8(run(&mut all).good()).unwrap();
    assert!(said.contains("others may write to it"), "{said}");
    // The log is removed when the mount is there.
    assert!(said.ends_with("open:\n\nown:\n"), "{said}");
}
