//! A package for Red Hat's family, by rpmbuild.

use super::tree::{Family, fill};
use super::{Package, time};
use crate::NOT_HERE;
use crate::peers::run;
use std::path::PathBuf;
use std::process::Command;

const FAMILY: Family = Family { name: "rpm", zsh: "usr/share/zsh/site-functions/_weft" };

/// Builds it, and returns where it is.
pub fn build(package: &Package) -> Result<PathBuf, String> {
    run(Command::new("rpmbuild").arg("--version"))
        .map_err(|why| format!("{NOT_HERE}: an rpm takes rpmbuild (Debian: rpm, Fedora: rpm-build): {why}"))?;
    let tree = fill(package, &FAMILY)?;
    let top = package.place.join("rpm/top");
    let revision = package.revision.to_string();
    let mut build = Command::new("rpmbuild");
    for (name, value) in [
        ("_topdir", top.display().to_string()),
        ("_rpmdir", package.place.display().to_string()),
        ("_build_name_fmt", "%%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm".into()),
        ("tree", tree.display().to_string()),
        ("weft_version", package.version.clone()),
        ("weft_release", revision.clone()),
        ("libc", package.libc.clone()),
        ("clamp_mtime_to_source_date_epoch", "1".into()),
        ("use_source_date_epoch_as_buildtime", "1".into()),
    ] {
        build.args(["--define", &format!("{name} {value}")]);
    }
    build.args(["-bb", "--quiet"]).arg(package.root.join("packages/rpm/weft.spec"));
    run(build.env("SOURCE_DATE_EPOCH", time(&package.root)))?;
    let name = format!("weft-{}-{revision}.{}.rpm", package.version, std::env::consts::ARCH);
    let file = package.place.join(name);
    if file.exists() { Ok(file) } else { Err(format!("rpmbuild made no {}", file.display())) }
}
