//! Metrics of a volume that is open in this process: all of a mount's, and most of a metadata
//! server's.

use super::http::Subject;
use super::process;
use super::text::Page;
use crate::address::StoreAddress;
use crate::store::Stores;
use ::volume::counts::Operation;
use ::volume::steps::{StepTotals, WriteStep};
use ::volume::{Health, TargetHealth};
use fs::{FileSystem, Status};
use std::sync::Arc;

/// The metrics of a mount.
pub struct MountMetrics {
    volume: Arc<FileSystem>,
    stores: Arc<Stores>,
}

impl MountMetrics {
    /// `stores`: those that this process uses. Also starts the regular census of the volume if its
    /// metadata is in this process.
    pub fn new(volume: Arc<FileSystem>, stores: Arc<Stores>) -> Self {
        if !volume.is_client() {
            volume.watch_status();
        }
        Self { volume, stores }
    }
}

impl Subject for MountMetrics {
    fn write(&self, page: &mut Page) {
        process::write(page);
        files(page, &self.volume);
        write_cost(page, &self.volume.write_cost());
        coding(page, &self.volume);
        reads(page, &self.volume);
        targets(page, &self.volume);
        repairs(page, &self.volume);
        defects(page, &self.volume, &self.stores);
        census(page, &self.volume);
    }

    /// Ready means: the volume is open, and its server, if it has one, answered recently.
    fn ready(&self) -> Result<(), String> {
        usable(&self.volume)
    }
}

/// Whether files can be read: the volume is open, and enough targets answer.
pub(super) fn usable(volume: &FileSystem) -> Result<(), String> {
    if volume.is_closed() {
        return Err("the volume is closed".into());
    }
    if !volume.is_connected() {
        return Err("the metadata server does not answer".into());
    }
    let there = volume.known_health().iter().filter(|target| !matches!(target.health, Health::Gone(_))).count();
    let needed = volume.needed_targets();
    if there < needed { Err(format!("{there} targets answer and {needed} are needed")) } else { Ok(()) }
}

fn files(page: &mut Page, volume: &FileSystem) {
    let counts = volume.counts();
    let operations: [(&str, &Operation); 3] =
        [("read", &counts.reads), ("write", &counts.writes), ("sync", &counts.syncs)];
    let mut requests = page.counter("weft_file_operations_total", "Reads, writes and syncs of files.");
    operations.iter().for_each(|(name, o)| _ = requests.count(&[("operation", name)], o.time.now().count()));
    let mut failures = page.counter("weft_file_operation_failures_total", "Those that failed.");
    operations.iter().for_each(|(name, o)| _ = failures.count(&[("operation", name)], o.failures()));
    let mut bytes = page.counter("weft_file_bytes_total", "Data that was read and written.");
    operations[..2].iter().for_each(|(name, o)| _ = bytes.count(&[("operation", name)], o.bytes()));
    let mut times = page.histogram("weft_file_operation_seconds", "How long they took.");
    operations.iter().for_each(|(name, o)| _ = times.times(&[("operation", name)], &o.time.now()));
    page.gauge("weft_dirty_bytes", "Data that was written and is in memory.").count(&[], volume.dirty_bytes());
}

pub(super) fn write_cost(page: &mut Page, cost: &StepTotals) {
    let mut times = page.counter(
        "weft_write_step_seconds_total",
        "Where the time of writes went, by the steps of the write-cost model.",
    );
    WriteStep::ALL.iter().for_each(|&step| _ = times.seconds(&[("step", step.name())], cost.of(step).time));
    let mut counts = page.counter("weft_write_steps_total", "How often each step was taken.");
    WriteStep::ALL.iter().for_each(|&step| _ = counts.count(&[("step", step.name())], cost.of(step).count));
}

fn coding(page: &mut Page, volume: &FileSystem) {
    let (here, masters) = volume.coded_stripes();
    let mut stripes = page.counter("weft_stripes_coded_total", "Stripes that were written, by who coded them.");
    stripes.count(&[("by", "client")], here);
    stripes.count(&[("by", "master")], masters);
}

pub(super) fn reads(page: &mut Page, volume: &FileSystem) {
    let reads = volume.read_counts();
    page.counter("weft_reads_degraded_total", "Reads that were decoded from other blocks.")
        .count(&[], reads.degraded());
    page.counter("weft_reads_hedged_total", "Reads that did not wait for a late block.").count(&[], reads.hedged());
    let refused = "Blocks whose checksum did not fit.";
    page.counter("weft_blocks_refused_total", refused).count(&[], reads.refused());
}

/// The content, state and space of a volume, as of the last census. A mount of a served volume has
/// no census.
pub(super) fn census(page: &mut Page, volume: &FileSystem) {
    let last = volume.last_status();
    let all = last.as_ref().map(|(_, status)| &**status);
    let mut gauge = |name: &str, help: &str, value: &dyn Fn(&Status) -> u64| {
        let mut family = page.gauge(name, help);
        all.into_iter().for_each(|status| _ = family.count(&[], value(status)));
    };
    gauge("weft_volume_healthy", "Whether nothing needs attention.", &|status| status.is_healthy().into());
    gauge("weft_volume_size_bytes", "Space for data in all.", &|status| status.usage.total);
    gauge("weft_volume_free_bytes", "Space for data that is free.", &|status| status.usage.free);
    gauge("weft_volume_files", "Files of any kind.", &|status| status.usage.files);
    gauge("weft_volume_bytes", "Bytes that files refer to.", &|status| status.bytes);
    let waiting = "Chunk sets that wait for repair.";
    gauge("weft_volume_repair_waiting_sets", waiting, &|status| status.to_repair as u64);
    let waiting = "Bytes of chunks that they lack, about.";
    gauge("weft_volume_repair_waiting_bytes", waiting, &|status| status.to_repair_bytes);
    let lost = "Chunk sets of which too little is left.";
    gauge("weft_volume_chunk_sets_lost", lost, &|status| status.lost as u64);
    let new = "Targets that a chunk set which is begun now has its blocks on.";
    gauge("weft_volume_new_data_targets", new, &|status| status.new_blocks.0 as u64);
    let new = "Targets that it should have them on.";
    gauge("weft_volume_new_data_targets_wanted", new, &|status| status.new_blocks.1 as u64);
    let copies = "Targets that have all of the metadata.";
    gauge("weft_volume_metadata_copies", copies, &|status| status.mirrors.0 as u64);
    let copies = "Targets that should have it.";
    gauge("weft_volume_metadata_copies_wanted", copies, &|status| status.mirrors.1 as u64);
    let scrub = "When a verification of everything ended last; 0 when none did.";
    let when = |status: &Status| status.scrub.map_or(0, |scrub| u64::try_from(scrub.when).unwrap_or(0));
    gauge("weft_volume_last_scrub_timestamp_seconds", scrub, &when);
    let scrub = "What the last verification, also one of what was new, found wrong and no repair healed since.";
    gauge("weft_volume_last_scrub_problems", scrub, &Status::problems_left);
    let mut sets = page.gauge("weft_volume_chunk_sets", "Chunk sets by how many more losses they survive.");
    for (more, count) in all.into_iter().flat_map(|status| status.survive.iter().enumerate()) {
        sets.count(&[("losses_survived", &more.to_string())], *count as u64);
    }
    let mut when = page.gauge("weft_volume_status_timestamp_seconds", "When all of this was found.");
    last.into_iter().for_each(|(found, _)| _ = when.count(&[], u64::try_from(found).unwrap_or(0)));
}

pub(super) fn targets(page: &mut Page, volume: &FileSystem) {
    let mut up = page.gauge("weft_target_up", "Whether a target answers and nothing fails on it.");
    for known in volume.known_targets() {
        let (id, path) = (known.id.0.to_string(), known.path.to_string_lossy());
        let address = StoreAddress::of(&known.path).and_then(Result::ok).map_or_else(String::new, |it| it.server);
        let domain = known.domain.map_or_else(String::new, |domain| domain.to_string());
        let labels = [("target", &*id), ("address", &*address), ("path", &*path), ("domain", &*domain)];
        up.count(&labels, known.health.is_some_and(|target| target.health == Health::Healthy).into());
    }
    let targets: Vec<(String, TargetHealth)> =
        volume.known_health().into_iter().map(|target| (target.id.0.to_string(), target)).collect();
    let mut queue = page.gauge("weft_target_queue_operations", "Operations that a target does, and that wait for it.");
    targets.iter().for_each(|(id, t)| _ = queue.count(&[("target", id)], t.queued as u64));
    let mut failures = page.counter("weft_target_failures_total", "Operations on a target that failed.");
    targets.iter().for_each(|(id, t)| _ = failures.count(&[("target", id)], t.errors));
    let mut read = page.counter("weft_target_read_bytes_total", "Blocks that were read from a target.");
    targets.iter().for_each(|(id, t)| _ = read.count(&[("target", id)], t.read_bytes));
    let mut written = page.counter("weft_target_written_bytes_total", "Records that were written to a target.");
    targets.iter().for_each(|(id, t)| _ = written.count(&[("target", id)], t.written_bytes));
    let known = || targets.iter().filter_map(|(id, target)| Some((id, target.space?)));
    let mut size = page.gauge("weft_target_size_bytes", "Space on the file system of a target.");
    known().for_each(|(id, space)| _ = size.count(&[("target", id)], space.total));
    let mut free = page.gauge("weft_target_free_bytes", "Free space on the file system of a target.");
    known().for_each(|(id, space)| _ = free.count(&[("target", id)], space.free));
}

pub(super) fn defects(page: &mut Page, volume: &FileSystem, stores: &Stores) {
    let what = "Panics in what goes on in the background, which went on. Each is a defect: please report it.";
    let count = volume.counts().defects() + stores.reports.defects();
    page.counter("weft_background_panics_total", what).count(&[], count);
}

pub(super) fn repairs(page: &mut Page, volume: &FileSystem) {
    let repairs = &volume.counts().repairs;
    page.counter("weft_repair_sets_total", "Chunk sets that were made whole.").count(&[], repairs.sets());
    page.counter("weft_repair_stripes_total", "Stripes of them.").count(&[], repairs.stripes());
    page.counter("weft_repair_bytes_total", "Bytes of blocks that were rebuilt.").count(&[], repairs.bytes());
    let by_stores = "Those of them that stores made themselves.";
    page.counter("weft_repair_by_stores_bytes_total", by_stores).count(&[], repairs.by_stores());
    let failures = "Chunk sets that could not be made whole.";
    page.counter("weft_repair_failures_total", failures).count(&[], repairs.failures());
    let running = repairs.running();
    page.gauge("weft_repairs_running", "Repairs that go on.").count(&[], running.len() as u64);
    let left = running.iter().map(|repair| repair.bytes.saturating_sub(repair.bytes_done)).sum();
    page.gauge("weft_repair_left_bytes", "Bytes of blocks that they have still to make, about.").count(&[], left);
}
