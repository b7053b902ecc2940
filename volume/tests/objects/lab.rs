//! Directories for one test, and single files in them.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use volume::object::{DecodeOptions, Destination, EncodeOptions, Encoded, Source, decode, encode, find, repair, verify};
use volume::{Control, Result};

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
        let input = self.path.join("input");
        std::fs::write(&input, data).unwrap();
        let options = EncodeOptions {
            code: Arc::from(ec::parse("rs:2+1").unwrap()),
            name: b"f",
            directories: &self.disks,
            force,
            block_bytes: Some(512),
            threads: Some(1),
        };
        encode(&Source::file(&input)?, &options, &Control::default())
    }

    /// The bytes of an object, or why there are none.
    pub fn decode(&self, name: &str) -> Result<Vec<u8>> {
        let out = self.path.join("out");
        let object = find(Some(name.as_ref()), &self.disks)?;
        let options =
            DecodeOptions { destination: Destination::File { path: &out, replace: true }, threads: Some(1) };
        decode(object, &options, &Control::default()).0?;
        Ok(std::fs::read(&out).unwrap())
    }

    /// Repairs an object; then nothing is wrong with it.
    pub fn repair(&self, name: &str) {
        let control = Control::default();
        repair(find(Some(name.as_ref()), &self.disks).unwrap(), None, Some(1), &control).map_err(|it| it.0).unwrap();
        let report = verify(find(Some(name.as_ref()), &self.disks).unwrap(), Some(1), &control).unwrap();
        assert!(report.is_healthy(), "{:?}", report.problems);
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
