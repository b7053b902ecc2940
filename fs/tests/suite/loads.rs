//! How busy targets are, as a volume without servers counts it.

use crate::lab::{Lab, make, pattern};
use fs::{Placement, PolicyName};
use std::time::{Duration, Instant};
use volume::target::Faults;

#[test]
fn a_volume_without_servers_notices_its_slow_disk() {
    const SLOW: usize = 3;
    let mut lab = Lab::new("rs:2+1", 5);
    let fs = lab.open();
    fs.set_placement(Placement { policy: PolicyName::Adaptive, ..Placement::default() }).unwrap();
    lab.fault(SLOW, Faults { delay: Duration::from_millis(30), ..Faults::default() });
    let begun = Instant::now();
    for number in 0.. {
        let ino = make(&fs, &format!("f{number}"));
        fs.write(ino, 0, &pattern(number, 300_000)).unwrap();
        fs.sync_all().unwrap();
        // The next one goes to another chunk set.
        fs.set_placement(fs.placement()).unwrap();
        let status = fs.status().unwrap();
        let score = |number: usize| status.targets[number].score.unwrap();
        let queue = |number: usize| status.targets[number].load.map_or(0.0, |load| load.queue);
        let others: Vec<usize> = (0..5).filter(|&number| number != SLOW).collect();
        if others.iter().all(|&other| score(SLOW) < 0.95 * score(other) && queue(SLOW) > queue(other)) {
            break;
        }
        let seen: Vec<_> = (0..5).map(|number| (score(number), queue(number))).collect();
        assert!(begun.elapsed() < Duration::from_secs(300), "{seen:?}");
    }
    let bytes: u64 = fs.status().unwrap().targets.iter().map(|target| target.bytes).sum();
    assert!(bytes >= 450_000, "{bytes}");
    fs.close_volume().unwrap();
}
