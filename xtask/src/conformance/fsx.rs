//! fsx: random operations on one file, every read compared with what must be there.

use super::{Session, Verdict, logged};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const VERSION: &str = "0.3.2";

/// A mix of operations.
struct Mix {
    name: &'static str,
    /// Operations of one run; then another follows with the next seed.
    operations: u64,
    config: &'static str,
}

const MIXES: [Mix; 5] = [
    Mix { name: "default", operations: 20_000, config: "" },
    Mix {
        name: "mmap",
        operations: 20_000,
        config: "nomsyncafterwrite = true\n[weights]\nmapread = 20\nmapwrite = 20\nread = 5\nwrite = 5\ntruncate = 5\n\
                 close_open = 1\ninvalidate = 1\n",
    },
    Mix {
        name: "allocate",
        operations: 20_000,
        config: "[weights]\npunch_hole = 10\nposix_fallocate = 10\ncopy_file_range = 5\nsendfile = 5\nposix_fadvise = 5\n\
                 close_open = 1\n",
    },
    Mix {
        name: "sync",
        operations: 2_000,
        config: "[weights]\nfsync = 10\nfdatasync = 10\ninvalidate = 10\nclose_open = 5\nposix_fadvise = 5\n",
    },
    Mix {
        name: "big",
        operations: 2_000,
        config: "flen = 268435456\n[opsize]\nmax = 4194304\n[weights]\npunch_hole = 5\ntruncate = 3\nfsync = 1\n\
                 close_open = 1\n",
    },
];

/// Runs every mix for its share of the time.
pub fn run(session: &mut Session) {
    match session.installed("fsx", VERSION) {
        Err(why) => session.report("fsx", Verdict::Skipped(why)),
        Ok(program) => {
            for mix in &MIXES {
                let verdict = run_mix(session, &program, mix).unwrap_or_else(Verdict::Skipped);
                session.report(&format!("fsx-{}", mix.name), verdict);
            }
        }
    }
}

fn run_mix(session: &Session, program: &Path, mix: &Mix) -> Result<Verdict, String> {
    let log = session.log(&format!("fsx-{}", mix.name));
    let _ = fs::remove_file(&log);
    let config = session.logs.join(format!("fsx-{}.toml", mix.name));
    fs::write(&config, mix.config).map_err(|why| format!("{}: {why}", config.display()))?;
    let share = Duration::from_secs(session.minutes * 60) / MIXES.len() as u32;
    // A run that does not end is a failure, as long as another one would have.
    let once = |place: &Path, seed: u64, operations: u64| {
        let mut command = Command::new(program);
        command.arg("-f").arg(&config).args(["-S", &seed.to_string(), "-N", &operations.to_string()]);
        command.arg("-P").arg(&session.logs).arg(place.join(format!("fsx-{}", mix.name)));
        logged(command, &log, share + Duration::from_secs(600))
    };
    once(&session.reference, 1, mix.operations / 10).map_err(|why| format!("fails locally too: {why}"))?;
    let start = Instant::now();
    let mut seed = 0;
    while seed == 0 || start.elapsed() < share {
        seed += 1;
        if let Err(why) = once(&session.directory, seed, mix.operations) {
            return Ok(Verdict::Failed(format!("seed {seed}: {why}")));
        }
    }
    Ok(Verdict::Ok(format!("{} operations in {} s", seed * mix.operations, start.elapsed().as_secs())))
}
