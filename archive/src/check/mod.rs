//! End-to-end check of an archive: data read from the volume, or from the source of the archive,
//! must have the hash that was stored at archiving time. A check changes nothing.

mod checker;
mod manifest;

pub use checker::{Against, Checker, Checking};
pub use manifest::{manifest_name, write_manifest};

use crate::clock::{Clock, process_seconds};
use crate::crew::{Roles, live_in_threads};
use crate::job::{limits, most_objects};
use crate::report::Facts;
use crate::restore::{VolumeTree, Walked, walk_of};
use crate::roles::{Manager, Plan, Reporter, Show};
use crate::transport::{Broken, Crew};
use crate::walk::Filter;
use fs::FileSystem;
use plan::schedule::Policy;
use std::sync::Arc;
use volume::Control;

/// Checks a tree of a volume in threads of this process. `facts` has what is already known of the
/// job. Returns the completed facts and, if the check had to stop, the reason.
///
/// # Errors
/// If the tree does not exist.
#[allow(clippy::too_many_arguments, reason = "each is another thing to go by")]
pub fn check<S: Show + Send>(
    volume: &Arc<FileSystem>,
    path: &[u8],
    against: Against,
    crew: Crew,
    memory: u64,
    facts: Facts,
    show: S,
    control: &Arc<Control>,
) -> Result<(Facts, Option<String>), Broken> {
    let (walk, _) = walk_of(volume, path)?;
    let (clock, cpu) = (Clock::now(), process_seconds());
    let plan = plan(volume, memory);
    let walked = Arc::new(Walked { volume: volume.clone(), filter: Filter::default(), root: None, directories: false });
    let checking = Checking { volume: volume.clone(), against, control: control.clone() };
    let roles = Roles { tree: || VolumeTree::new(walked.clone()), craft: || Ok::<_, Broken>(Checker::new(&checking)) };
    let manager = Manager::new(crew, plan, vec![walk], control.clone());
    let facts = Facts {
        start_unix_seconds: clock.beginning().as_secs(),
        schedule: plan.policy.word().into(),
        transport: "threads".into(),
        ..facts
    };
    let reporter = live_in_threads(crew, clock, manager, Reporter::new(crew, facts, show), &roles);
    let (mut facts, broken) = reporter.into_facts(control);
    facts.wall_seconds = clock.seconds();
    facts.cpu_seconds = process_seconds() - cpu;
    Ok((facts, broken))
}

/// How the work of a check is handed out.
pub fn plan(volume: &FileSystem, memory: u64) -> Plan {
    Plan {
        policy: Policy::Demand,
        limits: limits(volume.stripe_bytes()),
        // One worker reads a whole file: hashes of parts are not stored.
        part_bytes: Some(1 << 62),
        most_objects: most_objects(memory),
    }
}
