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
    let built = root.join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()));
    Ok(built.join(target).join("release/weft"))
}

/// Makes a `.tar.gz` with `usr` and `etc` in one directory, and returns where it is. Unpacked over
/// the root of a machine, `usr/sbin` would take the place of a link of that name.
pub fn archive(package: &Package) -> Result<PathBuf, String> {
    let tree = fill(package, &FAMILY)?;
    let name = format!("weft-{}-{ARCH}-static", package.version);
    let (file, named) = (package.place.join(format!("{name}.tar.gz")), tree.with_file_name(&name));
    let _ = fs::remove_dir_all(&named);
    fs::rename(&tree, &named).map_err(|why| format!("{}: {why}", named.display()))?;
    let time = format!("--mtime=@{}", super::time(&package.root).trim());
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mode=u=rwX,go=rX", &time]);
    run(tar.arg("-czf").arg(&file).arg("-C").arg(package.place.join(FAMILY.name)).arg(&name))?;
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
    // Nobody else's image or container has these names.
    let [name, container] = ["localhost/weft-image", "weft-try"].map(|name| format!("{name}-{}", std::process::id()));
    let make = || {
        let mut build = buildah(&["bud", "--isolation", "chroot", "--timestamp", time.trim(), "-t", &name]);
        run(build.arg(&place))?;
        run(&mut buildah(&["from", "--name", &container, &name]))?;
        let words = ["run", "--isolation", "chroot", &container, "--", "/usr/bin/weft", "--version"];
        if !output_of(&mut buildah(&words))?.contains(&package.version) {
            return Err("the program of the image is of another version".into());
        }
        let file = package.place.join(format!("weft-{}-{ARCH}.oci.tar", package.version));
        let _ = fs::remove_file(&file);
        run(&mut buildah(&["push", &name, &format!("oci-archive:{}:weft:{}", file.display(), package.version)]))?;
        Ok(file)
    };
    let made = make();
    let _ = run(&mut buildah(&["rm", &container]));
    let _ = run(&mut buildah(&["rmi", &name]));
    made
}
