//! Mount options.

use std::fmt;
use std::sync::Arc;

/// Where messages about failing requests go, a line each.
#[derive(Clone)]
pub struct Log(Arc<dyn Fn(&str) + Send + Sync>);

impl Log {
    /// Gives every line to a function, which several threads may call.
    pub fn new(line: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(line))
    }

    pub(crate) fn line(&self, line: &str) {
        (self.0)(line);
    }
}

impl Default for Log {
    fn default() -> Self {
        Self::new(|line| eprintln!("weft: {line}"))
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Log")
    }
}

/// Threads that take requests, on a machine with few processors. Reads that wait have their own.
const MIN_THREADS: usize = 4;

/// How to mount.
#[derive(Clone, Debug)]
pub struct Options {
    /// Refuse every change. Taken for granted when the volume was opened for reading only.
    pub read_only: bool,
    /// Let users other than the one who mounts in; what they may do is up to the permissions of the
    /// files.
    pub allow_other: bool,
    /// Threads that serve requests.
    pub threads: usize,
    /// The name that `df` and `mount` show.
    pub fs_name: String,
    /// Honour set-user-ID bits.
    pub suid: bool,
    /// Let device files be opened.
    pub dev: bool,
    /// Let programs be run.
    pub exec: bool,
    /// Make every write wait until it is durable.
    pub sync: bool,
    /// Let the kernel keep what is written also to files that others may change: faster, and for
    /// one writer at a time.
    pub writeback: bool,
    /// Which side codes stripes; None: what the volume says. For the process that opens the volume.
    pub coding: Option<fs::Coding>,
    /// User data of the longest stripe, in bytes. For the process that opens the volume, as are the
    /// next two.
    pub stripe_bytes: Option<usize>,
    /// Connections to each storage server that calls share.
    pub channels: Option<usize>,
    /// The store that codes stripes, where it has a block of them.
    pub master: Option<String>,
    /// Where this machine is in the volume's torus. For the process that opens the volume.
    pub torus: Option<fs::Coordinates>,
    /// Mount over a directory that has entries, which are hidden meanwhile.
    pub nonempty: bool,
    /// Where messages about failing requests go.
    pub log: Log,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            read_only: false,
            allow_other: rustix::process::geteuid().is_root(),
            threads: std::thread::available_parallelism().map_or(MIN_THREADS, |cores| cores.get().max(MIN_THREADS)),
            fs_name: "weft".to_owned(),
            suid: false,
            dev: false,
            exec: true,
            sync: false,
            writeback: false,
            coding: None,
            stripe_bytes: None,
            channels: None,
            master: None,
            torus: None,
            nonempty: false,
            log: Log::default(),
        }
    }
}

/// The options by name, for messages.
const OPTION_NAMES: &str = "ro, rw, allow_other, noallow_other, suid, nosuid, dev, nodev, exec, noexec, sync, async, \
    writeback, nonempty, coding=client, coding=server, coding=auto, stripe_bytes=BYTES, channels=N, master=STORE, \
    torus=PLACE, threads=N, fsname=NAME, and without effect: defaults, default_permissions, atime, noatime, relatime, \
    nodiratime, lazytime, auto, noauto, nofail, user, nouser, users, owner, group, _netdev, comment=TEXT, x-*";

/// A number of bytes, with k or M for KiB or MiB.
fn bytes_of(text: &str) -> Result<usize, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    let bytes = digits.parse::<usize>().ok().and_then(|number| number.checked_mul(unit));
    bytes.ok_or_else(|| format!("stripe_bytes={text}: give bytes, such as 6144 or 6k"))
}

/// Reads a list as `mount -o` takes it; later ones win. As for all FUSE mounts, set-user-ID bits
/// and device files have no effect without `suid` and `dev`.
///
/// # Errors
/// When one is unknown; the message names those that are known.
pub fn parse_options(list: &str) -> Result<Options, String> {
    let mut options = Options::default();
    let mut parts = list.split(',').map(str::trim).filter(|option| !option.is_empty()).peekable();
    while let Some(option) = parts.next() {
        match option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value))) {
            ("ro", None) => options.read_only = true,
            ("rw", None) => options.read_only = false,
            ("allow_other", None) => options.allow_other = true,
            ("noallow_other", None) => options.allow_other = false,
            ("suid", None) => options.suid = true,
            ("nosuid", None) => options.suid = false,
            ("dev", None) => options.dev = true,
            ("nodev", None) => options.dev = false,
            ("exec", None) => options.exec = true,
            ("noexec", None) => options.exec = false,
            ("sync", None) => options.sync = true,
            ("async", None) => options.sync = false,
            ("writeback", None) => options.writeback = true,
            ("nonempty", None) => options.nonempty = true,
            ("fsname", Some(name)) if !name.is_empty() => name.clone_into(&mut options.fs_name),
            ("coding", Some(coding)) => options.coding = Some(coding.parse()?),
            ("stripe_bytes", Some(bytes)) => options.stripe_bytes = Some(bytes_of(bytes)?),
            ("master", Some(store)) if !store.is_empty() => options.master = Some(store.into()),
            // Numbers that follow are no options.
            ("torus", Some(first)) => {
                let mut place = first.to_owned();
                while let Some(number) = parts.next_if(|part| part.bytes().all(|byte| byte.is_ascii_digit())) {
                    place = place + "," + number;
                }
                options.torus = Some(place.parse().map_err(|why| format!("torus={place}: {why}"))?);
            }
            ("channels", Some(number)) => {
                let channels = number.parse().ok().filter(|channels| (1..=64).contains(channels));
                let why = || format!("channels={number}: there are 1 to 64 connections to each store");
                options.channels = Some(channels.ok_or_else(why)?);
            }
            ("threads", Some(number)) => {
                options.threads = number
                    .parse()
                    .ok()
                    .filter(|threads| (1..=1024).contains(threads))
                    .ok_or_else(|| format!("threads={number}: the number of threads must be from 1 to 1024"))?;
            }
            // Permissions are always checked by the kernel, and access times are those of the last
            // change or as set.
            (
                "defaults"
                | "default_permissions"
                | "atime"
                | "noatime"
                | "diratime"
                | "nodiratime"
                | "relatime"
                | "norelatime"
                | "strictatime"
                | "nostrictatime"
                | "lazytime"
                | "nolazytime"
                | "silent"
                | "loud",
                None,
            ) => {}
            // For mount(8) and systemd, which read them in /etc/fstab.
            (
                "auto" | "noauto" | "nofail" | "user" | "nouser" | "users" | "nousers" | "owner" | "noowner" | "group"
                | "nogroup" | "_netdev",
                None,
            )
            | ("user" | "comment", Some(_)) => {}
            (name, _) if name.starts_with("x-") || name.starts_with("X-") => {}
            _ => return Err(format!("unknown mount option {option}; there are: {OPTION_NAMES}")),
        }
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_in_order() {
        let options = parse_options("ro,noexec,,rw, suid,threads=9,fsname=a=b,x-systemd.automount").unwrap();
        assert!(!options.read_only && !options.exec && options.suid && !options.dev);
        assert_eq!((options.threads, options.fs_name.as_str()), (9, "a=b"));
        assert!(parse_options("").unwrap().exec);
        assert_eq!(parse_options("coding=client,coding=server").unwrap().coding, Some(fs::Coding::Server));
        let options = parse_options("stripe_bytes=6k,channels=10,master=store://h:1").unwrap();
        assert_eq!((options.stripe_bytes, options.channels), (Some(6144), Some(10)));
        assert_eq!(options.master.as_deref(), Some("store://h:1"));
        let options = parse_options("torus=1,0,3,ro,channels=2").unwrap();
        assert_eq!((options.torus.unwrap().to_string().as_str(), options.read_only), ("1,0,3", true));
        assert!(parse_options("torus=a").unwrap_err().contains("4,2,7") && parse_options("1").is_err());
        assert_eq!(parse_options("stripe_bytes=6144").unwrap().stripe_bytes, Some(6144));
    }

    #[test]
    fn unknown_ones_are_refused_by_name() {
        for (list, part) in [
            ("ro,big", "option big;"),
            ("threads=0", "1 to 1024"),
            ("ro=1", "ro=1"),
            ("fsname=", "fsname="),
            ("coding=me", "client, server or auto"),
            ("channels=0", "1 to 64"),
            ("stripe_bytes=6kk", "6144 or 6k"),
            ("stripe_bytes=99999999999999999999", "6144 or 6k"),
            ("master=", "master="),
        ] {
            let message = parse_options(list).unwrap_err();
            assert!(message.contains(part), "{message}");
        }
    }
}
