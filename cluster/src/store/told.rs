//! Reads what a store tells of itself. A metadata server reads thousands of reports in a second,
//! and each says the same names as the one before: so it is read over an earlier report, in whose
//! memory it has place.

use plan::report::{Report, TargetReport, Ticks, Work};
use serde::Deserialize;
use std::time::Duration;

/// What comes before the targets of a report, and their number.
type Head = (Duration, Ticks, u64, u64, u32, u64, usize);
/// A target of a report.
type Told<'a> = (&'a str, Option<(u64, u64)>, u64, u32);

/// Takes a part of a message from its beginning.
fn take<'a, T: Deserialize<'a>>(told: &mut &'a [u8]) -> Result<T, String> {
    let (part, rest) = postcard::take_from_bytes(told).map_err(|_| "it told what cannot be read".to_owned())?;
    *told = rest;
    Ok(part)
}

/// Reads a report and what a store tells behind it over earlier ones, as postcard reads them.
///
/// # Errors
/// When it cannot be read. What was there is undefined then.
pub(super) fn read_over(mut told: &[u8], report: &mut Report, work: &mut Work) -> Result<(), String> {
    let told = &mut told;
    let head: Head = take(told)?;
    (report.uptime, report.processor, report.received_bytes) = (head.0, head.1, head.2);
    (report.sent_bytes, report.connections, report.request_bytes) = (head.3, head.4, head.5);
    for number in 0..head.6 {
        let (name, space, accesses, queued): Told<'_> = take(told)?;
        if report.targets.len() <= number {
            report.targets.push(TargetReport::default());
        }
        let target = &mut report.targets[number];
        if target.name != name {
            name.clone_into(&mut target.name);
        }
        (target.space, target.accesses, target.queued) = (space, accesses, queued);
    }
    report.targets.truncate(head.6);
    work.waited.clear();
    work.writes.clear();
    (work.coded_stripes, work.coded_bytes) = (0, 0);
    // An older store says nothing more.
    if told.is_empty() {
        return Ok(());
    }
    let (stripes, bytes, count): (u64, u64, usize) = take(told)?;
    (work.coded_stripes, work.coded_bytes) = (stripes, bytes);
    for _ in 0..count {
        work.waited.push(take(told)?);
    }
    if told.is_empty() {
        return Ok(());
    }
    let count: usize = take(told)?;
    for _ in 0..count {
        work.writes.push(take(told)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(random: &mut fastrand::Rng) -> (Report, Work) {
        let any = |random: &mut fastrand::Rng| random.u64(..) >> random.u32(0..64);
        let targets = random.usize(0..5);
        let target = |random: &mut fastrand::Rng| TargetReport {
            name: format!("disk{}", random.u8(0..4)),
            space: random.bool().then(|| (any(random), any(random))),
            accesses: any(random),
            queued: any(random) as u32,
        };
        let report = Report {
            uptime: Duration::new(any(random) >> 1, random.u32(0..1_000_000_000)),
            processor: Ticks { idle: any(random), all: any(random) },
            received_bytes: any(random),
            sent_bytes: any(random),
            connections: any(random) as u32,
            request_bytes: any(random),
            targets: (0..targets).map(|_| target(random)).collect(),
        };
        let waited = (0..targets).map(|_| any(random)).collect();
        let writes = (0..targets).map(|_| (any(random), any(random))).collect();
        (report, Work { coded_stripes: any(random), coded_bytes: any(random), waited, writes })
    }

    #[test]
    fn what_is_read_over_another_is_what_postcard_reads() {
        let mut random = fastrand::Rng::with_seed(5);
        let (mut report, mut work) = (Report::default(), Work::default());
        for round in 0..500 {
            let (told, more) = told(&mut random);
            let mut bytes = postcard::to_stdvec(&told).unwrap();
            let old = bytes.len();
            bytes.extend(postcard::to_stdvec(&more).unwrap());
            read_over(&bytes, &mut report, &mut work).unwrap();
            assert_eq!((&report, &work), (&told, &more));
            // An older store tells no more.
            read_over(&bytes[..old], &mut report, &mut work).unwrap();
            assert_eq!((&report, &work), (&told, &Work::default()));
            let newer = bytes.len() - postcard::to_stdvec(&more.writes).unwrap().len();
            read_over(&bytes[..newer], &mut report, &mut work).unwrap();
            assert_eq!(work, Work { writes: Vec::new(), ..more.clone() });
            // Anything shorter cannot be read, and nothing of it is left in the next one.
            let end = round % bytes.len();
            if end != old && end != newer {
                assert!(read_over(&bytes[..end], &mut report, &mut work).is_err(), "{end} of {}", bytes.len());
            }
        }
        assert!(read_over(&[0xFF; 64], &mut report, &mut work).is_err());
    }
}
