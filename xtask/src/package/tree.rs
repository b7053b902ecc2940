//! What a package installs.

use super::Package;
use crate::peers::run;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where shells look for completions differs between the families.
pub struct Family {
    pub name: &'static str,
    pub zsh: &'static str,
}

/// The pages that come with the program.
const PAGES: [&str; 4] = ["README.md", "LICENSE-MIT", "LICENSE-APACHE", "docs/weft.toml"];

/// Puts everything into a fresh directory, and returns that.
pub fn fill(package: &Package, family: &Family) -> Result<PathBuf, String> {
    let tree = package.place.join(family.name).join("tree");
    if tree.exists() {
        fs::remove_dir_all(&tree).map_err(|why| format!("{}: {why}", tree.display()))?;
    }
    let to = |path: &str| tree.join(path);
    put(&package.weft, &to("usr/bin/weft"), 0o755)?;
    // Without it the symbols come along.
    let _ = run(Command::new("strip").arg(to("usr/bin/weft")));
    make(&to("usr/sbin"))?;
    symlink("../bin/weft", to("usr/sbin/mount.weft")).map_err(|why| format!("mount.weft: {why}"))?;
    let packages = package.root.join("packages");
    let units = packages.join("systemd");
    let listed = fs::read_dir(&units).map_err(|why| format!("{}: {why}", units.display()))?;
    for unit in listed.flatten() {
        put(&unit.path(), &to("usr/lib/systemd/system").join(unit.file_name()), 0o644)?;
    }
    put(&packages.join("sysusers.conf"), &to("usr/lib/sysusers.d/weft.conf"), 0o644)?;
    put(&packages.join("tmpfiles.conf"), &to("usr/lib/tmpfiles.d/weft.conf"), 0o644)?;
    put(&packages.join("weft.toml"), &to("etc/weft/weft.toml"), 0o644)?;
    for page in PAGES {
        let name = Path::new(page).file_name().unwrap_or_default();
        put(&package.root.join(page), &to("usr/share/doc/weft").join(name), 0o644)?;
    }
    let pages = to("usr/share/man/man1");
    make(&pages)?;
    run(Command::new(&package.weft).arg("man").arg(&pages))?;
    for page in fs::read_dir(&pages).map_err(|why| why.to_string())?.flatten() {
        run(Command::new("gzip").args(["-9", "-n"]).arg(page.path()))?;
    }
    for (shell, path) in [
        ("bash", "usr/share/bash-completion/completions/weft"),
        ("zsh", family.zsh),
        ("fish", "usr/share/fish/vendor_completions.d/weft.fish"),
    ] {
        let script = crate::peers::output_of(Command::new(&package.weft).args(["completions", shell]))?;
        write(&to(path), &script, 0o644)?;
    }
    Ok(tree)
}

fn make(directory: &Path) -> Result<(), String> {
    fs::create_dir_all(directory).map_err(|why| format!("{}: {why}", directory.display()))
}

/// Copies a file, with that mode.
fn put(from: &Path, to: &Path, mode: u32) -> Result<(), String> {
    make(to.parent().unwrap_or(to))?;
    let copied = fs::copy(from, to).and_then(|_| fs::set_permissions(to, fs::Permissions::from_mode(mode)));
    copied.map_err(|why| format!("{}: {why}", from.display()))
}

/// Writes a file, with that mode.
pub fn write(to: &Path, text: &str, mode: u32) -> Result<(), String> {
    make(to.parent().unwrap_or(to))?;
    let written = fs::write(to, text).and_then(|()| fs::set_permissions(to, fs::Permissions::from_mode(mode)));
    written.map_err(|why| format!("{}: {why}", to.display()))
}

/// The bytes of all files below.
pub fn size(directory: &Path) -> u64 {
    let Ok(listed) = fs::read_dir(directory) else { return 0 };
    let each = listed.flatten().map(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => size(&entry.path()),
        Ok(kind) if kind.is_file() => entry.metadata().map_or(0, |found| found.len()),
        _ => 0,
    });
    each.sum()
}
