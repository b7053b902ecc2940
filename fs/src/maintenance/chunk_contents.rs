//! What chunks say by themselves, without metadata: the stripes of a set, and which bytes of which
//! files are in them.

use crate::data::manifest::{self, File, Piece};
use crate::data::store::Stored;
use crate::{Error, Result};
use ::volume::format::{StripeHeader, VolumeId};
use ::volume::target::TargetFile;
use ::volume::{SetLayout, Targets};
use ec::Code;
use meta::SetRecord;
use plan::{Extent, ExtentMap, ExtentPlace, Ino, Position, SetId, Span, StripeSeq, TargetId};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The chunks that may belong to a set: for each position, the targets that have one.
pub(crate) type Candidates = BTreeMap<Position, Vec<TargetId>>;

/// A stripe that was found, with its content.
pub(crate) struct FoundStripe {
    pub sequence: StripeSeq,
    pub stored: Stored,
    pub pieces: Vec<Piece>,
}

/// A set that enough is left of.
pub(crate) struct FoundSet {
    pub record: SetRecord,
    pub layout: SetLayout,
    /// Whether any of its chunks has a sound record.
    pub has_records: bool,
    pub stripes: Vec<FoundStripe>,
}

/// Finds what sets have.
pub(crate) struct Finder<'a> {
    pub targets: &'a Targets,
    pub volume: VolumeId,
    /// The code of sets of which no chunk has a sound header.
    pub code: String,
    /// The codes that were used so far.
    pub codes: HashMap<String, Arc<dyn Code>>,
}

impl Finder<'_> {
    fn code(&mut self, spec: &str) -> Result<Arc<dyn Code>> {
        if let Some(code) = self.codes.get(spec) {
            return Ok(code.clone());
        }
        let code = ec::parse(spec).map_err(|why| Error::Invalid(why.to_string()))?;
        self.codes.insert(spec.into(), code.clone());
        Ok(code)
    }

    /// The stripes of a set, read from any chunk that has them. Too little may be left of a set to
    /// use it: it was deleted while a target was away, or its targets are away now and its chunks
    /// must stay for the next time. `scanned` gets the records of each chunk, or why it could not
    /// be read, `lost` a line for each loss.
    pub fn set(
        &mut self,
        set: SetId,
        candidates: &Candidates,
        mut scanned: impl FnMut(Position, TargetId, std::io::Result<&[StripeHeader]>),
        mut lost: impl FnMut(String),
    ) -> Result<Option<FoundSet>> {
        let mut records = BTreeMap::new();
        let mut positions: BTreeMap<Position, TargetId> = BTreeMap::new();
        let mut code = None;
        for (&position, ids) in candidates {
            let mut most = None;
            for &id in ids {
                let Some(target) = self.targets.get(id) else { continue };
                let chunk = match ::volume::scan(&*target, TargetFile::Chunk { set, position }) {
                    Ok(chunk) => chunk,
                    Err(why) => {
                        scanned(position, id, Err(why));
                        continue;
                    }
                };
                let volume = self.volume;
                let header = chunk.header.filter(|header| header.volume == volume);
                let found = chunk.records.into_iter().filter(|header| header.volume == volume && header.set == set);
                let found: Vec<_> = found.collect();
                scanned(position, id, Ok(&found));
                // Of two chunks for one position, one was left behind when the other was moved or
                // rebuilt: it has no more stripes than the other.
                if (header.is_some() || !found.is_empty()) && most.is_none_or(|most| most < found.len()) {
                    most = Some(found.len());
                    positions.insert(position, id);
                }
                code = header.map(|header| header.code).or(code);
                found.into_iter().for_each(|header| _ = records.entry(header.record).or_insert(header));
            }
        }
        let spec = code.unwrap_or_else(|| self.code.clone());
        let code = self.code(&spec)?;
        let shape = code.shape();
        if positions.len() < shape.k {
            let (have, need) = (positions.len(), shape.k);
            lost(format!(
                "chunk set {set}: {have} of its chunks are left and {need} are needed; what was in it, if it was not \
                 deleted, cannot be brought back"
            ));
            return Ok(None);
        }
        let places: Vec<_> = Position::all(shape.blocks()).map(|position| positions.get(&position).copied()).collect();
        let length =
            records.values().next_back().map_or(0, |last| ::volume::record_range(last.record, last.block_bytes).end);
        let layout = SetLayout { volume: self.volume, set, code, places: places.clone() };
        let record = SetRecord { code: spec, places, sealed: true, length: length as u32 };
        let mut stripes = Vec::new();
        for header in records.values() {
            match self.stripe(&layout, header) {
                Ok(stripe) => stripes.push(stripe),
                Err(why) => lost(format!(
                    "chunk set {set}, stripe at {}: {why}; {} bytes of files cannot be brought back",
                    header.record, header.data_bytes
                )),
            }
        }
        Ok(Some(FoundSet { record, layout, has_records: !records.is_empty(), stripes }))
    }

    fn stripe(&self, layout: &SetLayout, header: &StripeHeader) -> std::result::Result<FoundStripe, &'static str> {
        let manifest = ::volume::read_manifest(self.targets, layout, header.record, header.block_bytes);
        let pieces = manifest.ok().and_then(|bytes| manifest::decode(&bytes)).ok_or("too little is left of it")?;
        // A manifest that does not describe exactly the bytes of its stripe is not valid.
        let bytes = pieces.iter().try_fold(0u64, |sum, piece| sum.checked_add(piece.length));
        if bytes != Some(u64::from(header.data_bytes)) {
            return Err("its manifest does not fit its data");
        }
        if pieces.iter().any(|piece| piece.offset.checked_add(piece.length).is_none()) {
            return Err("its manifest is not valid");
        }
        let stored = Stored { set: layout.set, record: header.record, block: header.block_bytes };
        Ok(FoundStripe { sequence: header.sequence, stored, pieces })
    }
}

/// The files of stripes in the order of their sequence: later stripes overwrite earlier ones, as
/// their writes did; those of later openings overwrite all of these. With each file what it was at
/// its last write.
pub(crate) fn files_of(mut stripes: Vec<FoundStripe>) -> BTreeMap<Ino, (ExtentMap, Option<File>)> {
    stripes.sort_by_key(|stripe| stripe.sequence);
    let mut files: BTreeMap<Ino, (ExtentMap, Option<File>)> = BTreeMap::new();
    for stripe in stripes {
        let mut start = 0;
        let mut last: Option<File> = None;
        for piece in stripe.pieces {
            let Stored { set, record, block } = stripe.stored;
            let place = ExtentPlace::Stripe(Span { set, record, block, start });
            start += piece.length as u32;
            last = piece.file.or(last);
            let (map, file) = files.entry(piece.ino).or_default();
            map.insert(Extent { offset: piece.offset, length: piece.length, place });
            *file = last.clone();
        }
    }
    files
}

/// The size of a file at its last write, in bytes.
pub(crate) fn size_of(map: &ExtentMap, file: Option<&File>) -> u64 {
    match file.map_or(0, |file| file.size) {
        0 => map.iter().map(Extent::end).max().unwrap_or(0),
        size => size,
    }
}

/// The first range of a file that no stripe has.
pub(crate) fn first_gap(map: &ExtentMap, size: u64) -> Option<std::ops::Range<u64>> {
    let mut at = 0;
    for extent in map.within(&(0..size)) {
        if extent.offset > at {
            return Some(at..extent.offset);
        }
        at = extent.end();
    }
    (at < size).then_some(at..size)
}
