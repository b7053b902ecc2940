//! Disks that have lost everything, or are other ones now.

use super::*;
use volume::target::ReadAt;

/// A holder renews its claim at a mirror that is another disk now, and dies. `cargo xtask model
/// --broken blank` found it.
#[test]
fn a_renewal_does_not_make_a_blank_disk_count() {
    let (disks, time) = leased(3);
    drop(Journaled::create(named("creator", &disks.see(), 1)).unwrap());
    // The last head on disk 1 does not list disk 2.
    let seen = disks.see();
    seen.cut(2, true);
    let earlier = Journaled::open(named("earlier", &seen, 1)).unwrap();
    add_durably(&earlier, 0).unwrap();
    drop(earlier);
    let seen = disks.see();
    seen.cut(1, true);
    let holder = Journaled::open(Options { lease: LEASE, ..named("a", &seen, 1) }).unwrap();
    add_durably(&holder, 1).unwrap();
    // It can copy nothing to that disk.
    seen.cut(0, true);
    disks.0[2].lose();
    while claim_of(&disks.0[2]).claim.is_none() {
        std::thread::yield_now();
    }
    seen.cut_all();
    drop(holder);
    *time.lock().unwrap() += Duration::from_secs(31);
    for access in [Access::Read, Access::Write] {
        let late = disks.see();
        late.cut(0, true);
        let opened = Journaled::open(Options { access, ..named("b", &late, 1) });
        assert!(matches!(opened, Err(KvError::TooFew(_))), "{opened:?}");
    }
    let opened = Journaled::open(named("c", &disks.see(), 1)).unwrap();
    assert_eq!(numbers(&opened), [0, 1].into());
}

/// Waits until a disk counts.
fn wait_until_it_counts(disk: &Memory) {
    while claim_of(disk).proof().is_none() {
        std::thread::yield_now();
    }
}

/// A mirror is another disk now. A renewal finds that, and it gets everything once more.
#[test]
fn a_mirror_that_is_blank_counts_when_it_has_everything() {
    let (disks, time) = leased(3);
    let seen = disks.see();
    let holder = Journaled::create(Options { lease: LEASE, ..named("a", &seen, 1) }).unwrap();
    for lost in [2, 0, 1] {
        add_durably(&holder, lost as u64).unwrap();
        disks.0[lost].lose();
        wait_until_it_counts(&disks.0[lost]);
    }
    seen.cut_all();
    drop(holder);
    *time.lock().unwrap() += Duration::from_secs(31);
    for away in 0..3 {
        let late = disks.see();
        late.cut(away, true);
        let opened = Journaled::open(Options { access: Access::Read, ..named("b", &late, 1) }).unwrap();
        assert_eq!(numbers(&opened), (0..3).collect(), "without {away}");
    }
}

/// A disk that is no mirror is another one now, and needs nothing as long as the mirrors are whole.
#[test]
fn a_blank_disk_that_is_no_mirror_counts_as_long_as_enough_others_have_everything() {
    for leases in [true, false] {
        let (disks, time) = leased(5);
        let lease = LEASE.filter(|_| leases);
        let seen = disks.see();
        let holder = Journaled::create(Options { lease, ..named("a", &seen, 1) }).unwrap();
        add_durably(&holder, 1).unwrap();
        let mirrors = holder.status().mirrors;
        let other = (0..5).rfind(|id| !mirrors.contains(&TargetId(*id))).unwrap();
        disks.0[usize::from(other)].lose();
        if leases {
            wait_until_it_counts(&disks.0[usize::from(other)]);
        }
        seen.cut_all();
        drop(holder);
        *time.lock().unwrap() += Duration::from_secs(31);
        let opened = Journaled::open(named("b", &disks.see(), 1)).unwrap();
        assert_eq!(numbers(&opened), [1].into());
        // Without leases nobody claims it before the next opening has m+1 mirrors.
        assert!(claim_of(&disks.0[usize::from(other)]).proof().is_some());
        drop(opened);
        let late = disks.see();
        late.cut(usize::from(mirrors[0].0), true);
        assert_eq!(numbers(&Journaled::open(named("c", &late, 1)).unwrap()), [1].into());
    }
}

/// Two openings, each without one disk, have the third one in common. It is fenced by the later
/// one, and is another disk now: the fence is lost with it. The earlier opening must not count it,
/// or both would answer. `cargo xtask model --broken fresh` and `--broken renewal` find it.
#[test]
fn a_fence_that_is_lost_with_a_disk_lets_no_earlier_opening_answer() {
    for lease in [None, LEASE] {
        let (disks, time) = leased(3);
        let one = disks.see();
        let first = Journaled::create(Options { lease, ..named("first", &one, 1) }).unwrap();
        add_durably(&first, 1).unwrap();
        one.cut(1, true);
        add_durably(&first, 2).unwrap();
        *time.lock().unwrap() += Duration::from_secs(31);
        let other = disks.see();
        other.cut(0, true);
        // No renewal shows the first one that it is fenced.
        one.cut(2, true);
        let second = Journaled::open(named("second", &other, 1)).unwrap();
        assert_eq!(numbers(&second), [1, 2].into());
        disks.0[2].lose();
        one.cut(2, false);
        // A renewal may reach it first.
        while lease.is_some() && claim_of(&disks.0[2]).claim.is_none() && first.status().whole > 1 {
            std::thread::yield_now();
        }
        let refused = add_durably(&first, 3);
        assert!(matches!(refused, Err(KvError::Unavailable(_))), "{lease:?}: {refused:?}");
        drop(first);
        // With the first one's disk the second one goes on, when the lease there is over.
        *time.lock().unwrap() += Duration::from_secs(31);
        other.cut(0, false);
        let seq = add(&second, 4).unwrap();
        while second.sync(seq).is_err() {
            std::thread::yield_now();
        }
        wait_until_it_counts(&disks.0[2]);
        drop(second);
        for away in 0..3 {
            let late = disks.see();
            late.cut(away, true);
            let opened = Journaled::open(Options { access: Access::Read, ..named("third", &late, 1) }).unwrap();
            let there = numbers(&opened);
            assert!(there.is_superset(&[1, 2, 4].into()) && !there.contains(&3), "without {away}: {there:?}");
        }
    }
}

/// What is left is a mirror that did not get everything. Only who accepts a loss reads it.
#[test]
fn a_blank_disk_is_used_when_a_loss_is_accepted() {
    let disks = Disks::new(3);
    let kv = Journaled::create(named("a", &disks.see(), 1)).unwrap();
    (0..5).for_each(|n| add_durably(&kv, n).unwrap());
    kv.close().unwrap();
    drop(kv);
    // As if it had been claimed after a loss, and copied since.
    let (held, blank) = (claim_of(&disks.0[1]).claim.unwrap(), Memory::default());
    blank.claim(&ClaimRequest::Take { claim: held, lease: Duration::ZERO, blank: 7 }).unwrap();
    for (file, bytes) in disks.0[1].list().unwrap() {
        let mut content = vec![0; bytes as usize];
        disks.0[1].read_at(file, 0, &mut content).unwrap();
        blank.write(file, 0, &[IoSlice::new(&content)], Durable::Later).unwrap();
    }
    let mut disks = disks;
    disks.0[1] = blank;
    let left = || {
        let seen = disks.see();
        [0, 2].iter().for_each(|&number| seen.cut(number, true));
        seen
    };
    for access in [Access::Read, Access::Write] {
        let opened = Journaled::open(Options { access, ..named("b", &left(), 1) });
        assert!(matches!(opened, Err(KvError::TooFew(_))), "{opened:?}");
    }
    let kv = Journaled::open(Options { accept_loss: true, ..named("b", &left(), 1) }).unwrap();
    assert_eq!(numbers(&kv), (0..5).collect());
    assert!(claim_of(&disks.0[1]).proof().is_some());
}
