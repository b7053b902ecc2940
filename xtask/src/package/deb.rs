//! A package for Debian and its descendants, by dpkg-deb.

use super::tree::{Family, fill, size, write};
use super::{Package, time};
use crate::NOT_HERE;
use crate::peers::run;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

const FAMILY: Family = Family { name: "deb", zsh: "usr/share/zsh/vendor-completions/_weft" };

/// What Debian calls this kind of processor.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Builds it, and returns where it is.
pub fn build(package: &Package) -> Result<PathBuf, String> {
    run(Command::new("dpkg-deb").arg("--version"))
        .map_err(|why| format!("{NOT_HERE}: a deb takes dpkg-deb, of Debian's package dpkg: {why}"))?;
    let tree = fill(package, &FAMILY)?;
    let Package { version, revision, libc, .. } = package;
    let control = format!(
        "Package: weft\nVersion: {version}-{revision}\nArchitecture: {}\n\
         Maintainer: The Weft developers <weft@localhost>\n\
         Installed-Size: {}\nSection: admin\nPriority: optional\nDepends: libc6 (>= {libc}), libgcc-s1, passwd\n\
         Recommends: fuse3\nDescription: erasure-coded file system for disks and servers that fail\n \
         Weft stores files so that disks and servers may fail: k blocks of data, m of\n \
         parity, and any k of them bring the data back. One program is the file system\n \
         on the disks of one machine, its servers in a cluster, its S3 gateway, a\n \
         parallel archiver and an encoder of single files.\n",
        architecture(),
        size(&tree).div_ceil(1024),
    );
    let about = tree.join("DEBIAN");
    write(&about.join("control"), &control, 0o644)?;
    write(&about.join("conffiles"), "/etc/weft/weft.toml\n", 0o644)?;
    for script in ["postinst", "prerm", "postrm"] {
        let path = package.root.join("packages/deb").join(script);
        let text = fs::read_to_string(&path).map_err(|why| format!("{}: {why}", path.display()))?;
        write(&about.join(script), &text, 0o755)?;
    }
    let copyright =
        "Weft is under the MIT licence or the Apache licence 2.0, as you like: LICENSE-MIT, LICENSE-APACHE.\n";
    write(&tree.join("usr/share/doc/weft/copyright"), copyright, 0o644)?;
    let file = package.place.join(format!("weft_{version}-{revision}_{}.deb", architecture()));
    let mut build = Command::new("dpkg-deb");
    build.args(["--root-owner-group", "-Zxz", "--build"]).arg(&tree).arg(&file);
    run(build.env("SOURCE_DATE_EPOCH", time(&package.root)))?;
    Ok(file)
}
