//! Recovers files from chunk files alone, wherever these lie: without a volume directory, labels
//! and metadata. Nothing of what is read is changed.
//!
//! What a chunk is, its header says, or its extended attributes, or its name; which files are in it
//! say the manifests of its stripes (parEC, section III, has both in extended attributes).

mod files;
mod names;
mod private;
mod survey;
mod write;

pub use private::Private;
pub use survey::{FoundObject, FoundVolume, Survey, survey};

/// What a recovery did.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    /// Files that are whole.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Files without a known name among all files.
    pub unnamed: usize,
    /// Files of which something is lost: the paths under which the rest was written.
    pub incomplete: Vec<Vec<u8>>,
    /// What could not be recovered, one line each.
    pub problems: Vec<String>,
    /// The number of further problems that are not listed.
    pub unlisted: usize,
    /// What was found damaged or missing and did no harm as far as can be known, one line each.
    pub notes: Vec<String>,
}

/// The directory in that of the files for what is not one of them. No file gets its name.
const PRIVATE: &str = ".weft-recover";
/// The most lines of a kind that are listed.
const MAX_LINES: usize = 1000;

impl Recovered {
    /// Whether everything that was found could be recovered.
    pub fn is_whole(&self) -> bool {
        self.problems.is_empty()
    }

    /// Adds a loss.
    pub fn lost(&mut self, what: String) {
        if self.problems.len() < MAX_LINES {
            self.problems.push(what);
        } else {
            self.unlisted += 1;
        }
    }

    /// Adds what is no loss.
    pub fn note(&mut self, what: String) {
        if self.notes.len() < MAX_LINES {
            self.notes.push(what);
        }
    }
}
