//! A directory with disks for one test, and the binary to run on them.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Removed when it is dropped.
pub struct Scratch {
    pub path: PathBuf,
    pub disks: Vec<PathBuf>,
}

/// How a command ended.
#[derive(Debug)]
pub struct Ended {
    pub status: i32,
    pub output: Vec<u8>,
    pub errors: String,
}

impl Ended {
    pub fn new(status: ExitStatus, output: Vec<u8>, errors: &[u8]) -> Self {
        let errors = String::from_utf8_lossy(errors).into_owned();
        Self { status: status.code().unwrap_or(-1), output, errors }
    }

    /// Its output when it succeeded.
    #[track_caller]
    pub fn good(self) -> Vec<u8> {
        assert_eq!(self.status, 0, "{}{}", self.errors, String::from_utf8_lossy(&self.output));
        self.output
    }

    /// Its only line on standard error when it failed with that status.
    #[track_caller]
    pub fn failed(self, status: i32) -> String {
        assert_eq!(self.status, status, "{}", self.errors);
        let errors: Vec<&str> = self.errors.lines().filter(|line| !line.starts_with("weft: warning: ")).collect();
        assert_eq!(errors.len(), 1, "{}", self.errors);
        errors[0].strip_prefix("weft: ").expect("it says who speaks").to_owned()
    }

    /// The JSON document it printed.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.output).expect("one JSON document")
    }
}

/// The binary.
pub fn weft() -> Command {
    Command::new(env!("CARGO_BIN_EXE_weft"))
}

// Each of the test programs has its way to run a command to its end.
pub use crate::starter::run;

impl Scratch {
    pub fn new(disks: usize) -> Self {
        Self::under(&std::env::temp_dir(), disks)
    }

    pub fn under(directory: &Path, disks: usize) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!("weft-test-{}-{number}", std::process::id()));
        let disks: Vec<PathBuf> = (0..disks).map(|disk| path.join(format!("disk{disk}"))).collect();
        disks.iter().for_each(|disk| fs::create_dir_all(disk).unwrap());
        fs::create_dir_all(&path).unwrap();
        Self { path, disks }
    }

    /// A file of reproducible noise.
    pub fn file(&self, name: impl AsRef<OsStr>, bytes: usize) -> PathBuf {
        let path = self.path.join(name.as_ref());
        fs::write(&path, noise(bytes)).unwrap();
        path
    }

    pub fn encode(&self, file: impl AsRef<OsStr>, code: &str, more: &[&str]) -> Ended {
        run(weft().arg("encode").arg(file).args(["--code", code]).args(more).arg("--to").args(&self.disks))
    }

    /// Decodes to the file `out` in the scratch directory.
    pub fn decode(&self, name: impl AsRef<OsStr>, more: &[&str]) -> Ended {
        run(weft().arg("decode").arg(name).arg("--out").arg(self.out()).args(more).arg("--from").args(&self.disks))
    }

    pub fn out(&self) -> PathBuf {
        self.path.join("out")
    }

    /// The bytes that decoding gives; the file is removed again.
    #[track_caller]
    pub fn decoded(&self, name: impl AsRef<OsStr>) -> Vec<u8> {
        self.decode(name, &[]).good();
        let bytes = fs::read(self.out()).unwrap();
        fs::remove_file(self.out()).unwrap();
        bytes
    }

    /// `verify` or `repair` of an object.
    pub fn on(&self, command: &str, name: impl AsRef<OsStr>, more: &[&str]) -> Ended {
        run(weft().arg(command).arg(name).args(more).arg("--from").args(&self.disks))
    }

    pub fn fragment(&self, name: impl AsRef<OsStr>, position: usize) -> PathBuf {
        let mut file_name = OsString::from(name.as_ref());
        file_name.push(format!(".{position:03}.weft"));
        self.disks[position % self.disks.len()].join(file_name)
    }

    /// Everything that lies on the disks, by path relative to the scratch directory.
    pub fn files(&self) -> Vec<PathBuf> {
        let list = |disk: &PathBuf| fs::read_dir(disk).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
        let mut files: Vec<PathBuf> = self.disks.iter().flat_map(list).collect();
        files.sort();
        files
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Reproducible noise.
pub fn noise(bytes: usize) -> Vec<u8> {
    let mut noise = vec![0; bytes];
    fastrand::Rng::with_seed(bytes as u64).fill(&mut noise);
    noise
}

/// Changes some bytes of a file in place.
pub fn edit(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

/// Changes bytes of a fragment's header and puts the right checksum on it.
pub fn resealed(path: &Path, change: impl FnOnce(&mut [u8])) {
    edit(path, |bytes| {
        change(bytes);
        let checksum = gf::checksum::crc64(&bytes[..4088]);
        bytes[4088..4096].copy_from_slice(&checksum.to_le_bytes());
    });
}

/// Says in a fragment's header that its object was encoded `seconds` seconds after 1970.
pub fn created(path: &Path, seconds: i64) {
    resealed(path, |bytes| bytes[220..228].copy_from_slice(&seconds.to_le_bytes()));
}

/// Gives bytes to a command's standard input and waits for its end.
pub fn run_with_input(command: &mut Command, input: &[u8]) -> Ended {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let ended = child.wait_with_output().unwrap();
    Ended::new(ended.status, ended.stdout, &ended.stderr)
}

/// A name of any bytes.
pub fn name(bytes: &[u8]) -> &OsStr {
    OsStr::from_bytes(bytes)
}
