//! What a file may contain: cells that say what they are, and a record of what was written,
//! acknowledged and synced. Pure.

/// Bytes of a cell. Files are whole cells.
pub const CELL: usize = 64;
const MAGIC: u64 = 0x5745_4654_4345_4c4c;

/// Versions of the cells of a file; 0 is a hole.
pub type Versions = Vec<u32>;

fn mixed(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The content of one cell: eight words, the last four of which follow from the others.
fn cell(file: u64, index: u64, version: u32) -> [u8; CELL] {
    let said = [MAGIC, file, index, u64::from(version)];
    let mut bytes = [0; CELL];
    let mut state = 0;
    for (at, into) in bytes.chunks_exact_mut(8).enumerate() {
        state = mixed(state ^ said[at % 4].wrapping_add(at as u64));
        into.copy_from_slice(&if at < 4 { said[at] } else { state }.to_le_bytes());
    }
    bytes
}

/// The bytes of the cells `first..first + count` of a file.
pub fn bytes(file: u64, first: usize, count: usize, version: u32) -> Vec<u8> {
    (first..first + count).flat_map(|index| cell(file, index as u64, version)).collect()
}

/// The versions of the cells in what was read of a file.
///
/// # Errors
/// What is there instead, when a cell is neither of this file and place nor a hole.
pub fn versions(file: u64, read: &[u8]) -> Result<Versions, String> {
    if !read.len().is_multiple_of(CELL) {
        return Err(format!("{} bytes are not whole cells", read.len()));
    }
    let version = |(index, found): (usize, &[u8])| {
        let word = |at: usize| u64::from_le_bytes(found[8 * at..][..8].try_into().expect("eight bytes"));
        let version = word(3) as u32;
        if found.iter().all(|&byte| byte == 0) {
            Ok(0)
        } else if found == cell(file, index as u64, version) {
            Ok(version)
        } else if word(0) == MAGIC && found == cell(word(1), word(2), version) {
            Err(format!("cell {index} is cell {} of file {:x}, version {version}", word(2), word(1)))
        } else {
            Err(format!("cell {index} is garbage: {:02x?}", &found[..16]))
        }
    };
    read.chunks_exact(CELL).enumerate().map(version).collect()
}

/// A change since the last sync.
#[derive(Clone)]
enum Change {
    /// These cells got a version, and the file then has this length.
    Write { first: usize, count: usize, version: u32, length: usize },
    /// The file was cut off or extended.
    Length(usize),
}

/// A file, as one writer knows it.
pub struct Model {
    pub file: u64,
    /// What a reader must see now; nothing when there is no file.
    pub now: Option<Versions>,
    /// What was there when a sync was last acknowledged.
    synced: Option<Versions>,
    changes: Vec<Change>,
    /// Replacements and removals that were begun, and not acknowledged as durable.
    replacing: Vec<Option<Versions>>,
    version: u32,
}

impl Model {
    pub fn new(file: u64) -> Self {
        Self { file, now: None, synced: None, changes: Vec::new(), replacing: Vec::new(), version: 0 }
    }

    pub fn next_version(&mut self) -> u32 {
        self.version += 1;
        self.version
    }

    /// A write begins. To be called before it, since it may be done in part.
    pub fn write(&mut self, first: usize, count: usize, version: u32) {
        let now = self.now.as_mut().expect("the file is there");
        let length = now.len().max(first + count);
        now.resize(length, 0);
        now[first..first + count].fill(version);
        self.changes.push(Change::Write { first, count, version, length });
    }

    /// A truncation begins.
    pub fn set_length(&mut self, length: usize) {
        self.now.as_mut().expect("the file is there").resize(length, 0);
        self.changes.push(Change::Length(length));
    }

    /// The file is about to be replaced as a whole, or removed.
    pub fn replace(&mut self, by: Option<Versions>) {
        self.replacing.push(by);
    }

    /// The replacement is done and durable.
    pub fn replaced(&mut self) {
        let by = self.replacing.pop().expect("a replacement began");
        self.settle(by);
    }

    /// A sync was acknowledged.
    pub fn sync(&mut self) {
        self.synced.clone_from(&self.now);
        self.changes.clear();
    }

    /// What was read is what there is, durably.
    pub fn settle(&mut self, read: Option<Versions>) {
        self.now.clone_from(&read);
        self.synced = read;
        self.changes.clear();
        self.replacing.clear();
    }

    /// Whether this may be read while nothing failed.
    ///
    /// # Errors
    /// How it differs.
    pub fn is_exact(&self, read: Option<&Versions>) -> Result<(), String> {
        differ(self.now.as_ref(), read)
    }

    /// Whether this may be read after a crash, or an operation that failed.
    ///
    /// # Errors
    /// Which acknowledged change is missing.
    pub fn is_possible(&self, read: Option<&Versions>) -> Result<(), String> {
        if self.replacing.iter().any(|by| differ(by.as_ref(), read).is_ok()) {
            return Ok(());
        }
        let (Some(synced), Some(read)) = (&self.synced, read) else { return differ(self.synced.as_ref(), read) };
        let lengths = self.changes.iter().map(|change| match change {
            Change::Write { length, .. } | Change::Length(length) => *length,
        });
        // A partial write ends at any of its cells.
        let partly = |length: usize| {
            self.changes.iter().any(|change| match change {
                Change::Write { first, count, .. } => (*first..=first + count).contains(&length),
                Change::Length(_) => false,
            })
        };
        if read.len() != synced.len() && !lengths.clone().any(|length| length == read.len()) && !partly(read.len()) {
            return Err(format!("{} cells instead of {}", read.len(), synced.len()));
        }
        let shortest = lengths.chain([synced.len()]).min().unwrap_or(0);
        for (index, &version) in read.iter().enumerate() {
            let was = synced.get(index).copied().unwrap_or(0);
            let written = |change: &Change| match change {
                Change::Write { first, count, version: new, .. } => {
                    *new == version && (*first..first + count).contains(&index)
                }
                Change::Length(_) => false,
            };
            if version != was && !(version == 0 && index >= shortest) && !self.changes.iter().any(written) {
                return Err(format!("cell {index} has version {version}, synced was {was}"));
            }
        }
        Ok(())
    }
}

fn differ(expected: Option<&Versions>, read: Option<&Versions>) -> Result<(), String> {
    match (expected, read) {
        (None, None) => Ok(()),
        (None, Some(read)) => Err(format!("it is there, with {} cells", read.len())),
        (Some(expected), None) => Err(format!("it is not there, and has {} cells", expected.len())),
        (Some(expected), Some(read)) => {
            if expected.len() != read.len() {
                return Err(format!("{} cells instead of {}", read.len(), expected.len()));
            }
            let wrong = expected.iter().zip(read).filter(|(a, b)| a != b).count();
            match expected.iter().zip(read).position(|(a, b)| a != b) {
                None => Ok(()),
                Some(at) => {
                    Err(format!("{wrong} cells differ, cell {at} has version {} instead of {}", read[at], expected[at]))
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_say_what_they_are() {
        let mut read = bytes(7, 0, 3, 5);
        assert_eq!(versions(7, &read), Ok(vec![5, 5, 5]));
        read[CELL..2 * CELL].fill(0);
        assert_eq!(versions(7, &read), Ok(vec![5, 0, 5]));
        assert!(versions(8, &read).unwrap_err().contains("cell 0 of file 7"));
        let shifted = bytes(7, 1, 1, 5);
        assert!(versions(7, &shifted).unwrap_err().contains("cell 1 of file 7, version 5"));
        read[2 * CELL + 40] ^= 1;
        assert!(versions(7, &read).unwrap_err().contains("garbage"));
        assert!(versions(7, &read[..100]).is_err());
    }

    fn synced(length: usize) -> Model {
        let mut model = Model::new(1);
        model.settle(Some(vec![1; length]));
        model.version = 1;
        model
    }

    #[test]
    fn what_was_synced_must_be_there_after_a_crash() {
        let mut model = synced(4);
        model.write(1, 2, 2);
        assert!(model.is_exact(Some(&vec![1, 2, 2, 1])).is_ok());
        assert!(model.is_exact(Some(&vec![1, 1, 1, 1])).is_err());
        for possible in [[1, 1, 1, 1], [1, 2, 1, 1], [1, 2, 2, 1]] {
            assert!(model.is_possible(Some(&possible.to_vec())).is_ok());
        }
        for impossible in [[1, 0, 1, 1], [2, 1, 1, 1], [1, 3, 1, 1]] {
            assert!(model.is_possible(Some(&impossible.to_vec())).is_err());
        }
        assert!(model.is_possible(None).is_err());
        model.sync();
        assert!(model.is_possible(Some(&vec![1, 1, 1, 1])).is_err());
    }

    #[test]
    fn a_file_that_was_cut_off_may_be_long_or_short_until_it_is_synced() {
        let mut model = synced(4);
        model.set_length(2);
        model.write(3, 1, 2);
        assert!(model.is_exact(Some(&vec![1, 1, 0, 2])).is_ok());
        for possible in [vec![1, 1, 1, 1], vec![1, 1], vec![1, 1, 0, 2], vec![1, 1, 0, 0]] {
            assert!(model.is_possible(Some(&possible)).is_ok(), "{possible:?}");
        }
        assert!(model.is_possible(Some(&vec![1, 0, 0, 2])).is_err());
        assert!(model.is_possible(Some(&vec![1])).is_err());
        model.sync();
        assert!(model.is_possible(Some(&vec![1, 1])).is_err());
    }

    #[test]
    fn a_replacement_is_whole_or_not_there() {
        let mut model = synced(2);
        model.replace(Some(vec![2; 3]));
        assert!(model.is_possible(Some(&vec![1, 1])).is_ok());
        assert!(model.is_possible(Some(&vec![2, 2, 2])).is_ok());
        assert!(model.is_possible(Some(&vec![2, 2])).is_err());
        model.replaced();
        assert!(model.is_exact(Some(&vec![2; 3])).is_ok());
        model.replace(None);
        assert!(model.is_possible(None).is_ok());
        model.replaced();
        assert!(model.is_possible(Some(&vec![2; 3])).is_err());
    }
}
