//! Journals and snapshots made from any bytes: their frames have checksums that are right, and
//! anything else may be wrong. The fuzz target `journal` makes them, too.

use gf::checksum::Crc64;
use plan::TxId;
use volume::target::TargetFile;

/// The volume of the files.
pub const VOLUME: [u8; 16] = [7; 16];

const MAGICS: [&[u8; 4]; 5] = [b"WJR1", b"WSB1", b"WSE1", b"WJS1", b"WSS1"];
/// Numbers that arithmetic may not survive.
const EXTREMES: [u64; 8] =
    [u64::MAX, u64::MAX - 1, 1 << 63, i64::MAX as u64, u32::MAX as u64, 1 << 32, 1 << 26, u16::MAX as u64];

/// Bytes that say what to make; zeroes when they are used up.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    /// The number that is expected here, in most cases, or another one.
    fn number(&mut self, expected: u64) -> u64 {
        match self.byte() {
            0..128 => expected,
            byte @ 128..192 => u64::from(byte - 128),
            byte @ 192..224 => expected.wrapping_add(u64::from(byte)).wrapping_sub(208),
            byte @ 224..248 => EXTREMES[usize::from(byte) % EXTREMES.len()],
            _ => u64::from_le_bytes(std::array::from_fn(|_| self.byte())),
        }
    }

    fn bytes(&mut self, most: u8) -> Vec<u8> {
        (0..self.byte() % most).map(|_| self.byte()).collect()
    }
}

/// The fields of a frame.
struct Fields {
    magic: [u8; 4],
    /// The epoch's id, which its checksum has in format 2.
    id: u128,
    number: u64,
    epoch: u64,
    first: u64,
    commit_index: u64,
}

/// Appends a frame. `length` is the length that it claims for its payload.
fn put(to: &mut Vec<u8>, fields: &Fields, payload: &[u8], length: u64) {
    let mut frame = fields.magic.to_vec();
    frame.extend((length as u32).to_le_bytes());
    for number in [fields.number, fields.epoch, fields.first, fields.commit_index] {
        frame.extend(number.to_le_bytes());
    }
    let mut checksum = Crc64::default();
    let id = fields.id.to_le_bytes();
    let id = if fields.id == 0 { &[][..] } else { &id };
    [&VOLUME, id, &frame[..], payload].into_iter().for_each(|piece| checksum.update(piece));
    frame.extend(checksum.value().to_le_bytes());
    frame.extend(payload);
    frame.resize(frame.len().next_multiple_of(8), 0);
    to.extend(frame);
}

/// The payload of a record or a block: changes or pairs, right or nearly so.
fn changes(script: &mut Script<'_>, with_kinds: bool) -> Vec<u8> {
    let mut payload = Vec::new();
    for _ in 0..script.byte() % 4 {
        if with_kinds {
            payload.push(script.number(1) as u8);
        }
        let (key, value) = (script.bytes(32), script.bytes(64));
        payload.extend((script.number(key.len() as u64) as u32).to_le_bytes());
        payload.extend((script.number(value.len() as u64) as u32).to_le_bytes());
        payload.extend([key, value].concat());
    }
    payload
}

/// The payload of a head of format 1.
fn head_1() -> Vec<u8> {
    [&VOLUME[..], &1u32.to_le_bytes(), &[0; 4]].concat()
}

/// The payload of a head of format 2, which also says where the epoch comes from.
fn head_2(script: &mut Script<'_>, id: u128) -> Vec<u8> {
    let mut payload = [&VOLUME[..], &2u32.to_le_bytes(), &(script.number(2) as u32).to_le_bytes()].concat();
    payload.extend(id.to_le_bytes());
    for _ in 0..2 {
        payload.extend(script.number(0).to_le_bytes());
        payload.extend(u128::from(script.byte() / 64).to_le_bytes());
    }
    payload.extend((0..20).flat_map(|number| (script.number(number) as u16).to_le_bytes()));
    payload
}

/// A file of a target, by what a script says.
fn file(script: &mut Script<'_>) -> (TargetFile, Vec<u8>) {
    let is_snapshot = script.byte() % 3 == 1;
    let base = if is_snapshot { 0 } else { 1 };
    let named = script.number(base);
    let epoch = script.number(1);
    let first = script.number(1);
    let magic = *MAGICS[if is_snapshot { 4 } else { 3 }];
    let commit_index = if is_snapshot { named } else { named.wrapping_sub(1) };
    let mut bytes = Vec::new();
    let head =
        Fields { magic, id: 0, number: script.number(named), epoch, first, commit_index: script.number(commit_index) };
    let id = u128::from(script.byte() / 64);
    let payload = if id == 0 { head_1() } else { head_2(script, id) };
    put(&mut bytes, &head, &payload, payload.len() as u64);
    let (mut next, mut pairs) = (if is_snapshot { 0 } else { named }, 0);
    for _ in 0..script.byte() % 6 {
        let mut fields = Fields {
            magic: *MAGICS[script.number(u64::from(is_snapshot)) as usize % MAGICS.len()],
            id,
            number: script.number(next),
            epoch: script.number(epoch),
            first: script.number(first),
            commit_index: 0,
        };
        fields.commit_index = script.number(if is_snapshot { named } else { fields.number.wrapping_sub(1) });
        let payload = changes(script, fields.magic == *MAGICS[0]);
        put(&mut bytes, &fields, &payload, script.number(payload.len() as u64));
        (next, pairs) = (fields.number.wrapping_add(1), pairs + 1);
    }
    if is_snapshot {
        let end = Fields { magic: *MAGICS[2], id, number: script.number(next), epoch, first, commit_index: named };
        let payload = [script.number(pairs).to_le_bytes(), script.number(0).to_le_bytes()].concat();
        put(&mut bytes, &end, &payload, 16);
    }
    let file = if is_snapshot {
        TargetFile::Snapshot { last: TxId(named) }
    } else {
        TargetFile::Journal { first: TxId(named) }
    };
    (file, bytes)
}

/// The files of two targets that a script describes.
pub fn files(script: &[u8]) -> [Vec<(TargetFile, Vec<u8>)>; 2] {
    let mut script = Script(script);
    let mut targets = [Vec::new(), Vec::new()];
    // Without a snapshot nothing else is looked at.
    if script.byte() < 192 {
        let whole = file(&mut Script(&[1]));
        targets.iter_mut().for_each(|files| files.push(whole.clone()));
    }
    for _ in 0..1 + script.byte() % 4 {
        let on = script.byte();
        let made = file(&mut script);
        if on % 4 != 1 {
            targets[0].push(made.clone());
        }
        if on % 4 != 2 {
            targets[1].push(made);
        }
    }
    targets
}
