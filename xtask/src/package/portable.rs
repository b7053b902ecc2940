//! A program that needs no C library of its machine, as an archive and as an image of a container.

use super::Package;
use super::tree::{Family, fill, write};
use crate::NOT_HERE;
use crate::peers::{output_of, run};
use std::env::consts::ARCH;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const FAMILY: Family = Family { name: "static", zsh: "usr/share/zsh/site-functions/_weft" };
/// The name of the image, and of the container that tries it.
const IMAGE: &str = "localhost/weft";
const CONTAINER: &str = "weft-try";

/// Compiles the program for musl, and returns its path.
///
/// # Errors
/// What failed; it begins with `NOT_HERE` without the compiler's target or musl-gcc.
pub fn program(root: &Path) -> Result<PathBuf, String> {
    let target = format!("{ARCH}-unknown-linux-musl");
    let there = output_of(Command::new("rustc").args(["--print", "target-libdir", "--target", &target]))?;
    if !Path::new(there.trim()).is_dir() {
        return Err(format!("{NOT_HERE}: a static program takes rustup target add {target}"));
    }
    run(Command::new("musl-gcc").arg("--version"))
        .map_err(|_| format!("{NOT_HERE}: a static program takes musl-gcc, of Debian's package musl-tools"))?;
    crate::cargo(&["build", "--release", "-p", "cli", "--target", &target], &[])?;
    let built = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    Ok(built.join(target).join("release/weft"))
}

/// Makes a `.tar.gz` with everything below `usr` and `etc`, and returns where it is.
pub fn archive(package: &Package) -> Result<PathBuf, String> {
    let tree = fill(package, &FAMILY)?;
    let file = package.place.join(format!("weft-{}-{ARCH}-static.tar.gz", package.version));
    let time = format!("--mtime=@{}", super::time(&package.root).trim());
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", &time, "-czf"]).arg(&file);
    run(tar.arg("-C").arg(&tree).arg("."))?;
    Ok(file)
}

/// Makes an image with the program alone, tries that it begins, and returns where it is.
pub fn image(package: &Package) -> Result<PathBuf, String> {
    let buildah = |words: &[&str]| {
        let mut command = Command::new("buildah");
        // It needs no file system of its own, and works in containers, too.
        command.args(["--storage-driver", "vfs"]).args(words);
        command
    };
    run(&mut buildah(&["--version"]))
        .map_err(|why| format!("{NOT_HERE}: an image takes buildah, of Debian's package buildah: {why}"))?;
    let place = package.place.join("oci");
    let _ = fs::remove_dir_all(&place);
    fs::create_dir_all(&place).map_err(|why| format!("{}: {why}", place.display()))?;
    let program = place.join("weft");
    fs::copy(&package.weft, &program).map_err(|why| format!("{}: {why}", package.weft.display()))?;
    let _ = run(Command::new("strip").arg(&program));
    let recipe = fs::read_to_string(package.root.join("packages/oci/Containerfile.static"))
        .map_err(|why| format!("packages/oci/Containerfile.static: {why}"))?;
    write(&place.join("Containerfile"), &recipe, 0o644)?;
    let time = super::time(&package.root);
    let mut build = buildah(&["bud", "--isolation", "chroot", "--timestamp", time.trim(), "-t", IMAGE]);
    run(build.arg(&place))?;
    let _ = run(&mut buildah(&["rm", CONTAINER]));
    run(&mut buildah(&["from", "--name", CONTAINER, IMAGE]))?;
    let said =
        output_of(&mut buildah(&["run", "--isolation", "chroot", CONTAINER, "--", "/usr/bin/weft", "--version"]));
    let _ = run(&mut buildah(&["rm", CONTAINER]));
    if !said?.contains(&package.version) {
        return Err("the program of the image is of another version".into());
    }
    let file = package.place.join(format!("weft-{}-{ARCH}.oci.tar", package.version));
    let _ = fs::remove_file(&file);
    let pushed =
        run(&mut buildah(&["push", IMAGE, &format!("oci-archive:{}:weft:{}", file.display(), package.version)]));
    let _ = run(&mut buildah(&["rmi", IMAGE]));
    pushed.map(|()| file)
}
