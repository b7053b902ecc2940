//! How a file gets and loses the name of a key. A key has two names, one for the time when a
//! directory has the plain one (`names`), so a writer looks at the other one behind itself.

use crate::about::ATTRIBUTE;
use crate::failure::{Result, error, failed, no_name};
use crate::home::is_missing;
use crate::place::{ATTEMPTS, Condition, MADE, Objects, is_overtaken};
use fs::object_name as names;
use fs::{Attributes, FileKind, Ino, RenameMode};

impl Objects {
    /// Gives a whole file that has a name in `home.temporary` the name of a key, in one
    /// transaction, and returns when that is durable. The file goes if the condition does not hold.
    pub fn name(&self, temporary: &[u8], bucket: &str, key: &str, condition: &Condition) -> Result<()> {
        let named = self.name_in_time(temporary, bucket, key, condition);
        if named.is_err() {
            // What is left in there goes at the next start, too.
            let _ = self.fs.unlink(self.home.temporary, temporary);
        }
        named
    }

    fn name_in_time(&self, temporary: &[u8], bucket: &str, key: &str, condition: &Condition) -> Result<()> {
        let from = (self.home.temporary, temporary);
        let own = self.entry(from.0, from.1)?.ok_or_else(|| error!(InternalError, "the new file is gone"))?.ino;
        for _ in 0..ATTEMPTS {
            let aim = self.aim(bucket, key, condition)?;
            let to = (aim.parent, &aim.name[..]);
            let done = match (condition, aim.replaced) {
                // Whatever is there by then is replaced, too.
                (Condition::Always, Some(_)) => self.fs.rename(from, to, RenameMode::Replace),
                (_, Some(there)) => self.fs.replace(from, to, there),
                (_, None) => self.fs.rename(from, to, RenameMode::NoReplace),
            };
            match done {
                Ok(()) if self.alone(aim.parent, key, own, Some(temporary))? => return self.settle(aim.parent),
                // The directory or the object came, went or changed meanwhile: look again.
                Ok(()) => {}
                Err(error) if is_overtaken(&error) => {}
                Err(error) => return Err(failed(&error)),
            }
        }
        Err(error!(OperationAborted, "others change the same key"))
    }

    /// Looks whether a file that has just got a name of a key is its only one. Two writers may have
    /// taken one name each, as a directory came or went between them. Then this one loses the name
    /// and the caller tries again; the file stays under the name `keep` in `home.temporary`.
    ///
    /// # Errors
    /// When the names cannot be read or changed.
    pub fn alone(&self, parent: Ino, key: &str, own: Ino, keep: Option<&[u8]>) -> Result<bool> {
        let last = names::parts(key).pop().unwrap_or_default();
        let (plain, Ok(beside)) = (names::name(last).map_err(no_name)?, names::beside(last)) else { return Ok(true) };
        let is_file = |found: &Attributes| found.kind == FileKind::File;
        let file = |name: &[u8]| self.entry(parent, name).map(|found| found.filter(is_file));
        let Some(other) = file(&beside)? else { return Ok(true) };
        let Some(one) = file(&plain)? else { return Ok(true) };
        if one.ino == other.ino || (one.ino != own && other.ino != own) {
            // It was moved aside, or another writer has replaced it: both may be.
            return Ok(true);
        }
        if let Some(name) = keep {
            match self.fs.link(own, self.home.temporary, name) {
                Ok(_) => {}
                Err(error) if is_overtaken(&error) => return Ok(true),
                Err(error) => return Err(failed(&error)),
            }
        }
        for name in [&plain, &beside, &plain] {
            match self.fs.unlink_file(parent, name, own) {
                Ok(()) => return Ok(false),
                Err(error) if is_overtaken(&error) => {}
                Err(error) => return Err(failed(&error)),
            }
        }
        // Another writer has replaced it.
        if let Some(name) = keep {
            let _ = self.fs.unlink_file(self.home.temporary, name, own);
        }
        Ok(true)
    }

    /// Gives the object of one key the name of another, and returns when that is durable. The new
    /// name appears in one transaction, and then the old one goes: a process that is killed in
    /// between leaves both, of one file.
    ///
    /// # Errors
    /// `NoSuchKey`, `PreconditionFailed`, and those of [`Objects::aim`]: then the old name stays.
    pub fn rename(&self, bucket: &str, (from, to): (&str, &str), condition: &Condition) -> Result<()> {
        for _ in 0..ATTEMPTS {
            let found = self.find(bucket, from)?.ok_or_else(|| error!(NoSuchKey))?;
            if from == to {
                return self.check(condition, Some(&found));
            }
            let temporary = self.unique();
            match self.fs.link(found.file.ino, self.home.temporary, &temporary) {
                Ok(_) => {}
                Err(error) if is_overtaken(&error) => continue,
                Err(error) => return Err(failed(&error)),
            }
            self.name(&temporary, bucket, to, condition)?;
            // What another one put there meanwhile stays.
            self.remove_if(bucket, from, |file| file.ino == found.file.ino)?;
            return self.settle(self.home.temporary);
        }
        Err(error!(OperationAborted, "others change the same key"))
    }

    /// Returns when all changes of names until now are durable.
    pub fn settle(&self, directory: Ino) -> Result<()> {
        self.fs.sync(directory).map_err(|error| failed(&error))
    }

    /// Removes the object of a key; one that is not there is no error. The caller settles.
    pub fn remove(&self, bucket: &str, key: &str, condition: &Condition) -> Result<()> {
        let mut is_removed = false;
        for _ in 0..ATTEMPTS {
            let found = self.find(bucket, key)?;
            if is_removed && (found.is_none() || *condition != Condition::Always) {
                return Ok(());
            }
            if found.is_some() || *condition != Condition::Always {
                self.check(condition, found.as_ref())?;
            }
            let Some(found) = found else { return Ok(()) };
            match self.fs.unlink_file(found.parent, &found.name, found.file.ino) {
                // The other name may have a file, too: look again.
                Ok(()) => {
                    self.prune(bucket, key)?;
                    is_removed = true;
                }
                Err(error) if is_missing(&error) => {}
                Err(error) => return Err(failed(&error)),
            }
        }
        match is_removed {
            // What is there now was put meanwhile.
            true => Ok(()),
            false => Err(error!(OperationAborted, "others change the same key")),
        }
    }

    /// Removes the object of a key if its file is still one that goes. The caller settles.
    pub fn remove_if(&self, bucket: &str, key: &str, goes: impl Fn(&Attributes) -> bool) -> Result<bool> {
        let Some(found) = self.find(bucket, key)?.filter(|found| goes(&found.file)) else { return Ok(false) };
        match self.fs.unlink_file(found.parent, &found.name, found.file.ino) {
            Ok(()) => self.prune(bucket, key).map(|()| true),
            Err(error) if is_missing(&error) => Ok(false),
            Err(error) => Err(failed(&error)),
        }
    }

    /// Removes the directories of a key that have nothing in them any more, if keys made them.
    fn prune(&self, bucket: &str, key: &str) -> Result<()> {
        let bucket = self.bucket(bucket)?.ino;
        let parts = names::parts(key);
        let above = parts.split_last().map_or(&[][..], |(_, above)| above);
        for depth in (0..above.len()).rev() {
            let (Some(parent), Ok(name)) = (self.directory(bucket, &above[..depth])?, names::name(above[depth])) else {
                continue;
            };
            let Some(found) = self.entry(parent, &name)?.filter(|found| found.kind == FileKind::Directory) else {
                continue;
            };
            let is_made = self.fs.attribute(found.ino, ATTRIBUTE).is_ok_and(|stored| stored == MADE);
            if !is_made || self.fs.remove_directory(parent, &name).is_err() {
                return Ok(());
            }
        }
        Ok(())
    }
}
