use super::*;
use plan::placement::PolicyName;

fn round(mib_per_second: f64, stores: [u64; 4]) -> Round {
    let (seconds, sets) = (2.0, 12);
    let bytes = (mib_per_second * seconds * f64::from(1 << 20)) as u64;
    Round { bytes, seconds, sets, lacking: 1, stores: stores.map(|mib| mib << 20).to_vec() }
}

/// Two policies in two rounds, with a store slowed.
fn fixed() -> Measurement {
    let slowed = Scenario {
        load: Load::Unbalanced,
        slowed: 1,
        policies: vec![
            Reached {
                policy: PolicyName::Adaptive,
                rounds: vec![round(30.0, [30, 90, 100, 100]), round(34.0, [40, 100, 100, 120])],
            },
            Reached { policy: PolicyName::RoundRobin, rounds: vec![round(15.0, [50; 4]), round(20.0, [60; 4])] },
        ],
    };
    Measurement {
        kind: KIND.into(),
        version: VERSION,
        date: "2026-11-27 02:00:00 UTC".into(),
        machine: "a <fixed> machine, 2 cores".into(),
        program: "0.0".into(),
        quick: true,
        stores: 4,
        disks: 2,
        code: "rs:2+2".into(),
        clients: 2,
        seconds: 2.0,
        chunk_bytes: 1 << 20,
        stripe_bytes: 1 << 19,
        held: Some(Held { how: How::Net, to: 25e6 }),
        slow_to: 0.25,
        scenarios: vec![slowed],
    }
}

#[test]
fn ratios_are_of_the_same_rounds_and_spread_is_of_the_median() {
    let result = fixed();
    let [adaptive, round_robin] = &result.scenarios[0].policies[..] else { panic!("two policies") };
    // 30/15 and 34/20.
    assert!((adaptive.ratio(round_robin) - 1.85).abs() < 1e-6, "{}", adaptive.ratio(round_robin));
    assert!((round_robin.spread() - 5.0 / 17.5).abs() < 1e-6);
    // 30 of 80 and 40 of 90; 100 of 80 and 120 of 90.
    let (least, most) = adaptive.evenness();
    assert!((least - (30.0 / 80.0 + 40.0 / 90.0) / 2.0).abs() < 1e-6, "{least}");
    assert!((most - (100.0 / 80.0 + 120.0 / 90.0) / 2.0).abs() < 1e-6, "{most}");
    assert_eq!(adaptive.stores(), [70, 190, 200, 220].map(|mib| mib << 20));
    assert_eq!(adaptive.sets(), (12.0, 1.0));
}

#[test]
fn the_text_says_whose_figures_are_whose() {
    let said = text(&fixed());
    for words in [
        "unbalanced load: half of the clients have a second writer; 1 of 4 stores slowed to 25 %",
        "4 stores of 2 targets, rs:2+2, 2 clients, chunks of 1 MiB, stripes of 512 KiB, 2 s of writing; the link of a",
        "25.0 MB/s",
        "the paper's adaptive",
        "1.85x",
        "MiB on each store, adaptive:    70 190 200 220",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(said.lines().all(|line| line.chars().count() <= 120), "{said}");
    let paper = said.lines().find(|line| line.contains("the paper's adaptive")).unwrap();
    assert!(paper.contains("1.227x") && paper.contains("1.420x"), "{paper}");
}

#[test]
fn the_figures_as_lines() {
    let lines = csv(&fixed());
    let fields = |line: &str| line.split(',').map(str::to_owned).collect::<Vec<_>>();
    let all: Vec<Vec<String>> = lines.lines().map(fields).collect();
    assert!(all.len() == 3 && all.iter().all(|line| line.len() == all[0].len()), "{lines}");
    assert!(lines.contains("\nunbalanced,1,adaptive,2,32.00,12.50,1.8500,,"), "{lines}");
    assert!(lines.contains(",1.227,1.420,73400320,"), "{lines}");
    let round_robin = lines.lines().nth(2).unwrap();
    assert!(round_robin.contains(",,,115343360,"), "the paper has no figure of it alone: {round_robin}");
}

#[test]
fn the_page_needs_nothing_from_elsewhere() {
    let page = html(&fixed());
    for outside in ["http:", "https:", "<script", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(page.contains("a &lt;fixed&gt; machine") && !page.contains("<fixed>"));
    assert!(page.contains("store 1, slowed") && page.contains("+22.7 %"));
}

#[test]
fn a_result_can_be_read_again() {
    let text = serde_json::to_string(&fixed()).unwrap();
    assert_eq!(serde_json::from_str::<Measurement>(&text).unwrap(), fixed());
    assert!(text.contains(r#""policy":"round-robin""#) && text.contains(r#""load":"unbalanced""#), "{text}");
}
