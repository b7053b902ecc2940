//! The port that everything measured stands behind: this engine, another library, or the traffic
//! limit.

/// One timed piece of work: `iterations` passes over `stripes` stripes.
#[derive(Clone, Debug)]
pub struct Job {
    /// The code's name, as the subject calls it.
    pub code: String,
    pub k: usize,
    pub m: usize,
    pub block_bytes: usize,
    /// Packet of a bit-matrix code, 0 for others.
    pub packet: usize,
    /// Stripes that lie in memory side by side, shared out over the threads.
    pub stripes: usize,
    pub iterations: usize,
    pub threads: usize,
}

impl Job {
    /// MiB of user data per second if the job took `seconds`.
    pub fn rate(&self, seconds: f64) -> f64 {
        let bytes = (self.k * self.block_bytes) as f64 * (self.stripes * self.iterations) as f64;
        bytes / (1 << 20) as f64 / seconds
    }
}

/// Something that codes and can be timed. All make their tables, inverses and blocks before the
/// clock starts, touch every page, and warm up with one call; the blocks of all stripes follow each
/// other in one arena.
pub trait Subject {
    /// Its name, which columns refer to.
    fn name(&self) -> &str;

    /// Its version.
    fn version(&self) -> &str;

    /// The instructions it uses, as it says.
    fn kernel(&self) -> &str;

    /// Whether it has a code of that name.
    fn supports(&self, code: &str) -> bool;

    /// Seconds for encoding, or why it cannot.
    fn time_encode(&mut self, job: &Job) -> Result<f64, String>;

    /// Seconds for rebuilding the blocks at positions `lost`, or why it cannot.
    fn time_decode(&mut self, job: &Job, lost: &[usize]) -> Result<f64, String>;
}
