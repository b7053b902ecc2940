//! The BLAKE3 hash of a file that any workers read in parts, in any order. Each part is a subtree
//! of BLAKE3's own tree, so that the result is the hash of the whole file, as `b3sum` prints it.

use blake3::Hasher;
use blake3::hazmat::{HasherExt, Mode, left_subtree_len, merge_subtrees_non_root, merge_subtrees_root};
use fs::Time;

/// The hash of a file or of a subtree.
pub type Hash = [u8; 32];

/// A hash as an archive stores it: with the modification time of the content, so that it is not
/// taken for the hash of a later version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// The BLAKE3 hash of the content.
    pub hash: Hash,
    /// When the content was last modified.
    pub modified: Time,
}

impl Sealed {
    /// The value of the attribute: the hash, seconds and nanoseconds, little-endian.
    pub fn encode(&self) -> Vec<u8> {
        let Time { seconds, nanoseconds } = self.modified;
        [&self.hash[..], &seconds.to_le_bytes(), &nanoseconds.to_le_bytes()].concat()
    }

    /// Decodes the attribute's value. Returns None if it is not such a value.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (hash, rest) = bytes.split_first_chunk()?;
        let (seconds, rest) = rest.split_first_chunk()?;
        let nanoseconds = u32::from_le_bytes(rest.try_into().ok()?);
        Some(Self { hash: *hash, modified: Time { seconds: i64::from_le_bytes(*seconds), nanoseconds } })
    }
}

static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

/// A hasher for the part at `offset`, which is a multiple of the part length.
pub fn part_hasher(offset: u64) -> Hasher {
    let mut hasher = Hasher::new();
    if offset > 0 {
        hasher.set_input_offset(offset);
    }
    hasher
}

/// Hashes a hole.
pub fn add_zeroes(hasher: &mut Hasher, mut length: u64) {
    while length > 0 {
        let step = length.min(ZEROES.len() as u64);
        hasher.update(&ZEROES[..step as usize]);
        length -= step;
    }
}

/// The hash of a file from the hashes of its parts. There are at least two parts; all but the last
/// are `part_bytes` long, a power of two.
pub fn join_parts(parts: &[Hash], part_bytes: u64, size: u64) -> Hash {
    let left = left_parts(size, part_bytes);
    let (left, right) = parts.split_at(left.min(parts.len() - 1));
    let (left_bytes, right_bytes) = bytes_of(left.len(), size, part_bytes);
    let left = subtree(left, part_bytes, left_bytes);
    *merge_subtrees_root(&left, &subtree(right, part_bytes, right_bytes), Mode::Hash).as_bytes()
}

fn subtree(parts: &[Hash], part_bytes: u64, size: u64) -> Hash {
    if let [one] = parts {
        return *one;
    }
    let left = left_parts(size, part_bytes);
    let (left, right) = parts.split_at(left.min(parts.len() - 1));
    let (left_bytes, right_bytes) = bytes_of(left.len(), size, part_bytes);
    merge_subtrees_non_root(
        &subtree(left, part_bytes, left_bytes),
        &subtree(right, part_bytes, right_bytes),
        Mode::Hash,
    )
}

/// How many parts the left half of a tree has: the largest power of two that leaves something for
/// the right half.
fn left_parts(size: u64, part_bytes: u64) -> usize {
    (left_subtree_len(size) / part_bytes).max(1) as usize
}

/// The lengths in bytes of the left and the right half.
fn bytes_of(left: usize, size: u64, part_bytes: u64) -> (u64, u64) {
    let left = (left as u64 * part_bytes).min(size);
    (left, size - left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_parts_is_that_of_the_file() {
        let data: Vec<u8> = (0..1_300_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
        let part = 64 << 10;
        for size in [
            part + 1,
            2 * part,
            2 * part + 1,
            3 * part,
            5 * part - 7,
            7 * part,
            16 * part,
            17 * part + 1024,
            data.len(),
        ] {
            let hashes: Vec<Hash> = data[..size]
                .chunks(part)
                .enumerate()
                .map(|(n, bytes)| part_hasher((n * part) as u64).update(bytes).finalize_non_root())
                .collect();
            let joined = join_parts(&hashes, part as u64, size as u64);
            assert_eq!(joined, *blake3::hash(&data[..size]).as_bytes(), "{size}");
        }
    }

    #[test]
    fn sealed_hashes_come_back_and_others_do_not() {
        let sealed = Sealed { hash: [7; 32], modified: Time { seconds: -5, nanoseconds: 999_999_999 } };
        assert_eq!(Sealed::decode(&sealed.encode()), Some(sealed));
        assert_eq!(sealed.encode().len(), 44);
        assert!([0, 31, 32, 43, 45].iter().all(|&length| Sealed::decode(&vec![0; length]).is_none()));
    }

    #[test]
    fn holes_are_zeroes() {
        let mut hasher = Hasher::new();
        add_zeroes(&mut hasher, 200_000);
        assert_eq!(hasher.finalize(), blake3::hash(&vec![0; 200_000]));
    }
}
