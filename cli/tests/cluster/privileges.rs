//! Rights that a program has by its file: they go at once when another user changes it, through any
//! mount.

use crate::lab::{Cluster, Mount, possible};
use crate::scratch::run;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// To bind to ports below 1024, for all users, as `setcap` writes it.
fn capability() -> Vec<u8> {
    [0x0200_0001_u32, 1 << 10, 0, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A shell of another user.
fn somebody() -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "1234", "--regid", "1234", "--clear-groups", "sh", "-ec"]);
    command
}

/// A process that has a file open for writing, and writes a byte on each request.
struct Writer(Child);

impl Writer {
    fn new(path: &Path, open: &str) -> Self {
        let script = format!("exec 3{open}\"$0\"; while printf x >&3; echo written; read line; do :; done");
        let mut command = somebody();
        command.arg(script).arg(path).stdin(Stdio::piped()).stdout(Stdio::piped());
        Self(command.spawn().unwrap())
    }

    fn has_written(&mut self) {
        let mut line = String::new();
        BufReader::new(self.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "written\n");
    }

    fn write(&mut self) {
        self.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        self.has_written();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn privilege(mount: &Mount) {
    let path = mount.at("program");
    fs::set_permissions(&path, Permissions::from_mode(0o6777)).unwrap();
    xattr::set(&path, "security.capability", &capability()).unwrap();
}

/// What is left of it: the mode and the capabilities.
fn left(mount: &Mount) -> (u32, Option<Vec<u8>>) {
    let path = mount.at("program");
    (fs::metadata(&path).unwrap().mode() & 0o7777, xattr::get(&path, "security.capability").unwrap())
}

#[test]
fn who_changes_a_program_through_any_mount_gets_no_rights_of_its_owner() {
    if !possible("who_changes_a_program_through_any_mount_gets_no_rights_of_its_owner") {
        return;
    }
    let cluster = Cluster::new("rs:2+1", 3);
    fs::set_permissions(&cluster.scratch.path, Permissions::from_mode(0o755)).unwrap();
    let options = ["-o", "suid"];
    let mount = cluster.mount_with("a", &options);
    let program = || {
        let _ = fs::remove_file(mount.at("program"));
        fs::copy("/usr/bin/id", mount.at("program")).unwrap();
        privilege(&mount);
    };
    for (change, whose) in [("printf x >> \"$0\"", "alone"), ("truncate -s 1M \"$0\"", "alone")] {
        program();
        run(somebody().arg(change).arg(mount.at("program"))).good();
        assert_eq!(left(&mount), (0o777, None), "{change}, {whose}");
    }
    let other = cluster.mount_with("b", &options);
    for open in [">>", "<>"] {
        program();
        // The kernel of the other mount finds no rights now, and is not told when they come.
        fs::set_permissions(mount.at("program"), Permissions::from_mode(0o777)).unwrap();
        xattr::remove(mount.at("program"), "security.capability").unwrap();
        let mut writer = Writer::new(&other.at("program"), open);
        writer.has_written();
        privilege(&mount);
        assert_eq!(left(&mount), (0o6777, Some(capability())));
        writer.write();
        assert_eq!(left(&mount), (0o777, None), "open{open}");
    }
    other.unmount();
    // With a kernel that keeps what is written: the program runs right after its change, with the
    // rights of the user who runs it.
    let keeping = cluster.mount_with("c", &["-o", "suid,writeback"]);
    for change in ["printf x >> \"$0\"", "fallocate -l 2M \"$0\""] {
        program();
        run(&mut Command::new(keeping.at("program"))).good();
        let seen = run(somebody().arg(format!("{change}; \"$0\" -u")).arg(keeping.at("program"))).good();
        assert_eq!(String::from_utf8(seen).unwrap(), "1234\n", "{change}");
        assert_eq!(left(&keeping), (0o777, None), "{change}");
    }
    keeping.unmount();
    mount.unmount();
}
