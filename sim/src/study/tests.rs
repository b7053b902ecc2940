use super::*;

fn options() -> Options {
    let setting = Setting { file_bytes: 1 << 30, ..Setting::default() };
    Options { servers: vec![8, 16], seeds: 2, setting, ..Options::default() }
}

#[test]
fn all_bytes_are_somewhere_and_nobody_is_faster_than_the_disks() {
    let study = study(&options()).unwrap();
    assert_eq!(study.comparisons.len(), 4);
    for comparison in &study.comparisons {
        let writers = comparison.servers + if comparison.unbalanced { comparison.servers / 2 } else { 0 };
        for outcome in &comparison.outcomes {
            let blocks = writers as f64 * (1u64 << 30) as f64 * 8.0 / 6.0;
            let space = outcome.space.iter().sum::<u64>() as f64;
            assert!((space / blocks - 1.0).abs() < 1e-6, "{outcome:?}");
            // A fast node is twice as fast at most.
            assert!(outcome.bytes_per_second < 2.0 * 0.75 * 100e6 * comparison.servers as f64);
        }
    }
}

/// What the paper's figures 8 and 9 have: +13 % over round-robin and +39 % over random, with space
/// nearly even; with some margin, as a processor whose `exp` differs in the last bit has another
/// run. Its +42 % over random with an unbalanced load (figure 10) is not reached.
#[test]
fn adaptive_placement_gains_what_the_paper_says() {
    let study = study(&Options { servers: vec![32], seeds: 8, ..Options::default() }).unwrap();
    let adaptive = |unbalanced: usize| &study.comparisons[unbalanced].outcomes[0];
    let (balanced, unbalanced) = (adaptive(0), adaptive(1));
    assert!(balanced.over_round_robin > 0.13 && balanced.over_random > 0.36, "{balanced:?}");
    assert!(unbalanced.over_round_robin > 0.23 && unbalanced.over_random > 0.1, "{unbalanced:?}");
    assert!(balanced.uneven < 0.06 && unbalanced.uneven < 0.06, "{} {}", balanced.uneven, unbalanced.uneven);
}

/// With as many servers as blocks, each stripe is on all of them: space is even whatever chooses.
#[test]
fn eight_servers_have_the_same_space() {
    let study = study(&Options { servers: vec![8], ..options() }).unwrap();
    let uneven = study.comparisons.iter().flat_map(|it| &it.outcomes).map(|it| it.uneven);
    assert!(uneven.into_iter().all(|uneven| uneven < 1e-6));
}

#[test]
fn threads_change_nothing_and_seeds_do() {
    let with = |threads, seed| study(&Options { threads, seed, servers: vec![16], ..options() }).unwrap();
    assert_eq!(with(1, 1), with(4, 1));
    assert_ne!(with(1, 1), with(1, 2));
}

#[test]
fn a_report_names_all_policies_and_the_paper() {
    let options = Options { servers: vec![32], seeds: 1, ..options() };
    let study = study(&options).unwrap();
    let text = text(&study);
    assert!(Policy::ALL.iter().all(|policy| text.contains(policy.name())) && text.contains("+12.9 %"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    let page = html(&study);
    assert!(page.matches("<svg").count() == 4 && !page.contains("http") && !page.contains("NaN"));
}

#[test]
fn what_has_no_meaning_is_refused() {
    for servers in [vec![], vec![7], vec![5000]] {
        assert!(study(&Options { servers, ..options() }).unwrap_err().contains("servers"));
    }
    assert!(study(&Options { seeds: 0, ..options() }).is_err());
    let setting = Setting { report_seconds: 0.0, ..Setting::default() };
    assert!(study(&Options { setting, ..options() }).unwrap_err().contains("above 0"));
}
