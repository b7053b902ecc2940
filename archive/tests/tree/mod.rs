//! A tree with everything that trees have, and what can be seen of one.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, UNIX_EPOCH};

/// A directory that goes with the test.
pub struct Scratch {
    pub path: PathBuf,
}

impl Scratch {
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("weft-trees-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self { path }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut data = vec![0; bytes];
    fastrand::Rng::with_seed(seed).fill(&mut data);
    data
}

/// Makes it: small files, large ones, holes, odd names, links of both kinds, attributes, modes,
/// times.
pub fn grow(root: &Path) {
    fs::create_dir_all(root.join("many")).unwrap();
    for n in 0..300usize {
        fs::write(root.join(format!("many/file{n}")), noise(n * 37 % 9000, n as u64)).unwrap();
    }
    fs::write(root.join("large"), noise((5 << 20) + 12_345, 1)).unwrap();
    fs::write(root.join("even"), noise(2 << 20, 2)).unwrap();
    fs::write(root.join("middle"), noise(900_000, 3)).unwrap();
    let sparse = File::create(root.join("sparse")).unwrap();
    sparse.write_all_at(&noise(10_000, 4), 3 << 20).unwrap();
    sparse.write_all_at(b"end", (9 << 20) + 5).unwrap();
    sparse.set_len(12 << 20).unwrap();
    File::create(root.join("only a hole")).unwrap().set_len(70_000).unwrap();
    fs::create_dir_all(root.join("odd")).unwrap();
    for name in [
        &b" leading and trailing "[..],
        b"new\nline",
        "Unicode \u{1F9F5} \u{e9}".as_bytes(),
        b"\xFF\xFE not UTF-8",
        b"-rf",
        b"*",
    ] {
        fs::write(root.join("odd").join(OsStr::from_bytes(name)), name).unwrap();
    }
    fs::write(root.join("odd").join("n".repeat(255)), b"long").unwrap();
    let mut deep = root.join("deep");
    for level in 0..12 {
        deep.push(format!("{level}-{}", "d".repeat(100)));
    }
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("bottom"), b"here").unwrap();
    fs::create_dir_all(root.join("empty")).unwrap();
    std::os::unix::fs::symlink("../nowhere/at all", root.join("link")).unwrap();
    fs::create_dir_all(root.join("names")).unwrap();
    fs::write(root.join("names/first"), noise(5000, 5)).unwrap();
    for name in ["names/second", "many/third"] {
        fs::hard_link(root.join("names/first"), root.join(name)).unwrap();
    }
    fs::hard_link(root.join("large"), root.join("names/large")).unwrap();
    let fifo = root.join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
    // Where the file system has none, there are none to lose.
    for (file, name) in
        [("middle", "user.colour"), ("names/first", "user.n"), ("empty", "user.directory"), ("large", "user.l")]
    {
        let value = b"value \0 with everything";
        let flags = rustix::fs::XattrFlags::empty();
        _ = rustix::fs::setxattr(root.join(file), name, value, flags);
    }
    for (n, mode) in [0o400u32, 0o755, 0o4711, 0o640].into_iter().enumerate() {
        fs::set_permissions(root.join(format!("many/file{n}")), PermissionsExt::from_mode(mode)).unwrap();
    }
    fs::set_permissions(root.join("odd"), PermissionsExt::from_mode(0o2750)).unwrap();
    for (n, path) in ["even", "many/file9", "odd", "deep", "many", "."].into_iter().enumerate() {
        let time = UNIX_EPOCH + Duration::new(1_000_000_000 + n as u64, 123_456_789);
        File::open(root.join(path)).unwrap().set_modified(time).unwrap();
    }
}

/// Everything that can be seen of a file but its number, and which others are the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    kind: String,
    mode: u32,
    owner: (u32, u32),
    size: u64,
    modified: (i64, i64),
    hash: Option<String>,
    link: Option<PathBuf>,
    attributes: Vec<(Vec<u8>, Vec<u8>)>,
    names: Vec<PathBuf>,
    is_sparse: bool,
}

/// All of a tree, by path below it.
pub fn described(root: &Path) -> BTreeMap<PathBuf, Seen> {
    let (mut all, mut names) = (BTreeMap::new(), BTreeMap::<u64, Vec<PathBuf>>::new());
    describe(root, root, &mut all, &mut names);
    for (ino, seen) in all.values_mut() {
        if let Some(names) = names.get(ino).filter(|names| names.len() > 1) {
            seen.names = names.clone();
        }
    }
    all.into_iter().map(|(path, (_, seen))| (path, seen)).collect()
}

fn describe(
    root: &Path,
    path: &Path,
    all: &mut BTreeMap<PathBuf, (u64, Seen)>,
    names: &mut BTreeMap<u64, Vec<PathBuf>>,
) {
    let about = path.symlink_metadata().unwrap();
    let below = path.strip_prefix(root).unwrap().to_path_buf();
    let (is_file, is_directory) = (about.is_file(), about.is_dir());
    let kind = about.file_type();
    let hash = is_file.then(|| blake3::hash(&fs::read(path).unwrap()).to_hex().to_string());
    let mut attributes = Vec::new();
    if is_file || is_directory {
        attributes = archive::walk::read_attributes(File::open(path).unwrap()).unwrap();
    }
    let seen = Seen {
        kind: format!("{is_file} {is_directory} {} {}", kind.is_fifo(), kind.is_symlink()),
        mode: about.mode(),
        owner: (about.uid(), about.gid()),
        size: if is_directory { 0 } else { about.size() },
        modified: (about.mtime(), about.mtime_nsec()),
        hash,
        link: fs::read_link(path).ok(),
        attributes,
        names: Vec::new(),
        is_sparse: is_file && about.size() > 1 << 20 && about.blocks() * 512 < about.size() / 2,
    };
    if !is_directory {
        names.entry(about.ino()).or_default().push(below.clone());
    }
    all.insert(below, (about.ino(), seen));
    if is_directory {
        let mut entries: Vec<PathBuf> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
        entries.sort();
        entries.iter().for_each(|entry| describe(root, entry, all, names));
    }
}

/// Regular files of a tree, each counted once, however many names it has.
pub fn regular_files(root: &Path) -> u64 {
    let seen = described(root);
    let files = seen.values().filter(|seen| seen.hash.is_some());
    let shared: std::collections::BTreeSet<&Vec<PathBuf>> =
        files.clone().map(|seen| &seen.names).filter(|names| !names.is_empty()).collect();
    files.filter(|seen| seen.names.is_empty()).count() as u64 + shared.len() as u64
}
