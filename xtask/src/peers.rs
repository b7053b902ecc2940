//! Builds the peers: small programs around other erasure-coding libraries, which the
//! byte-compatibility tests and the benchmarks talk to. Nothing of Weft links them, so a peer that
//! cannot be built here is only reported, and the rest goes on.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// Every peer with the sources, below `bench/peers`, that make it stale.
const PEERS: [(&str, &[&str]); 6] = [
    ("isal", &["isal.c", "peer.h"]),
    ("jerasure", &["jerasure.c", "peer.h"]),
    ("zfec", &["zfec_peer.py"]),
    ("klauspost", &["klauspost"]),
    ("reed-solomon-erasure", &["rust"]),
    ("reed-solomon-simd", &["rust"]),
];

/// Builds what is missing or stale and says for each peer where it is, or why it could not be
/// built.
pub fn build(root: &Path) -> Vec<(String, Result<PathBuf, String>)> {
    // The programs are later started from anywhere, and `go` and `cc` run from other directories.
    let root = &root.canonicalize().unwrap_or_else(|_| root.to_path_buf());
    let mut setup = Setup { root, installed: false };
    let ready = fs::create_dir_all(root.join("target/peers")).map_err(|why| format!("target/peers: {why}"));
    let outcome = |(name, sources): &(&str, &[&str])| {
        let output = root.join("target/peers").join(name);
        let built = ready.clone().and_then(|()| match is_fresh(root, &output, sources) {
            true => Ok(()),
            false => setup.build(name, &output),
        });
        (name.to_string(), built.map(|()| output))
    };
    PEERS.iter().map(outcome).collect()
}

fn is_fresh(root: &Path, output: &Path, sources: &[&str]) -> bool {
    let built = fs::metadata(output).and_then(|data| data.modified());
    built.is_ok_and(|built| sources.iter().all(|source| newest(&root.join("bench/peers").join(source)) <= built))
}

/// When a file, or anything in a directory, last changed; a missing file is never fresh.
fn newest(path: &Path) -> SystemTime {
    let never = SystemTime::now();
    match fs::read_dir(path) {
        Ok(entries) => {
            let times = entries.flatten().map(|entry| newest(&entry.path()));
            times.max().unwrap_or(SystemTime::UNIX_EPOCH)
        }
        Err(_) => fs::metadata(path).and_then(|data| data.modified()).unwrap_or(never),
    }
}

struct Setup<'a> {
    root: &'a Path,
    installed: bool,
}

impl Setup<'_> {
    fn build(&mut self, name: &str, output: &Path) -> Result<(), String> {
        let sources = self.root.join("bench/peers");
        match name {
            "isal" => self.build_c(&sources.join("isal.c"), output, &["-lisal"]),
            "jerasure" => {
                // Its own headers include each other as if their directory were searched.
                let mut flags = vec!["-I/usr/include/jerasure".to_string()];
                flags.extend(["-lJerasure", "-lgf_complete"].map(String::from));
                self.build_c(&sources.join("jerasure.c"), output, &flags)
            }
            "zfec" => self.build_zfec(&sources, output),
            "klauspost" => {
                let mut go = Command::new("go");
                run(go.args(["build", "-o"]).arg(output).arg(".").current_dir(sources.join("klauspost")))?;
                // An unchanged program is not written again, so its date is moved on here.
                touch(output)
            }
            _ => self.build_rust(name, &sources.join("rust/Cargo.toml"), output),
        }
    }

    /// Compiles, and if that fails once more after the libraries have been installed.
    fn build_c<S: AsRef<str>>(&mut self, source: &Path, output: &Path, flags: &[S]) -> Result<(), String> {
        let compile = || {
            let mut cc = Command::new("cc");
            // Only the package knows Jerasure's version; its headers do not.
            if let (true, Ok(version)) = (source.ends_with("jerasure.c"), packaged_version("libjerasure2")) {
                cc.arg(format!("-DPEER_VERSION=\"{version}\""));
            }
            cc.args(["-O3", "-o"]).arg(output).arg(source).args(flags.iter().map(AsRef::as_ref));
            run(&mut cc)
        };
        compile().or_else(|why| {
            if self.installed {
                return Err(why);
            }
            self.installed = true;
            install(&["libisal-dev", "libjerasure-dev", "libgf-complete-dev"])
                .map_err(|also| format!("{why}; {also}"))?;
            compile()
        })
    }

    /// zfec lives in a virtual environment of its own; the program is a line of shell that starts
    /// it there.
    fn build_zfec(&self, sources: &Path, output: &Path) -> Result<(), String> {
        let venv = self.root.join("target/peers/venv");
        let python = venv.join("bin/python3");
        let works = || run(Command::new(&python).args(["-c", "import zfec"]));
        if works().is_err() {
            let create = || run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv));
            create().or_else(|why| {
                install(&["python3-venv"]).map_err(|also| format!("{why}; {also}")).and_then(|()| create())
            })?;
            run(Command::new(&python).args(["-m", "pip", "install", "--quiet", "zfec==1.6.0.0"]))?;
            works()?;
        }
        let script = sources.join("zfec_peer.py");
        let line = format!("#!/bin/sh\nexec '{}' '{}'\n", python.display(), script.display());
        fs::write(output, line).map_err(|why| format!("{}: {why}", output.display()))?;
        run(Command::new("chmod").arg("+x").arg(output))
    }

    fn build_rust(&self, name: &str, manifest: &Path, output: &Path) -> Result<(), String> {
        let target = self.root.join("target/peers/rust");
        let cargo = |more: &[&str]| {
            let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
            let mut cargo = Command::new(program);
            cargo.args(["build", "--quiet", "--locked", "--release", "--bin", name]).args(more);
            run(cargo.arg("--target-dir").arg(&target).arg("--manifest-path").arg(manifest))
        };
        // The crate's C kernel is worth having but not every compiler takes it.
        cargo(&[]).or_else(|why| cargo(&["--no-default-features"]).map_err(|_| why))?;
        let built = target.join("release").join(name);
        // A running peer keeps its file busy, so a new file takes the old one's place.
        let _ = fs::remove_file(output);
        fs::copy(&built, output).map_err(|why| format!("{}: {why}", built.display()))?;
        touch(output)
    }
}

fn touch(path: &Path) -> Result<(), String> {
    let dated = fs::File::options().append(true).open(path).and_then(|file| file.set_modified(SystemTime::now()));
    dated.map_err(|why| format!("{}: {why}", path.display()))
}

fn packaged_version(package: &str) -> Result<String, String> {
    output_of(Command::new("dpkg-query").args(["-W", "-f=${Version}", package]))
}

/// Installs Debian packages where that is possible: apt-get is there and this is root.
pub fn install(packages: &[&str]) -> Result<(), String> {
    if output_of(Command::new("id").arg("-u"))?.trim() != "0" {
        return Err(format!("only root can install {}", packages.join(", ")));
    }
    let apt = |words: &[&str]| {
        let mut apt = Command::new("apt-get");
        run(apt.arg("-qq").args(words).env("DEBIAN_FRONTEND", "noninteractive"))
    };
    apt(&["update"])?;
    apt(&[&["install", "-y", "--no-install-recommends"], packages].concat())
}

/// Runs a program that has nothing to say.
pub fn run(command: &mut Command) -> Result<(), String> {
    output_of(command).map(drop)
}

/// Standard output, or one line that says what failed and the first complaint.
pub fn output_of(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|why| format!("{program}: {why}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
    let first = complaints.lines().find(|line| line.contains("rror")).or(complaints.lines().next());
    Err(format!("{program} failed: {}", first.unwrap_or("it gave no reason").trim()))
}
