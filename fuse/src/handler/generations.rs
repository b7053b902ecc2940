//! Which generation of a file the kernel knows. In a mount that writes back, the kernel alone says
//! how long a file is, until it forgets the file. A write that made a file longer may be lost with
//! the session of the mount: then the kernel learns of the file again, as another generation. An
//! open file keeps its generation, since the kernel would let no program use an older one.

use super::Handler;
use super::convert::GENERATION;
use crate::files::Files;
use fs::{Attributes, FileKind, Ino, lock};
use fuser::Generation;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

/// The generations of files that the kernel has learned. A file that is missing has generation 0.
#[derive(Debug, Default)]
pub(super) struct Generations(Mutex<HashMap<Ino, u64>>);

impl Generations {
    fn told(&self) -> MutexGuard<'_, HashMap<Ino, u64>> {
        lock(&self.0)
    }

    /// The generation of a file after `fences` fences.
    fn of(&self, ino: Ino, fences: u64, is_open: bool) -> u64 {
        if is_open { self.told().get(&ino).copied().unwrap_or(0) } else { fences }
    }

    /// The kernel learns a generation of a file.
    pub fn tell(&self, ino: Ino, generation: u64) {
        if generation > 0 {
            self.told().insert(ino, generation);
        }
    }

    /// The kernel forgets a file as often as `forget` says, which returns whether it still knows
    /// the file.
    fn forget(&self, ino: Ino, forget: impl FnOnce() -> bool) {
        // The kernel learns nothing of the file in between.
        let mut told = self.told();
        if !forget() {
            told.remove(&ino);
        }
    }
}

impl<F: Files> Handler<F> {
    /// The generation of a file for an answer to the kernel.
    pub(super) fn generation(&self, found: &Attributes) -> Generation {
        let files = self.caller.files();
        if self.shared || found.kind != FileKind::File || files.fences() == 0 {
            return GENERATION;
        }
        Generation(self.generations.of(found.ino, files.fences(), self.opens.is_open(found.ino)))
    }

    /// The same for an answer that is certain to be given.
    pub(super) fn tell_generation(&self, found: &Attributes) -> Generation {
        let generation = self.generation(found);
        self.generations.tell(found.ino, generation.0);
        generation
    }

    pub(super) fn forget_generation(&self, ino: Ino, count: u64) {
        let files = self.caller.files();
        if self.shared || files.fences() == 0 {
            return files.forget(ino, count);
        }
        self.generations.forget(ino, || {
            files.forget(ino, count);
            files.knows(ino)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_generation_that_was_told_as_long_as_it_is_open() {
        let generations = Generations::default();
        let tell = |fences, is_open| {
            let generation = generations.of(Ino(7), fences, is_open);
            generations.tell(Ino(7), generation);
            generation
        };
        assert_eq!([tell(0, false), tell(1, true), tell(1, false), tell(2, true), tell(2, false)], [0, 0, 1, 1, 2]);
        generations.forget(Ino(7), || true);
        assert_eq!(tell(3, true), 2);
        generations.forget(Ino(7), || false);
        assert_eq!((tell(3, true), generations.told().len()), (0, 0));
    }
}
