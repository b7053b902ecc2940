//! Invented jobs of every size, for the tests of reports. `WEFT_PAGES=DIR cargo test -p archive
//! pages` writes their pages.

use super::{Ending, Facts, Phase, Worker, Written};
use plan::energy::{Account, Basis, PhaseEnergy, Scope, Split};

/// A job with this number of workers and about this length in seconds. It is the same for the same
/// arguments.
pub fn job(workers: usize, seconds: f64) -> Facts {
    let mut facts = Facts {
        job: "nightly".into(),
        version: "0.1.0".into(),
        sources: vec!["/scratch/checkpoints".into(), "/home/<ops> & \"friends\"".into()],
        volume: "/srv/archive:/2026/11".into(),
        code: "rs:4+2".into(),
        k: 4,
        m: 2,
        schedule: "demand".into(),
        transport: "threads".into(),
        start_unix_seconds: 1_795_285_800,
        wall_seconds: seconds,
        ending: Ending::Finished,
        others: 812,
        ..Facts::default()
    };
    let mut state = 7u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as f64 / f64::from(1u32 << 31)
    };
    for number in 0..workers {
        let mut worker = Worker { name: format!("worker {number}"), ..Worker::default() };
        let mut now = seconds * 0.01 * random();
        let mean = seconds / 300.0;
        while now < seconds * 0.96 {
            let end = now + mean * (0.2 + 1.6 * random());
            let bytes =
                if random() < 0.002 { 300e6 * (1.0 + random()) } else { 4096.0 * (1.0 + 30.0 * random()) } as u64;
            worker.timeline.add(now, end);
            worker.tasks += 1;
            worker.bytes += bytes;
            facts.sizes.add(bytes);
            facts.throughput.add(end, bytes);
            facts.files += 1;
            now = end + if random() < 0.05 { mean * 3.0 } else { mean * 0.02 };
        }
        facts.bytes += worker.bytes;
        facts.cpu_seconds += worker.timeline.busy_seconds * 0.6;
        facts.workers.push(worker);
    }
    facts.written = Written { chunk_sets: 40, data_chunks: 160, code_chunks: 80, bytes: facts.bytes * 3 / 2 };
    let share = [("explore", 0.2, 0.05), ("encode", 0.96, 0.85), ("commit", 0.1, 0.04), ("verify", 0.04, 0.06)];
    facts.phases = share
        .map(|(name, wall, cpu)| Phase {
            name: name.into(),
            wall_seconds: wall * seconds,
            cpu_seconds: cpu * facts.cpu_seconds,
        })
        .to_vec();
    let account = |source: &str, detail: &str, basis, scope, watts: f64, split| Account {
        source: source.into(),
        detail: detail.into(),
        basis,
        scope,
        error: (basis == Basis::Measured).then_some(0.05),
        joules: watts * seconds,
        phases: share.map(|(name, _, cpu)| PhaseEnergy { phase: name.into(), joules: watts * seconds * cpu }).to_vec(),
        split,
    };
    let split = Split { idle_joules: 61.0 * seconds, io_joules: 12.0 * seconds, coding_joules: 17.0 * seconds };
    facts.energy = vec![
        account("RAPL", "package-0, dram", Basis::Measured, Scope::Package, 90.0, Some(split)),
        account("model", "60 W idle, 6 W a busy core, assumed", Basis::Modelled, Scope::Node, 112.0, None),
    ];
    facts.errors.add("/scratch/checkpoints/<b>locked</b>: permission denied; give the archiver read access");
    facts
}
