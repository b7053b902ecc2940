//! This engine as a subject, in process, by the way it takes everywhere: whole blocks through
//! Partition Encoding.

use crate::arena::{Arena, Stripe};
use crate::subject::{Job, Subject};
use crate::threads::{self, Ready};
use ec::partition::Partition;
use ec::{Code, Spec, Transform};
use gf::Kernel;
use std::sync::Arc;
use std::time::Instant;

/// Weft on one kernel.
pub struct Own {
    name: &'static str,
    kernel: &'static dyn Kernel,
}

impl Own {
    /// Under the name that columns will use.
    pub fn new(name: &'static str, kernel: &'static dyn Kernel) -> Self {
        Self { name, kernel }
    }

    /// Builds the code again: a choice that the engine makes by measuring is then made for every
    /// sample, as it would be in every process, and one bad choice cannot colour the median.
    fn build(&self, job: &Job) -> Result<Arc<dyn Code>, String> {
        build(self.kernel, &job.code, job.k, job.m, job.packet)
    }
}

/// The code of that name and shape; a packet of 0 is none.
pub fn build(
    kernel: &'static dyn Kernel,
    name: &str,
    k: usize,
    m: usize,
    packet: usize,
) -> Result<Arc<dyn Code>, String> {
    let parameters: &[_] = if packet > 0 { &[("packet", packet)] } else { &[] };
    let spec = Spec::new(name, &[k, m], parameters);
    ec::build(&spec, kernel).map_err(|e| e.to_string())
}

impl Subject for Own {
    fn name(&self) -> &str {
        self.name
    }

    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    fn kernel(&self) -> &str {
        self.kernel.name()
    }

    fn supports(&self, code: &str) -> bool {
        ec::catalogue().iter().any(|family| family.name == code)
    }

    fn time_encode(&mut self, job: &Job) -> Result<f64, String> {
        let code = self.build(job)?;
        // What is coded stands behind the data, whether the data is stored as it is or not.
        let reads = Vec::from_iter(0..job.k);
        let makes = Vec::from_iter(job.k..job.k + code.coded().len());
        Ok(threads::seconds(job.threads, |ready| {
            let (per_stripe, share) = (reads.len() + makes.len(), job.stripes / job.threads);
            let mut arena = Arena::of_blocks(per_stripe * share, job.block_bytes);
            let stripes = arena.stripes(per_stripe, job.block_bytes).into_iter();
            let mut stripes: Vec<Stripe> = stripes.map(|blocks| Stripe::new(blocks, &reads, &makes)).collect();
            passes(&mut stripes, job.iterations, code.encoder(), Partition::default(), ready)
        }))
    }

    fn time_decode(&mut self, job: &Job, lost: &[usize]) -> Result<f64, String> {
        let code = self.build(job)?;
        if !code.systematic() {
            return Err("decoding is measured for systematic codes".into());
        }
        let blocks = job.k + job.m;
        let have: Vec<usize> = (0..blocks).filter(|at| !lost.contains(at)).collect();
        let repair = code.repair(lost, &have).map_err(|e| e.to_string())?;
        let reads: Vec<usize> = repair.reads().iter().map(|read| read.block).collect();
        let mut arena = Arena::of_blocks(blocks * job.stripes, job.block_bytes);
        let mut stripes = arena.stripes(blocks, job.block_bytes);
        let expected = encode_and_wipe(&*code, &mut stripes[0], lost);
        let mut stripes: Vec<Stripe> =
            stripes.into_iter().map(|blocks| Stripe::new(blocks, &reads, repair.makes())).collect();
        let (start, end) =
            passes(&mut stripes, job.iterations, repair.transform(), Partition::default(), &Instant::now);
        if stripes[0].outputs.iter().zip(&expected).any(|(made, expected)| **made != expected[..]) {
            return Err("decoded wrongly".into());
        }
        Ok((end - start).as_secs_f64())
    }
}

/// Runs the map once to warm up, then over all stripes as often as asked for; returns the start and
/// the end of that.
pub fn passes(
    stripes: &mut [Stripe],
    iterations: usize,
    transform: &Transform,
    partition: Partition,
    ready: Ready,
) -> (Instant, Instant) {
    let mut run = |stripe: &mut Stripe| partition.run(transform, &stripe.inputs, &mut stripe.outputs);
    stripes.iter_mut().take(1).for_each(&mut run);
    let start = ready();
    for _ in 0..iterations {
        stripes.iter_mut().for_each(&mut run);
    }
    (start, Instant::now())
}

/// Makes one stripe whole, then wipes what is to be decoded, so that a decode which does nothing is
/// noticed. Returns the lost blocks' content.
fn encode_and_wipe(code: &dyn Code, blocks: &mut [&mut [u8]], lost: &[usize]) -> Vec<Vec<u8>> {
    let (data, parity) = blocks.split_at_mut(code.shape().k);
    let data: Vec<&[u8]> = data.iter().map(|b| &**b).collect();
    code.encode(&data, parity);
    lost.iter()
        .map(|&at| {
            let content = blocks[at].to_vec();
            blocks[at].fill(0);
            content
        })
        .collect()
}
