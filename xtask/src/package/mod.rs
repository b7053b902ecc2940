//! `cargo xtask package`: packages for Debian and for Red Hat's family, by their own tools; and a
//! static program, as an archive and as an image.

mod deb;
mod manifests;
mod portable;
mod rpm;
mod tree;
mod units;

use crate::peers::output_of;
use std::path::{Path, PathBuf};
use std::process::Command;

pub use manifests::manifests;
pub use units::check as check_units;

/// What a package is made of, and what it is called.
pub struct Package {
    root: PathBuf,
    /// Where it is built.
    place: PathBuf,
    /// The program.
    weft: PathBuf,
    version: String,
    /// The number of the package among those of the version.
    revision: u32,
    /// The oldest C library that the program works with.
    libc: String,
}

/// Builds packages of a release build: a deb and an rpm if no kind is named.
pub fn run(root: &Path, arguments: &[&str]) -> Result<(), String> {
    let (mut debian, mut red_hat, mut revision, mut weft) = (false, false, 1, None);
    let (mut archive, mut image) = (false, false);
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().copied().ok_or(format!("{argument} has no value"));
        match *argument {
            "--deb" => debian = true,
            "--rpm" => red_hat = true,
            "--static" => archive = true,
            "--oci" => image = true,
            "--revision" => revision = value()?.parse().map_err(|_| "--revision wants a number")?,
            "--weft" => weft = Some(PathBuf::from(value()?)),
            other => return Err(format!("{other} is no option of package")),
        }
    }
    // What was not asked for by name may be missing.
    let is_static = archive || image;
    let all = !debian && !red_hat && !is_static;
    if is_static && (debian || red_hat) {
        return Err("--static and --oci are of another program than --deb and --rpm".into());
    }
    let made = |what: &str, made: Result<PathBuf, String>| {
        let made = made.map(|path| println!("{}", path.display()));
        if all { crate::said(crate::optional(what, made)) } else { made }
    };
    let weft = match weft {
        Some(path) => path,
        None if is_static => portable::program(root)?,
        None => {
            crate::cargo(&["build", "--release", "-p", "cli"], &[])?;
            crate::weft()
        }
    };
    crate::said(crate::optional("the systemd units", check_units(root)))?;
    let bytes = std::fs::read(&weft).map_err(|why| format!("{}: {why}", weft.display()))?;
    let version = output_of(Command::new(&weft).arg("--version"))?;
    let version = version.split_whitespace().nth(1).ok_or("weft --version names no version")?.to_owned();
    let place = root.join("target/package");
    let package = Package { root: root.into(), place, weft, version, revision, libc: libc_of(&bytes) };
    if all || debian {
        made("the deb", deb::build(&package))?;
    }
    if all || red_hat {
        made("the rpm", rpm::build(&package))?;
    }
    if archive {
        made("the archive", portable::archive(&package))?;
    }
    if image {
        made("the image", portable::image(&package))?;
    }
    Ok(())
}

/// The newest version of the C library that a program's symbols name. 2.17 if it names none.
fn libc_of(program: &[u8]) -> String {
    const MARK: &[u8] = b"GLIBC_2.";
    let minors = program.windows(MARK.len() + 2).filter(|window| window.starts_with(MARK)).filter_map(|window| {
        let digits = window[MARK.len()..].iter().take_while(|byte| byte.is_ascii_digit());
        let digits: String = digits.map(|byte| char::from(*byte)).collect();
        digits.parse::<u32>().ok()
    });
    format!("2.{}", minors.max().unwrap_or(17).max(17))
}

/// The time that files of a package have: that of the last change, so that the same source gives
/// the same package.
fn time(root: &Path) -> String {
    std::env::var("SOURCE_DATE_EPOCH").unwrap_or_else(|_| {
        let time = output_of(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root));
        time.map_or_else(|_| "0".into(), |time| time.trim().to_owned())
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_newest_library_that_is_named_is_needed() {
        assert_eq!(super::libc_of(b"\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.9\0"), "2.34");
        assert_eq!(super::libc_of(b"nothing"), "2.17");
    }
}
