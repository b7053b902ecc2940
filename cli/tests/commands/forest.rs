//! A tree of any number of files with everything that trees have, and a comparison of two trees in
//! all that can be seen of them.

use crate::scratch::name;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

/// The number of files that the large ones have the sizes of.
const PAPER_FILES: u64 = 200_000;
/// Files of a directory.
const FILES_PER_DIRECTORY: usize = 400;

/// What a tree has.
#[derive(Clone, Copy, Debug, Default)]
pub struct Grown {
    /// Regular files, each counted once, however many names it has.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Those of them that are no holes.
    pub data: u64,
}

impl Grown {
    fn add(&mut self, bytes: u64, data: u64) {
        (self.files, self.bytes, self.data) = (self.files + 1, self.bytes + bytes, self.data + data);
    }
}

/// Makes a tree of about `files` files: a tenth in one directory, most of 1 to 64 KiB, some large,
/// one sparse.
pub fn grow(root: &Path, files: usize) -> Grown {
    let mut random = fastrand::Rng::with_seed(files as u64);
    let mut noise = vec![0; 4 << 20];
    random.fill(&mut noise);
    let mut grown = Grown::default();
    let mut at = root.join("one");
    fs::create_dir_all(&at).unwrap();
    for n in 0..files {
        if n >= files / 10 && n % FILES_PER_DIRECTORY == 0 {
            at = root.join(format!("d{}/e {}", n / FILES_PER_DIRECTORY % 13, n / FILES_PER_DIRECTORY));
            fs::create_dir_all(&at).unwrap();
        }
        let path = at.join(name(&odd_name(n)));
        let bytes = match n % 100 {
            0 => 0,
            1 => random.usize(65_536..1 << 20),
            _ => (1024.0 * 64f64.powf(random.f64())) as usize,
        };
        let from = random.usize(..noise.len() - bytes);
        fs::write(&path, &noise[from..from + bytes]).unwrap();
        grown.add(bytes as u64, bytes as u64);
        adorn(&path, &at, n, &mut random);
    }
    for n in 0..3 {
        let bytes = (256 << 20) * files as u64 / PAPER_FILES + (3 << 20) + n;
        let path = root.join(format!("large {n}"));
        let mut file = File::create(&path).unwrap();
        let mut left = bytes as usize;
        while left > 0 {
            let piece = left.min(noise.len() - random.usize(..1 << 20));
            let from = noise.len() - piece;
            file.write_all(&noise[from..]).unwrap();
            left -= piece;
        }
        grown.add(bytes, bytes);
        fs::hard_link(&path, at.join(format!("large too {n}"))).unwrap();
        let _ = xattr::set(&path, "user.colour", b"blue");
    }
    let (size, island) = ((8 << 30) * files as u64 / PAPER_FILES + (16 << 20), 65_536);
    let sparse = File::create(root.join("sparse")).unwrap();
    (0..32).for_each(|n| sparse.write_all_at(&noise[n..n + island], size / 32 * n as u64 + 12_345).unwrap());
    sparse.set_len(size).unwrap();
    grown.add(size, 32 * island as u64);
    for n in 0..10u64 {
        let time = UNIX_EPOCH + Duration::new(1_000_000_000 + n, 123_456_789 + n as u32);
        File::open(root.join(format!("d{n}")))
            .unwrap_or_else(|_| File::open(root).unwrap())
            .set_modified(time)
            .unwrap();
    }
    grown
}

/// A name; one in a hundred is of each odd kind.
fn odd_name(n: usize) -> Vec<u8> {
    match n % 100 {
        10 => format!(" a name with spaces {n} ").into_bytes(),
        20 => format!("new\nline {n}\n").into_bytes(),
        30 => format!("\u{1F9F5} Unicode \u{e9} {n}").into_bytes(),
        40 => format!("{n:n>255}").into_bytes(),
        50 => [b"\xFF\xFE not UTF-8 ", n.to_string().as_bytes()].concat(),
        60 => format!("-rf *\\'\" {n}").into_bytes(),
        _ => format!("f{n}").into_bytes(),
    }
}

/// What some files have beside their content. What this user or file system cannot do is left out.
fn adorn(path: &Path, at: &Path, n: usize, random: &mut fastrand::Rng) {
    match n % 100 {
        2 => symlink(random.usize(..).to_string(), at.join(format!("link {n}"))).unwrap(),
        3 => fs::hard_link(path, at.join(format!("same {n}"))).unwrap(),
        4 => {
            let _ = xattr::set(path, "user.n", n.to_string().as_bytes());
            let _ = xattr::set(path, "user.\u{e9}", &[0; 1500]);
        }
        5 => fs::set_permissions(path, PermissionsExt::from_mode([0o400, 0o755, 0o4711, 0o640][n / 100 % 4])).unwrap(),
        6 => {
            let time = UNIX_EPOCH + Duration::new(random.u64(..2 << 30), random.u32(..1_000_000_000));
            File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
        }
        7 => _ = chown(path, Some(1000 + n as u32 % 7), Some(1000)),
        _ => {}
    }
    if n % 1000 == 8 {
        let node = |name: &str, kind, device| {
            let mode = rustix::fs::Mode::from_raw_mode(0o640);
            rustix::fs::mknodat(rustix::fs::CWD, at.join(format!("{name} {n}")), kind, mode, device)
        };
        node("fifo", rustix::fs::FileType::Fifo, 0).unwrap();
        node("socket", rustix::fs::FileType::Socket, 0).unwrap();
        let _ = node("device", rustix::fs::FileType::CharacterDevice, rustix::fs::makedev(1, 3));
        let link = at.join(format!("adorned {n}"));
        symlink("nowhere", &link).unwrap();
        let _ = xattr::set(&link, "trusted.n", b"of the link");
        let _ = lchown(&link, Some(1234), None);
        fs::create_dir(at.join(format!("empty {n}"))).unwrap();
        let _ = xattr::set(at, "user.directory", b"of the directory");
        let _ = fs::set_permissions(at, PermissionsExt::from_mode(0o2750));
    }
}

/// Asserts that two trees are the same in content, attributes and which names are the same file.
#[track_caller]
pub fn same(one: &Path, two: &Path) {
    let (mut files, mut differences) = (HashMap::new(), Vec::new());
    compare(one, two, &mut files, &mut differences);
    assert!(
        differences.is_empty(),
        "{} differences: {:#?}",
        differences.len(),
        &differences[..differences.len().min(20)]
    );
}

/// The names of a directory.
fn names(directory: &Path) -> Vec<PathBuf> {
    let mut names: Vec<PathBuf> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into()).collect();
    names.sort();
    names
}

/// `files`: which file of the second tree each of the first is, by number, once its content was
/// compared.
fn compare(one: &Path, two: &Path, files: &mut HashMap<u64, u64>, differences: &mut Vec<String>) {
    let (Ok(a), Ok(b)) = (one.symlink_metadata(), two.symlink_metadata()) else {
        return differences.push(format!("{one:?}: one of them is not there"));
    };
    let mut differ = |what: &str, a: &dyn std::fmt::Debug, b: &dyn std::fmt::Debug| {
        differences.push(format!("{one:?}: {what} {a:?}, {b:?}"));
    };
    let (seen_a, seen_b) = (seen(one, &a), seen(two, &b));
    if seen_a != seen_b {
        return differ("is", &seen_a, &seen_b);
    }
    if a.is_dir() {
        let (of_one, of_two) = (names(one), names(two));
        if of_one != of_two {
            return differ("has", &of_one.len(), &of_two.len());
        }
        of_one.iter().for_each(|name| compare(&one.join(name), &two.join(name), files, differences));
        return;
    }
    if let Some(known) = files.insert(a.ino(), b.ino()) {
        if known != b.ino() {
            differ("is one file, and here", &known, &b.ino());
        }
        return;
    }
    if a.is_file() && !same_content(one, two) {
        differ("has other content than", &one, &two);
    }
    // Holes that are of use stay holes.
    let holes = |about: &fs::Metadata| about.size() > 8 << 20 && about.blocks() * 512 < about.size() / 4;
    if holes(&a) != holes(&b) {
        differ("has holes", &a.blocks(), &b.blocks());
    }
}

/// What can be seen of a file from outside; times to the nanosecond.
fn seen(path: &Path, about: &fs::Metadata) -> String {
    let kind = about.file_type();
    let kinds = [kind.is_fifo(), kind.is_socket(), kind.is_char_device(), kind.is_symlink(), kind.is_dir()];
    let mut attributes: Vec<(_, _)> = xattr::list(path)
        .map(|names| names.map(|name| (name.clone(), xattr::get(path, name).unwrap())).collect())
        .unwrap_or_default();
    attributes.sort();
    let (size, links) = if about.is_dir() { (0, 0) } else { (about.size(), about.nlink()) };
    format!(
        "{kinds:?} {:o} {}:{} {size} {links} {}.{:09} {:x} {:?} {attributes:?}",
        about.mode(),
        about.uid(),
        about.gid(),
        about.mtime(),
        about.mtime_nsec(),
        about.rdev(),
        fs::read_link(path).ok()
    )
}

fn same_content(one: &Path, two: &Path) -> bool {
    let (mut a, mut b) = (File::open(one).unwrap(), File::open(two).unwrap());
    let (mut of_one, mut of_two) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    loop {
        let length = a.read(&mut of_one).unwrap();
        if length == 0 {
            return b.read(&mut of_two).unwrap() == 0;
        }
        if b.read_exact(&mut of_two[..length]).is_err() || of_one[..length] != of_two[..length] {
            return false;
        }
    }
}
