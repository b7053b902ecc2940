//! Peer around the crate `reed-solomon-erasure`: the Backblaze code. Its C kernel is compiled for
//! AVX2 (the crate passes -march=haswell), so there is one kernel, fixed when the peer is built.

use peers::{Block, Coder, Job, Outcome, Peer, serve};
use reed_solomon_erasure::galois_8::ReedSolomon;

struct Library {
    code: ReedSolomon,
    k: usize,
}

fn open(job: &Job) -> Outcome<Box<dyn Coder>> {
    if job.code != "rs-points" {
        return Err("unknown code".into());
    }
    if job.packet != 0 {
        return Err("a byte code has no packets".into());
    }
    let code = ReedSolomon::new(job.k, job.m).map_err(|why| why.to_string())?;
    Ok(Box::new(Library { code, k: job.k }))
}

impl Coder for Library {
    fn encode(&mut self, blocks: &mut [&mut [u8]], _: bool) -> Outcome {
        let (data, parity) = blocks.split_at_mut(self.k);
        self.code.encode_sep(data, parity).map_err(|why| why.to_string())
    }

    /// The crate keeps the inverses of recent losses itself.
    fn decode(&mut self, blocks: &mut [Block], _: bool) -> Outcome {
        self.code.reconstruct(blocks).map_err(|why| why.to_string())
    }
}

fn main() {
    let simd = cfg!(all(feature = "simd", target_arch = "x86_64"));
    let kernel = match std::env::var("PEER_KERNEL").as_deref() {
        Ok("avx2") if simd => "avx2",
        Ok("plain") if !simd => "plain",
        _ => "auto",
    };
    let version = if simd { "6.0.0" } else { "6.0.0-without-simd" };
    serve(&Peer { name: "reed-solomon-erasure", version, codes: "rs-points", kernel, open });
}
