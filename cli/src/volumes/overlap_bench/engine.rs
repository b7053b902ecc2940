//! How a node writes: the three orders in which a stripe is filled, coded and sent.

use clap::ValueEnum;
use ec::Code;
use ec::partition::Partition;
use plan::{Position, SetId};
use serde::{Deserialize, Serialize};
use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;
use volume::lock;
use volume::target::{Durable, Target, TargetFile};

/// What is filled, folded and sent at a time: it stays in the cache between these.
pub const REGION_BYTES: usize = 256 << 10;
/// So many files of a node take turns, so that the disks need no space for all that is written.
const FILES: u64 = 4;

/// When the blocks of a stripe leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// A stripe is encoded whole, then sent, then the next one begins
    Conventional,
    /// ECFS: regions leave as they fill and are folded into the parities while in cache, and parity
    /// leaves last; one stripe at a time
    Partition,
    /// Weft: each stripe is encoded whole, then sent, and the next ones are encoded meanwhile
    InFlight,
}

impl Way {
    pub fn name(self) -> &'static str {
        match self {
            Self::Conventional => "conventional",
            Self::Partition => "partition",
            Self::InFlight => "in-flight",
        }
    }
}

/// A piece of a block on its way.
struct Piece {
    bytes: Shared,
    file: TargetFile,
    offset: u64,
    /// Told when it is there.
    done: Sender<io::Result<()>>,
}

/// Bytes of a block, which its pieces share.
struct Shared {
    block: Arc<Vec<u8>>,
    range: Range<usize>,
}

/// One thread for each position of a stripe, that sends what it is given, and the targets.
pub struct Senders {
    queues: Vec<Sender<(usize, Piece)>>,
    threads: Vec<JoinHandle<()>>,
}

impl Senders {
    /// For stripes with this number of positions, and all targets.
    pub fn new(positions: usize, targets: &Arc<Vec<Arc<dyn Target>>>) -> Self {
        let one = |_| {
            let (queue, pieces): (_, Receiver<(usize, Piece)>) = channel();
            let targets = targets.clone();
            let send = move || {
                while let Ok((to, piece)) = pieces.recv() {
                    let bytes = [IoSlice::new(&piece.bytes.block[piece.bytes.range.clone()])];
                    let sent = targets[to].write(piece.file, piece.offset, &bytes, Durable::Later);
                    // Who stopped waiting has an error already.
                    let _ = piece.done.send(sent.map(drop));
                }
            };
            (queue, std::thread::spawn(send))
        };
        let (queues, threads) = (0..positions).map(one).unzip();
        Self { queues, threads }
    }

    fn send(&self, position: usize, to: usize, piece: Piece) {
        self.queues[position].send((to, piece)).expect("its thread lives as long as this");
    }
}

impl Drop for Senders {
    fn drop(&mut self) {
        self.queues.clear();
        self.threads.drain(..).for_each(|thread| _ = thread.join());
    }
}

/// A stripe whose pieces are on their way.
struct OnWay {
    pieces: usize,
    done: Receiver<io::Result<()>>,
}

impl OnWay {
    fn wait(self) -> io::Result<()> {
        (0..self.pieces).try_for_each(|_| self.done.recv().map_err(io::Error::other)?)
    }
}

/// A node that writes.
pub struct Writer<'a> {
    pub code: &'a dyn Code,
    pub block_bytes: usize,
    /// The number of the node, and the number of targets.
    pub node: usize,
    pub nodes: usize,
    pub senders: &'a Senders,
    /// What the program writes: as long as a region, another one in each block.
    pub source: &'a [u8],
    /// The files that were written, to be synced: target and file.
    pub written: &'a Mutex<std::collections::BTreeSet<(usize, u16, u64)>>,
}

impl Writer<'_> {
    fn regions(&self) -> impl Iterator<Item = (usize, usize)> {
        let block = self.block_bytes;
        (0..block).step_by(REGION_BYTES).map(move |from| (from, (block - from).min(REGION_BYTES)))
    }

    /// What the program writes into a region of a data block.
    fn fill(&self, block: usize, from: usize, into: &mut [u8]) {
        let turn = (block * 31 + from / REGION_BYTES * 7) % self.source.len();
        let (first, rest) = (&self.source[turn..], &self.source[..turn]);
        let at = first.len().min(into.len());
        into[..at].copy_from_slice(&first[..at]);
        let left = into.len() - at;
        into[at..].copy_from_slice(&rest[..left]);
    }

    /// Sends bytes that begin at this offset of their block.
    fn send(&self, stripe: u64, position: usize, from: usize, bytes: Shared, done: &Sender<io::Result<()>>) {
        let set = ((self.node as u64) << 32) | (stripe % FILES);
        let to = (self.node + stripe as usize + position) % self.nodes;
        lock(self.written).insert((to, position as u16, set));
        let file = TargetFile::Chunk { set: SetId(set), position: Position(position as u16) };
        let piece = Piece { bytes, file, offset: from as u64, done: done.clone() };
        self.senders.send(position, to, piece);
    }

    /// Sends a block, and returns the number of pieces.
    fn send_block(&self, stripe: u64, position: usize, block: Vec<u8>, done: &Sender<io::Result<()>>) -> usize {
        let block = Arc::new(block);
        let pieces = self.regions().map(|(from, length)| {
            let bytes = Shared { block: block.clone(), range: from..from + length };
            self.send(stripe, position, from, bytes, done);
        });
        pieces.count()
    }

    /// Fills all blocks, encodes them, and then sends them.
    fn whole(&self, stripe: u64) -> OnWay {
        let (k, code) = (self.code.shape().k, self.code);
        let mut data = vec![vec![0; self.block_bytes]; k];
        for (number, block) in data.iter_mut().enumerate() {
            for (from, length) in self.regions() {
                self.fill(number, from, &mut block[from..from + length]);
            }
        }
        let mut coded = vec![vec![0; self.block_bytes]; code.coded().len()];
        {
            let inputs: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
            let mut outputs: Vec<&mut [u8]> = coded.iter_mut().map(Vec::as_mut_slice).collect();
            Partition::default().run(code.encoder(), &inputs, &mut outputs);
        }
        let (tell, done) = channel();
        let blocks = data.into_iter().chain(coded).enumerate();
        let pieces = blocks.map(|(position, block)| self.send_block(stripe, position, block, &tell)).sum();
        OnWay { pieces, done }
    }

    /// Sends each region of data when it is filled, folds it into the parities, and sends those at
    /// the end (equation 3: P(j) = P(j-1) + g·d).
    fn folded(&self, stripe: u64) -> OnWay {
        let (k, code) = (self.code.shape().k, self.code);
        let (tell, done) = channel();
        let mut pieces = 0;
        let mut coded = vec![vec![0; self.block_bytes]; code.coded().len()];
        for number in 0..k {
            for (from, length) in self.regions() {
                let mut region = vec![0; length];
                self.fill(number, from, &mut region);
                let mut parities: Vec<&mut [u8]> =
                    coded.iter_mut().map(|block| &mut block[from..from + length]).collect();
                code.accumulate(number, &region, &mut parities);
                let region = Shared { block: Arc::new(region), range: 0..length };
                self.send(stripe, number, from, region, &tell);
                pieces += 1;
            }
        }
        let parities = coded.into_iter().enumerate();
        pieces += parities.map(|(parity, block)| self.send_block(stripe, k + parity, block, &tell)).sum::<usize>();
        OnWay { pieces, done }
    }

    /// Writes stripes until then, at least one. Returns how many.
    ///
    /// # Errors
    /// When a piece cannot be written.
    pub fn run(&self, way: Way, in_flight: usize, until: Instant) -> io::Result<u64> {
        let mut on_way = std::collections::VecDeque::new();
        let most = if way == Way::InFlight { in_flight.max(1) } else { 1 };
        let mut stripe = 0;
        while stripe == 0 || Instant::now() < until {
            on_way.push_back(if way == Way::Partition { self.folded(stripe) } else { self.whole(stripe) });
            stripe += 1;
            if on_way.len() >= most {
                on_way.pop_front().map_or(Ok(()), OnWay::wait)?;
            }
        }
        on_way.into_iter().try_for_each(OnWay::wait)?;
        Ok(stripe)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use volume::target::{Memory, ReadAt};

    /// All ways store the same blocks, and the parity is that of the code.
    #[test]
    fn all_ways_write_the_same_stripes() {
        let code = ec::parse("rs:3+2").unwrap();
        let block_bytes = 2 * REGION_BYTES + 4096;
        let source: Vec<u8> = (0..REGION_BYTES).map(|at| (at * 7 + at / 300) as u8).collect();
        let read = |way| {
            let disks: Vec<Arc<Memory>> = (0..6).map(|_| Arc::new(Memory::default())).collect();
            let targets = Arc::new(disks.iter().map(|disk| disk.clone() as Arc<dyn Target>).collect::<Vec<_>>());
            let senders = Senders::new(5, &targets);
            let written = Mutex::default();
            let (code, source) = (&*code, &source[..]);
            let writer = Writer { code, block_bytes, node: 2, nodes: 6, senders: &senders, source, written: &written };
            assert_eq!(writer.run(way, 3, Instant::now()).unwrap(), 1);
            let written = written.into_inner().unwrap();
            let blocks: Vec<Vec<u8>> = written
                .iter()
                .map(|&(to, position, set)| {
                    let mut block = vec![0; block_bytes];
                    let file = TargetFile::Chunk { set: SetId(set), position: Position(position) };
                    assert_eq!(disks[to].read_at(file, 0, &mut block).unwrap(), block_bytes);
                    (position, block)
                })
                .collect::<std::collections::BTreeMap<_, _>>()
                .into_values()
                .collect();
            assert_eq!(blocks.len(), 5);
            blocks
        };
        let blocks = read(Way::Conventional);
        assert!(read(Way::Partition) == blocks && read(Way::InFlight) == blocks);
        let mut parity = vec![vec![0; block_bytes]; 2];
        let data: Vec<&[u8]> = blocks[..3].iter().map(Vec::as_slice).collect();
        code.encode(&data, &mut parity.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
        assert!(blocks[3..] == parity);
    }
}
