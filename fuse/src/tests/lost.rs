//! Files that go while a program opens them.

use super::*;

/// The kernel tries once more when it hears that a file is gone. Others may be faster more often.
#[test]
fn a_new_file_that_others_remove_is_created_again() {
    let Some(mount) = mount("again", &Options::default()) else { return };
    for _ in 0..5 {
        let remove: Before = Box::new(|files| {
            Files::unlink(files, ::fs::ROOT, b"a")?;
            Err(::fs::Error::Stale)
        });
        mount.files.before_opening.lock().unwrap().push_back(remove);
    }
    fs::write(mount.path.join("a"), "ours").unwrap();
    assert!(mount.files.before_opening.lock().unwrap().is_empty());
    assert_eq!(fs::read(mount.path.join("a")).unwrap(), b"ours");
}

/// A file that is opened to be rewritten may be lost with the metadata server before it is
/// truncated.
#[test]
fn a_file_that_is_lost_while_it_is_opened_is_created_again() {
    let files = Memory::new();
    files.shared.store(true, Ordering::Relaxed);
    let Some(mount) = mount_of("lost", files, &Options::default()) else { return };
    fs::write(mount.path.join("a"), "theirs").unwrap();
    let lose: Before = Box::new(|files| {
        Files::unlink(files, ::fs::ROOT, b"a")?;
        Err(::fs::Error::Meta(meta::Error::NotFound))
    });
    *mount.files.before_truncation.lock().unwrap() = Some(lose);
    fs::write(mount.path.join("a"), "ours").unwrap();
    assert!(mount.files.before_truncation.lock().unwrap().is_none());
    assert_eq!(fs::read(mount.path.join("a")).unwrap(), b"ours");
}

/// A new file may be lost with the metadata server before the kernel has asked whether the program
/// may open it.
#[test]
fn a_new_file_that_is_lost_at_once_is_created_again() {
    let files = Memory::new();
    files.shared.store(true, Ordering::Relaxed);
    let Some(mount) = mount_of("unborn", files, &Options::default()) else { return };
    let lose: Before = Box::new(|files| {
        Files::unlink(files, ::fs::ROOT, b"a")?;
        Err(::fs::Error::Meta(meta::Error::NotFound))
    });
    *mount.files.before_attributes.lock().unwrap() = Some(lose);
    fs::write(mount.path.join("a"), "ours").unwrap();
    assert!(mount.files.before_attributes.lock().unwrap().is_none());
    assert_eq!(fs::read(mount.path.join("a")).unwrap(), b"ours");
}
