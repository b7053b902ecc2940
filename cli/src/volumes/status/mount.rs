//! A mount of a volume that a server has: what only its process knows.

use super::cost;
use crate::failure::{Failure, Outcome};
use crate::show;
use fs::FileSystem;
use serde_json::json;
use volume::Health;

pub fn run(volume: &FileSystem, place: &str, write_cost: bool, as_json: bool) -> Outcome {
    let connected = volume.is_connected();
    let targets = volume.known_health();
    let (reads, cost) = (volume.read_counts(), volume.write_cost());
    let (here, masters) = volume.coded_stripes();
    let (files, uncommitted) = volume.uncommitted();
    if as_json {
        let each = targets.iter().map(|target| {
            let problem = match &target.health {
                Health::Healthy => None,
                Health::Failing(why) | Health::Gone(why) => Some(why),
            };
            json!({
                "id": target.id.0,
                "problem": problem,
                "read_bytes": target.read_bytes,
                "written_bytes": target.written_bytes,
            })
        });
        show::json(&json!({
            "name": volume.name(),
            "connected": connected,
            "targets": each.collect::<Vec<_>>(),
            "dirty_bytes": volume.dirty_bytes(),
            "uncommitted_files": files,
            "uncommitted_bytes": uncommitted,
            "reads_degraded": reads.degraded(),
            "reads_hedged": reads.hedged(),
            "blocks_refused": reads.refused(),
            "stripes_coded": { "client": here, "masters": masters },
            "write_cost": cost::document(&cost),
        }))?;
    } else {
        let server = if connected { "connected" } else { "THE METADATA SERVER DOES NOT ANSWER" };
        show::text(format_args!("{}: {place}: {server}", volume.name()))?;
        for target in &targets {
            if let Health::Failing(why) | Health::Gone(why) = &target.health {
                show::text(format_args!("  target {:3}  PROBLEM: {why}", target.id.0))?;
            }
        }
        show::text(format_args!(
            "  {} in {} not committed, {} not in stripes; {} degraded, {} hedged; {} whose checksum did not fit",
            show::bytes(uncommitted),
            show::count(files, "file"),
            show::bytes(volume.dirty_bytes()),
            show::count(reads.degraded() as usize, "read"),
            reads.hedged(),
            show::count(reads.refused() as usize, "block")
        ))?;
        if write_cost {
            cost::print(&cost)?;
        }
    }
    if connected { Ok(()) } else { Err(Failure::Found) }
}
