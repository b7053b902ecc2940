//! The names of the files of a volume in a directory.

use super::TargetFile;
use plan::{Position, SetId, TxId};

pub(super) const LABEL: &str = "weft.label";
const NEW_LABEL: &str = "weft.label.new";
pub(super) const CHUNKS: &str = "chunks";
/// The directory of the chunks until the target is formatted.
pub(super) const UNFINISHED_CHUNKS: &str = "chunks.new";
pub(super) const JOURNAL: &str = "journal";
pub(super) const SNAPSHOTS: &str = "snapshots";

/// The path of a file of a volume, relative to the directory.
pub(super) fn name_of(file: TargetFile) -> String {
    match file {
        TargetFile::Label => LABEL.into(),
        TargetFile::NewLabel => NEW_LABEL.into(),
        TargetFile::Chunk { set, position } => {
            format!("{CHUNKS}/{:02x}/{:016x}.{position:03}.chunk", set.0 as u8, set.0)
        }
        TargetFile::NewChunk { set, position } => {
            format!("{CHUNKS}/{:02x}/{:016x}.{position:03}.new", set.0 as u8, set.0)
        }
        TargetFile::Journal { first } => format!("{JOURNAL}/{:016x}.journal", first.0),
        TargetFile::Snapshot { last } => format!("{SNAPSHOTS}/{:016x}.snapshot", last.0),
    }
}

/// Parses a file name in one of the subdirectories; None for a file that does not belong to Weft.
pub(super) fn file_of(directory: &str, name: &str) -> Option<TargetFile> {
    let (stem, kind) = name.rsplit_once('.')?;
    let number = |text: &str| if text.len() == 16 { u64::from_str_radix(text, 16).ok() } else { None };
    let file = match (directory, kind) {
        (JOURNAL, "journal") => TargetFile::Journal { first: TxId(number(stem)?) },
        (SNAPSHOTS, "snapshot") => TargetFile::Snapshot { last: TxId(number(stem)?) },
        (JOURNAL | SNAPSHOTS, _) => return None,
        (_, "chunk" | "new") => {
            let (set, position) = stem.split_once('.')?;
            let (set, position) = (SetId(number(set)?), Position(position.parse().ok()?));
            if kind == "new" { TargetFile::NewChunk { set, position } } else { TargetFile::Chunk { set, position } }
        }
        _ => return None,
    };
    // Accept only the name that Weft itself would use, so that no file has two.
    (name_of(file) == format!("{directory}/{name}")).then_some(file)
}

/// The set and the position of a chunk, finished or not, by the name of its file.
pub(crate) fn chunk_of_name(name: &str) -> Option<(SetId, Position)> {
    let set = u64::from_str_radix(name.get(..16)?, 16).ok()?;
    match file_of(&format!("{CHUNKS}/{:02x}", set as u8), name)? {
        TargetFile::Chunk { set, position } | TargetFile::NewChunk { set, position } => Some((set, position)),
        _ => None,
    }
}
