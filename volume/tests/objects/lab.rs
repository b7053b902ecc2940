//! Directories for one test, and single files in them.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use volume::object::{
    DecodeOptions, Destination, EncodeOptions, Encoded, Object, Problems, Source, decode, encode, find, repair, verify,
};
use volume::target::{Directory, Target};
use volume::{Control, Result};

/// What stands between an operation and its targets.
pub type Decorate<'a> = &'a mut dyn FnMut(Arc<dyn Target>) -> Arc<dyn Target>;

/// Removed when it is dropped.
pub struct Lab {
    pub path: PathBuf,
    pub disks: Vec<PathBuf>,
}

impl Lab {
    pub fn new(disks: usize) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("weft-objects-{}-{number}", std::process::id()));
        let disks: Vec<PathBuf> = (0..disks).map(|disk| path.join(format!("disk{disk}"))).collect();
        disks.iter().for_each(|disk| std::fs::create_dir_all(disk).unwrap());
        Self { path, disks }
    }

    /// Encodes bytes as `f`, in blocks of 512 bytes.
    pub fn encode(&self, data: &[u8], force: bool) -> Result<Encoded> {
        self.encode_on(data, force, &mut |target| target)
    }

    /// The same, with decorated targets.
    pub fn encode_on(&self, data: &[u8], force: bool, decorate: Decorate<'_>) -> Result<Encoded> {
        let input = self.path.join("input");
        std::fs::write(&input, data).unwrap();
        let directories = Directory::open_all(&self.disks)?.into_iter().map(|it| it.decorated(&mut *decorate));
        let options = EncodeOptions {
            code: ec::parse("rs:2+1").unwrap(),
            name: b"f",
            directories: &directories.collect::<Vec<_>>(),
            force,
            block_bytes: Some(512),
            threads: Some(1),
        };
        encode(&Source::file(&input)?, &options, &Control::default())
    }

    pub fn find(&self, name: &str) -> Result<Object> {
        find(Some(name.as_ref()), &self.disks)
    }

    /// The bytes of an object, or why there are none.
    pub fn decode(&self, name: &str) -> Result<Vec<u8>> {
        self.decode_object(self.find(name)?).0
    }

    /// The same, and what was wrong.
    pub fn decode_object(&self, object: Object) -> (Result<Vec<u8>>, Problems) {
        let out = self.path.join("out");
        let options = DecodeOptions { destination: Destination::File { path: &out, replace: true }, threads: Some(1) };
        let (done, problems) = decode(object, &options, &Control::default());
        (done.map(|_| std::fs::read(&out).unwrap()), problems)
    }

    /// Repairs an object; then nothing is wrong with it.
    pub fn repair(&self, name: &str) {
        let control = Control::default();
        repair(self.find(name).unwrap(), None, Some(1), &control).map_err(|it| it.0).unwrap();
        let report = verify(self.find(name).unwrap(), Some(1), &control).unwrap();
        assert!(report.is_healthy(), "{:?}", report.problems);
    }

    /// Everything on the disks.
    pub fn files(&self) -> Vec<PathBuf> {
        let list = |disk: &PathBuf| std::fs::read_dir(disk).unwrap().map(|entry| entry.unwrap().path()).collect();
        self.disks.iter().flat_map::<Vec<PathBuf>, _>(list).collect()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
