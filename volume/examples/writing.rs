//! How fast stripes are written: `writing DIRECTORY [SPEC] [MiB] [THREADS] [STRIPE]`. Prints one
//! line for each of five runs and their median.

use plan::{SetId, StripeSeq, TargetId};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use volume::format::VolumeId;
use volume::target::{Disk, Memory, Target};
use volume::{BufferPool, SetLayout, SetWriter, Targets};

/// User and system time of the process in seconds.
fn processor_seconds() -> (f64, f64) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse().ok()).unwrap_or(0.0) / 100.0;
    (ticks(11), ticks(12))
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |at: usize, default: &str| arguments.get(at).cloned().unwrap_or_else(|| default.into());
    let directory = argument(0, "/tmp/weft-writing");
    let code = ec::parse(&argument(1, "rs:4+2")).expect("a code");
    let bytes: u64 = argument(2, "1024").parse::<u64>().expect("MiB") << 20;
    let threads: u64 = argument(3, "1").parse().expect("threads");
    let stripe: usize = argument(4, "1048576").parse().expect("bytes of a stripe");
    let data: Vec<u8> = (0..stripe as u64).map(|at| ((at * at) >> 7) as u8).collect();
    let mut rates = Vec::new();
    for _ in 0..5 {
        let _ = std::fs::remove_dir_all(&directory);
        let targets = Arc::new(Targets::new());
        for number in 0..code.shape().blocks() {
            let disk: Arc<dyn Target> = if directory == "memory" {
                Arc::new(Memory::default())
            } else {
                Arc::new(Disk::format(&Path::new(&directory).join(number.to_string())).expect("a directory"))
            };
            targets.add(TargetId(number as u16), disk);
        }
        let pool = Arc::new(BufferPool::new(&*code, stripe, 8));
        let places = (0..code.shape().blocks()).map(|number| Some(TargetId(number as u16))).collect::<Vec<_>>();
        let open = |set| {
            let layout =
                SetLayout { volume: VolumeId([1; 16]), set: SetId(set), code: code.clone(), places: places.clone() };
            Arc::new(SetWriter::create(targets.clone(), pool.clone(), layout, 64 << 20, 1))
        };
        let (sequence, stripes) = (AtomicU64::new(0), bytes / stripe as u64);
        let (begun, before) = (Instant::now(), processor_seconds());
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let (open, sequence, pool, data) = (&open, &sequence, &pool, &data);
                scope.spawn(move || {
                    let mut writer = open(thread << 32);
                    loop {
                        let number = sequence.fetch_add(1, Ordering::Relaxed);
                        if number >= stripes {
                            return;
                        }
                        if writer.full() {
                            writer = open((thread << 32) + number);
                        }
                        let mut buffer = pool.take();
                        buffer.extend_from_slice(data);
                        writer.append(buffer, StripeSeq(number), b"").map_err(|(error, _)| error).expect("a stripe");
                    }
                });
            }
        });
        let (seconds, after) = (begun.elapsed().as_secs_f64(), processor_seconds());
        let gib = (stripes * stripe as u64) as f64 / (1u64 << 30) as f64;
        let (user, system) = ((after.0 - before.0) / gib, (after.1 - before.1) / gib);
        println!(
            "{:8.0} MiB/s  {:6.1} us a stripe  {user:.2} user + {system:.2} system CPU s/GiB",
            gib * 1024.0 / seconds,
            seconds * 1e6 / stripes as f64
        );
        rates.push(gib * 1024.0 / seconds);
    }
    let _ = std::fs::remove_dir_all(&directory);
    rates.sort_by(f64::total_cmp);
    println!("median {:.0} MiB/s", rates[2]);
}
