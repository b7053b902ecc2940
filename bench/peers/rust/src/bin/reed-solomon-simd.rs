//! Peer around the crate `reed-solomon-simd`: an O(n log n) code over GF(2^16), whose bytes are its
//! own. The encoder and decoder are kept between stripes, as the crate advises; it copies the
//! blocks in.

use peers::{Block, Coder, Job, Outcome, Peer, serve};
use reed_solomon_simd::engine::{DefaultEngine, Engine, NoSimd};
use reed_solomon_simd::rate::{DefaultRateDecoder, DefaultRateEncoder, RateDecoder, RateEncoder};

struct Library<E: Engine> {
    encoder: DefaultRateEncoder<E>,
    decoder: DefaultRateDecoder<E>,
    k: usize,
}

fn wanted() -> &'static str {
    match std::env::var("PEER_KERNEL").as_deref() {
        #[cfg(target_arch = "x86_64")]
        Ok("avx2") if std::is_x86_feature_detected!("avx2") => "avx2",
        Ok("plain") => "plain",
        _ => "auto",
    }
}

fn open(job: &Job) -> Outcome<Box<dyn Coder>> {
    if job.code != "reed-solomon-simd" {
        return Err("unknown code".into());
    }
    if job.packet != 0 {
        return Err("a byte code has no packets".into());
    }
    match wanted() {
        #[cfg(target_arch = "x86_64")]
        "avx2" => open_with(job, reed_solomon_simd::engine::Avx2::new),
        "plain" => open_with(job, NoSimd::new),
        _ => open_with(job, DefaultEngine::new),
    }
}

fn open_with<E: Engine + 'static>(job: &Job, engine: impl Fn() -> E) -> Outcome<Box<dyn Coder>> {
    let Job { k, m, len, .. } = *job;
    let encoder = DefaultRateEncoder::new(k, m, len, engine(), None).map_err(text)?;
    let decoder = DefaultRateDecoder::new(k, m, len, engine(), None).map_err(text)?;
    Ok(Box::new(Library { encoder, decoder, k }))
}

fn text(why: reed_solomon_simd::Error) -> String {
    why.to_string()
}

impl<E: Engine> Coder for Library<E> {
    /// The parity is usable where the crate leaves it, so the clock does not include copying it
    /// out.
    fn encode(&mut self, blocks: &mut [&mut [u8]], store: bool) -> Outcome {
        let (data, parity) = blocks.split_at_mut(self.k);
        for block in data {
            self.encoder.add_original_shard(block).map_err(text)?;
        }
        let result = self.encoder.encode().map_err(text)?;
        if store {
            parity.iter_mut().zip(result.recovery_iter()).for_each(|(to, from)| to.copy_from_slice(from));
        }
        Ok(())
    }

    /// The crate restores data only, so lost parity is encoded again from the whole data.
    fn decode(&mut self, blocks: &mut [Block], store: bool) -> Outcome {
        let (data, parity) = blocks.split_at_mut(self.k);
        let parity_lost = parity.iter().any(|block| !block.1);
        if data.iter().any(|block| !block.1) {
            let present = data.iter().filter(|block| block.1).count();
            for (i, block) in data.iter().enumerate().filter(|(_, block)| block.1) {
                self.decoder.add_original_shard(i, &*block.0).map_err(text)?;
            }
            for (i, block) in parity.iter().enumerate().filter(|(_, block)| block.1).take(self.k - present) {
                self.decoder.add_recovery_shard(i, &*block.0).map_err(text)?;
            }
            let result = self.decoder.decode().map_err(text)?;
            if store || parity_lost {
                result.restored_original_iter().for_each(|(i, from)| data[i].0.copy_from_slice(from));
            }
        }
        if parity_lost {
            for block in data {
                self.encoder.add_original_shard(&*block.0).map_err(text)?;
            }
            let result = self.encoder.encode().map_err(text)?;
            let pairs = parity.iter_mut().zip(result.recovery_iter());
            pairs.filter(|(to, _)| store && !to.1).for_each(|(to, from)| to.0.copy_from_slice(from));
        }
        Ok(())
    }
}

fn main() {
    let (name, codes) = ("reed-solomon-simd", "reed-solomon-simd");
    serve(&Peer { name, version: "3.1.0", codes, kernel: wanted(), open });
}
