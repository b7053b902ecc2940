//! The protocol that both Rust peers share: it parses one request line, fills the blocks and runs
//! the clock. A peer supplies only a `Coder` per job; `bench/peers/README.md` describes the
//! protocol.

use std::io::{self, BufRead, Read, Write};
use std::time::Instant;

const MAX_BLOCKS: usize = 256;
const MAX_LEN: usize = 1 << 30;

pub type Outcome<T = ()> = Result<T, String>;

/// One block and whether it is there; a lost block's bytes are where it is to be rebuilt.
pub type Block<'a> = (&'a mut [u8], bool);

pub struct Job {
    pub code: String,
    pub k: usize,
    pub m: usize,
    pub len: usize,
    pub packet: usize,
    pub lost: Vec<usize>,
}

pub trait Coder {
    /// Computes the parity; `store` says whether the caller will look at the blocks afterwards.
    fn encode(&mut self, blocks: &mut [&mut [u8]], store: bool) -> Outcome;
    fn decode(&mut self, blocks: &mut [Block], store: bool) -> Outcome;
}

pub struct Peer {
    pub name: &'static str,
    pub version: &'static str,
    pub codes: &'static str,
    pub kernel: &'static str,
    pub open: fn(&Job) -> Outcome<Box<dyn Coder>>,
}

/// Answers requests until `quit` or the end of the input.
pub fn serve(peer: &Peer) {
    let (mut input, mut output) = (io::stdin().lock(), io::BufWriter::new(io::stdout().lock()));
    let mut line = String::new();
    while input.read_line(&mut line).is_ok_and(|got| got > 0) && line.trim_end() != "quit" {
        let words: Vec<&str> = line.split_whitespace().collect();
        let reply = answer(peer, &words, &mut input).unwrap_or_else(|why| format!("no {why}\n").into_bytes());
        if output.write_all(&reply).and_then(|()| output.flush()).is_err() {
            return;
        }
        line.clear();
    }
}

fn answer(peer: &Peer, words: &[&str], input: &mut impl Read) -> Outcome<Vec<u8>> {
    let verb = *words.first().ok_or("empty request")?;
    if verb == "hello" {
        let Peer { name, version, codes, kernel, .. } = peer;
        return Ok(format!("ok {name} {version} codes={codes} kernel={kernel}\n").into_bytes());
    }
    let timed = verb.starts_with("time-");
    let decoding = match verb.trim_start_matches("time-") {
        "encode" => false,
        "decode" => true,
        _ => return Err("unknown request".into()),
    };
    let mut job = Job {
        code: words.get(1).copied().unwrap_or_default().to_string(),
        k: number(words, 2, 1 << 16)?,
        m: number(words, 3, 1 << 16)?,
        len: number(words, 4, MAX_LEN)?,
        packet: number(words, 5, MAX_LEN)?,
        lost: Vec::new(),
    };
    let ready = job.check(words.get(if timed { 8 } else { 6 }).filter(|_| decoding)).and_then(|()| (peer.open)(&job));
    if timed {
        let (stripes, rounds) = (number(words, 6, 1 << 24)?, number(words, 7, 1 << 30)?);
        return job.clock(&mut *ready?, decoding, stripes, rounds);
    }
    let given = job.k + if decoding { job.m } else { 0 };
    match ready {
        Ok(mut coder) => job.once(&mut *coder, decoding, given, input),
        Err(why) => {
            // The payload of a refused request is dropped, so that the stream stays in step.
            let _ = io::copy(&mut input.take((given * job.len) as u64), &mut io::sink());
            Err(why)
        }
    }
}

fn number(words: &[&str], at: usize, limit: usize) -> Outcome<usize> {
    let n = words.get(at).and_then(|word| word.parse().ok()).ok_or("malformed request")?;
    if n > limit { Err("a number is too large".into()) } else { Ok(n) }
}

impl Job {
    fn check(&mut self, lost: Option<&&str>) -> Outcome {
        if self.k == 0 || self.m == 0 || self.len == 0 {
            return Err("K, M and LEN must be positive".into());
        }
        if self.k + self.m > MAX_BLOCKS {
            return Err("more than 256 blocks".into());
        }
        for word in lost.map_or("", |list| list).split(',').filter(|word| !matches!(*word, "" | "-")) {
            let position: usize = word.parse().map_err(|_| "malformed request")?;
            if position >= self.k + self.m {
                return Err("a lost position is out of range".into());
            }
            self.lost.push(position);
        }
        self.lost.sort_unstable();
        self.lost.dedup();
        if self.lost.len() > self.m { Err("more blocks lost than parity".into()) } else { Ok(()) }
    }

    /// Marks the lost blocks as absent.
    fn with_presence<'a>(&self, blocks: Vec<&'a mut [u8]>) -> Vec<Block<'a>> {
        blocks.into_iter().enumerate().map(|(i, block)| (block, !self.lost.contains(&i))).collect()
    }

    fn once(&self, coder: &mut dyn Coder, decoding: bool, given: usize, input: &mut impl Read) -> Outcome<Vec<u8>> {
        let mut arena = Arena::new(self, 1);
        let mut blocks = arena.stripes(self).remove(0);
        for block in &mut blocks[..given] {
            input.read_exact(block).map_err(|why| why.to_string())?;
        }
        if !decoding {
            coder.encode(&mut blocks, true)?;
            blocks.drain(..self.k);
        } else if !self.lost.is_empty() {
            let mut marked = self.with_presence(blocks);
            coder.decode(&mut marked, true)?;
            blocks = marked.into_iter().map(|(block, _)| block).collect();
        }
        let body = blocks.concat();
        Ok([format!("ok {}\n", body.len()).into_bytes(), body].concat())
    }

    fn clock(&self, coder: &mut dyn Coder, decoding: bool, count: usize, rounds: usize) -> Outcome<Vec<u8>> {
        if count == 0 || decoding && self.lost.is_empty() {
            return Err(if count == 0 { "STRIPES must be positive" } else { "nothing is lost" }.into());
        }
        let mut arena = Arena::new(self, count);
        let mut stripes = arena.stripes(self);
        let took = if decoding {
            for blocks in &mut stripes {
                coder.encode(blocks, true)?;
            }
            let mut stripes: Vec<_> = stripes.into_iter().map(|blocks| self.with_presence(blocks)).collect();
            let copies: Vec<_> = self.lost.iter().map(|&i| stripes[0][i].0.to_vec()).collect();
            coder.decode(&mut stripes[0], false)?;
            let start = Instant::now();
            for _ in 0..rounds {
                for blocks in &mut stripes {
                    coder.decode(blocks, false)?;
                }
            }
            let took = start.elapsed();
            // One stripe's lost blocks are wiped and rebuilt again, so that a wrong decode is
            // noticed.
            self.lost.iter().for_each(|&i| stripes[0][i].0.fill(0));
            coder.decode(&mut stripes[0], true)?;
            if self.lost.iter().zip(copies).any(|(&i, copy)| *stripes[0][i].0 != *copy) {
                return Err("decoded wrongly".into());
            }
            took
        } else {
            coder.encode(&mut stripes[0], false)?;
            let start = Instant::now();
            for _ in 0..rounds {
                for blocks in &mut stripes {
                    coder.encode(blocks, false)?;
                }
            }
            start.elapsed()
        };
        Ok(format!("ok {:.9}\n", took.as_secs_f64()).into_bytes())
    }
}

/// Between two blocks, so that not all of them fall into the same cache sets.
const GAP: usize = 5 * 64;

/// All stripes lie in one arena, block after block, because that is how an engine would hold them,
/// five cache lines apart as in `peer.h`.
struct Arena {
    bytes: Vec<u8>,
    count: usize,
}

impl Arena {
    /// Writes every byte, so that no page fault lands inside the clock.
    fn new(job: &Job, count: usize) -> Self {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let words = (job.k + job.m) * count * (job.len.next_multiple_of(64) + GAP) / 8 + 8;
        let mut bytes = Vec::with_capacity(8 * words);
        for _ in 0..words {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.extend_from_slice(&state.to_le_bytes());
        }
        Self { bytes, count }
    }

    fn stripes(&mut self, job: &Job) -> Vec<Vec<&mut [u8]>> {
        let (pitch, skip) = (job.len.next_multiple_of(64) + GAP, self.bytes.as_ptr().align_offset(64));
        let mut blocks = self.bytes[skip..].chunks_exact_mut(pitch).map(|block| &mut block[..job.len]);
        (0..self.count).map(|_| blocks.by_ref().take(job.k + job.m).collect()).collect()
    }
}
