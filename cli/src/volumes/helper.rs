//! `mount.weft`: how mount(8) has a volume mounted, for `mount -t weft` and lines of /etc/fstab. It
//! is this program under that name, and is called as `mount.weft SOURCE DIRECTORY [-sfnv] [-o
//! OPTIONS]`.

use crate::failure::Failure;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// The name under which this program is the helper.
pub const NAME: &str = "mount.weft";

/// Exit statuses of mount(8): the arguments do not make sense, and mounting failed.
const USAGE: u8 = 1;
const FAILED: u8 = 32;

/// Whether this program was called by that name.
pub fn is_called(arguments: &[OsString]) -> bool {
    arguments.first().is_some_and(|name| std::path::Path::new(name).file_name() == Some(OsStr::new(NAME)))
}

/// The exit status that mount(8) understands.
pub fn status(ours: u8) -> u8 {
    match ours {
        0 => 0,
        2 => USAGE,
        _ => FAILED,
    }
}

/// The arguments of `weft mount` that mean the same; None if there is nothing to do.
///
/// # Errors
/// If they are not arguments of a mount helper.
pub fn translate(arguments: &[OsString]) -> Result<Option<Vec<OsString>>, Failure> {
    let usage = |why: &str| Failure::Usage(format!("{why}; {NAME} SOURCE DIRECTORY [-sfnv] [-o OPTIONS]"));
    let (mut places, mut lists) = (Vec::new(), Vec::new());
    let (mut sloppy, mut fake, mut verbose) = (false, false, false);
    let mut arguments = arguments.iter().skip(1);
    while let Some(argument) = arguments.next() {
        let Some(flags) = argument.as_bytes().strip_prefix(b"-").filter(|flags| !flags.is_empty()) else {
            places.push(argument.clone());
            continue;
        };
        for (at, flag) in flags.iter().enumerate() {
            match flag {
                b's' => sloppy = true,
                b'f' => fake = true,
                b'v' => verbose = true,
                // There is no list of mounts but the kernel's.
                b'n' => {}
                // These have a value: a list of options; the type and a namespace, which mount(8)
                // handles.
                b'o' | b't' | b'N' => {
                    let rest = &flags[at + 1..];
                    let value = if rest.is_empty() {
                        arguments.next().cloned()
                    } else {
                        Some(OsString::from_vec(rest.to_vec()))
                    };
                    let value = value.ok_or_else(|| usage(&format!("-{} has no value", char::from(*flag))))?;
                    if *flag == b'o' {
                        lists.push(value);
                    }
                    break;
                }
                _ => return Err(usage(&format!("there is no -{}", char::from(*flag).escape_default()))),
            }
        }
    }
    let [source, directory] = &places[..] else { return Err(usage("a source and a directory are wanted")) };
    let mut ours: Vec<OsString> = vec!["weft".into(), "mount".into()];
    let mut options: Vec<&str> = Vec::new();
    for list in &lists {
        let list = list.to_str().ok_or_else(|| usage("options must be UTF-8"))?;
        for option in list.split(',') {
            match option.split_once('=').unwrap_or((option, "")) {
                (name @ ("identity" | "config" | "metrics"), value) if !value.is_empty() => {
                    ours.extend([format!("--{name}").into(), value.into()]);
                }
                ("remount", _) => {
                    let why = "a mount cannot be changed (remount): unmount it and mount it again";
                    return Err(Failure::Other(why.into()));
                }
                _ if sloppy && fuse::parse_options(option).is_err() => {}
                _ => options.push(option),
            }
        }
    }
    // Invalid arguments are refused even if there is nothing to do.
    fuse::parse_options(&options.join(",")).map_err(Failure::Usage)?;
    if !verbose {
        ours.push("--quiet".into());
    }
    if !options.is_empty() {
        ours.extend(["-o".into(), options.join(",").into()]);
    }
    ours.extend(["--".into(), source.clone(), directory.clone()]);
    Ok((!fake).then_some(ours))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(line: &str) -> Result<Option<String>, String> {
        let arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        assert!(is_called(&arguments));
        let done = translate(&arguments).map_err(|why| why.to_string())?;
        Ok(done.map(|ours| ours.join(OsStr::new(" ")).into_string().unwrap()))
    }

    #[test]
    fn what_mount_says_is_understood() {
        for (theirs, ours) in [
            ("mount.weft /srv/films /mnt", "weft mount --quiet -- /srv/films /mnt"),
            ("/sbin/mount.weft /srv/films /mnt -v", "weft mount -- /srv/films /mnt"),
            (
                "/sbin/mount.weft weft://h:7600/films /mnt -o rw,_netdev,identity=/etc/weft/laptop,x-systemd.automount",
                "weft mount --identity /etc/weft/laptop --quiet -o rw,_netdev,x-systemd.automount -- \
                 weft://h:7600/films /mnt",
            ),
            (
                "mount.weft v /mnt -sno rw,odd=1,coding=server -t weft",
                "weft mount --quiet -o rw,coding=server -- v /mnt",
            ),
            (
                "mount.weft v /mnt -o rw,nosuid,nodev,noexec,users,user=me,nofail,comment=x-a -o metrics=9100",
                "weft mount --metrics 9100 --quiet -o rw,nosuid,nodev,noexec,users,user=me,nofail,comment=x-a -- v \
                 /mnt",
            ),
        ] {
            assert_eq!(translated(theirs).unwrap().as_deref(), Some(ours));
        }
        assert_eq!(translated("mount.weft v /mnt -fv -o ro"), Ok(None));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (line, why) in [
            ("mount.weft v", "a source and a directory"),
            ("mount.weft v /mnt more", "a source and a directory"),
            ("mount.weft v /mnt -x", "no -x"),
            ("mount.weft v /mnt -o", "-o has no value"),
            ("mount.weft v /mnt -o odd", "unknown mount option odd"),
            ("mount.weft v /mnt -f -o odd", "unknown mount option odd"),
            ("mount.weft v /mnt -o remount,ro", "unmount it and mount it again"),
        ] {
            let refused = translated(line).unwrap_err();
            assert!(refused.contains(why), "{line}: {refused}");
        }
        assert_eq!([0, 1, 2, 130].map(status), [0, FAILED, USAGE, FAILED]);
        assert!(!is_called(&["weft".into()]));
    }
}
