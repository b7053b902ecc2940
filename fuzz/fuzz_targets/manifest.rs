//! Manifests of stripes and labels of targets.
#![no_main]

use volume::target::{Durable, Memory, Target, TargetFile};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = fs::manifest::decode(bytes);
    let target = Memory::default();
    target.write(TargetFile::Label, 0, &[std::io::IoSlice::new(bytes)], Durable::Later).unwrap();
    let _ = fs::label::Label::read(&target, "a label");
});
