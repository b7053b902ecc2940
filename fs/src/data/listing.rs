//! Listings of directories.

use crate::{FileSystem, Result};
use meta::{KeyPage, Listed};
use plan::Ino;

impl FileSystem {
    /// The next entries of a directory after a cookie; 0 is the beginning. An empty list means the
    /// end.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn list(&self, parent: Ino, cookie: u64, limit: usize) -> Result<Vec<Listed>> {
        let departures = self.table.departures();
        let mut listed = self.meta.list(parent, cookie, limit)?;
        check_listed(parent, listed.iter().map(|entry| &entry.name))?;
        listed.iter_mut().for_each(|entry| entry.attributes = self.with_buffer(entry.attributes, departures));
        Ok(listed)
    }

    /// A page of a directory in the byte order of S3 keys, from the first entry whose
    /// [`order`](crate::object_name::order) is not before `from`, with an extended attribute of
    /// each. None when the directory has too many names for that.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn list_by_key(&self, parent: Ino, from: &[u8], limit: usize, attribute: &[u8]) -> Result<Option<KeyPage>> {
        let departures = self.table.departures();
        let mut page = self.meta.list_by_key(parent, from, limit, attribute)?;
        check_listed(parent, page.iter().flat_map(|page| &page.entries).map(|entry| &entry.name))?;
        for entry in page.iter_mut().flat_map(|page| &mut page.entries) {
            entry.attributes = self.with_buffer(entry.attributes, departures);
        }
        Ok(page)
    }
}

/// Refuses a listing with a name that no file has. It would lead elsewhere where names become
/// paths. No volume has one, unless somebody made it to do harm.
fn check_listed<'a>(parent: Ino, mut names: impl Iterator<Item = &'a Vec<u8>>) -> Result<()> {
    if names.all(|name| meta::check_name(name).is_ok()) {
        return Ok(());
    }
    let what = format!("directory {} has an entry with a name that no file can have", parent.0);
    Err(meta::Error::Corrupt(what).into())
}

#[cfg(test)]
mod tests {
    use crate::ROOT;
    use crate::testing::{Lab, Way, make};
    use session::transport::Call;

    /// A server that has another name for a file.
    struct Renames(Way, &'static [u8]);

    impl Call for Renames {
        fn call(&self, operation: u16, arguments: &[u8]) -> meta::Result<Vec<u8>> {
            let mut answer = self.0.call(operation, arguments)?;
            let place = answer.windows(self.1.len()).position(|bytes| bytes == b"innocent");
            place.into_iter().for_each(|at| answer[at..][..self.1.len()].copy_from_slice(self.1));
            Ok(answer)
        }
    }

    #[test]
    fn names_that_lead_elsewhere_are_not_listed() {
        for (name, is_one) in [(b"../../ab", false), (b"/etc/abc", false), (b"harmless", true)] {
            let lab = Lab::new("rs:2+1", 3);
            let fs = lab.client_over(|way| Renames(way, name));
            make(&fs, "innocent");
            assert_eq!(fs.list(ROOT, 0, 10).is_ok(), is_one);
            assert_eq!(fs.list_by_key(ROOT, b"", 10, b"user.a").is_ok(), is_one);
        }
    }
}
