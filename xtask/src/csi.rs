//! `cargo xtask csi`: csi-sanity, the conformance tests of the Container Storage Interface, on
//! `weft-csi`, and drivers and mounts that are killed. No Kubernetes is needed.

use crate::peers::run;
use crate::{NOT_HERE, torture};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const SANITY: &str = "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity@v5.3.1";
/// The longest that anything here takes to begin or end.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Builds the driver and the tests, and runs them with a release build of `weft`.
///
/// # Errors
/// What failed; it begins with `NOT_HERE` without root, FUSE or Go.
pub fn check(root: &Path, weft: &Path) -> Result<(), String> {
    torture::possible()?;
    let sanity = sanity(root)?;
    crate::cargo(&["build", "--release", "-p", "weft-csi", "--features", "weft-csi/csi"], &[])?;
    let folder = root.join("target/csi");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    let mut create = Command::new(weft);
    create.args(["create", "--code", "rs:2+1"]).arg(folder.join("volume"));
    run(create.args((0..3).map(|disk| folder.join(format!("disk{disk}")))))?;
    let mut lab = Lab { weft: weft.into(), program: root.join("target/release/weft-csi"), folder, driver: None };
    lab.start()?;
    lab.is_sane(&sanity)?;
    lab.outlives_its_driver()?;
    // The driver mounts again.
    run(Command::new("pkill").args(["-9", "-f", &format!("mount --foreground .*{}/mount", lab.folder.display())]))?;
    lab.is_sane(&sanity)
}

/// csi-sanity, which is built if it must be.
fn sanity(root: &Path) -> Result<PathBuf, String> {
    let folder = root.join("target/peers/go");
    let program = folder.join("csi-sanity");
    if !program.exists() {
        let mut go = Command::new("go");
        go.args(["install", SANITY]).env("GOBIN", &folder).env("GOFLAGS", "-mod=mod");
        let failed = |why: String| format!("{NOT_HERE}: csi-sanity by Go: {}", why.lines().last().unwrap_or_default());
        run(&mut go).map_err(failed)?;
    }
    Ok(program)
}

/// A volume in a directory, and the driver.
struct Lab {
    weft: PathBuf,
    program: PathBuf,
    folder: PathBuf,
    driver: Option<Child>,
}

impl Lab {
    fn start(&mut self) -> Result<(), String> {
        let socket = self.folder.join("csi.sock");
        let mut command = Command::new(&self.program);
        command.arg("--endpoint").arg(format!("unix://{}", socket.display()));
        command.args(["--node", "here", "--weft"]).arg(&self.weft);
        command.arg("--volume").arg(self.folder.join("volume")).arg("--mount").arg(self.folder.join("mount"));
        let driver = command.stdin(Stdio::null()).spawn().map_err(|why| format!("weft-csi: {why}"))?;
        let begun = Instant::now();
        self.driver = Some(driver);
        while std::os::unix::net::UnixStream::connect(&socket).is_err() {
            if begun.elapsed() > TIMEOUT {
                return Err("weft-csi does not begin to serve".into());
            }
            sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Whether it passes the conformance tests.
    fn is_sane(&self, sanity: &Path) -> Result<(), String> {
        let mut command = Command::new(sanity);
        command.arg("--csi.endpoint").arg(self.folder.join("csi.sock"));
        command.arg("--csi.mountdir").arg(self.folder.join("target"));
        command.arg("--csi.stagingdir").arg(self.folder.join("staging"));
        eprintln!("== csi-sanity");
        let status = command.status().map_err(|why| format!("csi-sanity: {why}"))?;
        if status.success() { Ok(()) } else { Err("csi-sanity failed".into()) }
    }

    fn kill(&mut self) {
        if let Some(mut driver) = self.driver.take() {
            let _ = driver.kill();
            let _ = driver.wait();
        }
    }

    /// What pods use stays when a driver is killed; the next one goes on with the same mount.
    fn outlives_its_driver(&mut self) -> Result<(), String> {
        let at = self.folder.join("mount/kubernetes/pod");
        let error = |why: std::io::Error| format!("{}: {why}", at.display());
        fs::create_dir(&at).and_then(|()| fs::write(at.join("file"), "kept")).map_err(error)?;
        self.kill();
        self.start()?;
        match fs::read_to_string(at.join("file")).map_err(error)?.as_str() {
            "kept" => Ok(()),
            other => Err(format!("after the driver was killed a file has {other:?}")),
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.kill();
        let _ = run(Command::new(&self.weft).arg("unmount").arg(self.folder.join("mount")));
    }
}
