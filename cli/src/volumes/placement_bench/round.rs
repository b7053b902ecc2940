//! A round: a new cluster, clients that write, and what the stores have then.

use super::arguments::{Arguments, Sizes};
use super::hold::Hold;
use super::writer::Writer;
use crate::failure::Failure;
use crate::volumes::bench_lab::{Front, PLACEMENT, Setup as Cluster, Stage};
use bench::placement::{Load, Round};
use plan::coding::Coding;
use plan::placement::PolicyName;
use serde_json::Value;
use volume::Control;

/// What is done in a round.
pub struct Setup<'a> {
    pub policy: PolicyName,
    pub load: Load,
    /// How many stores are slowed.
    pub slowed: u32,
    pub sizes: &'a Sizes,
    /// Another one for each round.
    pub number: u32,
}

/// Carries out a round.
pub fn run(arguments: &Arguments, setup: &Setup, hold: &Hold, control: &Control) -> Result<Round, Failure> {
    let create: Vec<String> =
        ["--placement", &setup.policy.to_string(), "--chunk-bytes", &setup.sizes.chunk_bytes.to_string()]
            .map(String::from)
            .into();
    let cluster = Cluster {
        front: Front::Server,
        code: &arguments.code,
        create: &create,
        kernel: None,
        coding: Coding::Client,
        stores: arguments.stores,
        disks: arguments.disks,
        own_disks: hold.has_disks(),
        embedded: false,
        stripe_bytes: None,
        channels: None,
        master: None,
    };
    let place = hold.place().join(format!("{PLACEMENT}{}-{}", std::process::id(), setup.number));
    hold.make_ready()?;
    let stage = Stage::set(&place, &cluster, hold.lab())?;
    let client = |number: u32| {
        // The second half of the clients has two, so that a single client has one.
        let has_two = setup.load == Load::Unbalanced && number >= arguments.clients.div_ceil(2);
        Writer::start(&stage, hold.lab(), number, if has_two { 2 } else { 1 }, setup.sizes)
    };
    let mut writers: Vec<Writer> = (0..arguments.clients).map(client).collect::<Result<_, _>>()?;
    hold.hold(setup.slowed, &stage)?;
    writers.iter_mut().try_for_each(Writer::go)?;
    let (mut bytes, mut seconds) = (0, 0.0f64);
    for writer in writers {
        let written = writer.wait(control)?;
        bytes += written.bytes;
        seconds = seconds.max(written.seconds);
    }
    let status = stage.status()?;
    let number = |name: &str| status[name].as_u64().unwrap_or(0);
    Ok(Round {
        bytes,
        seconds,
        sets: number("chunk_sets"),
        lacking: number("chunk_sets_to_repair"),
        stores: stores(&status, arguments.stores),
    })
}

/// The bytes of chunks on each store. A target is called as the bench made it: `disk3-1` is of the
/// third.
fn stores(status: &Value, stores: u32) -> Vec<u64> {
    let mut all = vec![0; stores as usize];
    for target in status["targets"].as_array().into_iter().flatten() {
        let name = target["path"].as_str().and_then(|path| path.rsplit_once("/disk")).map_or("", |(_, name)| name);
        let number = name.split('-').next().and_then(|number| number.parse::<usize>().ok());
        if let Some(bytes) = number.and_then(|number| all.get_mut(number.wrapping_sub(1))) {
            *bytes += target["bytes"].as_u64().unwrap_or(0);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn targets_are_of_their_stores() {
        let target = |path: &str, bytes: u64| json!({ "path": path, "bytes": bytes });
        let status = json!({ "targets": [
            target("store://127.77.0.3:7700/disk1-1", 1),
            target("store://127.77.0.3:7700/disk1-2", 2),
            target("store://127.77.0.4:7700/disk2-1", 4),
            target("store://127.77.0.9:7700/disk9", 8),
            target("elsewhere", 16),
        ] });
        assert_eq!(stores(&status, 3), [3, 4, 0]);
    }
}
