//! What `weft bench write-cost` measured, as a file of figures and as a page: pure functions of the
//! result.

mod chart;
mod csv;
mod page;
mod streams;
mod study;

pub use csv::csv;
pub use page::html;
pub use streams::csv as stream_csv;
pub use study::{Published, published, published_loss};

#[cfg(test)]
mod tests {
    use super::*;
    use plan::coding::Coding;
    use plan::cost::measured::{KIND, Measurement, Network, Point, Round, VERSION};
    use plan::cost::streams::{Stream, StreamRound};
    use plan::cost::{Link, Way};

    /// Two networks that were measured, and one that could not be had.
    fn fixed() -> Measurement {
        let network = |name: &str, bits: Option<f64>, burst_bytes, reached: f64, reachable| Network {
            name: name.into(),
            bits_per_second: bits,
            burst_bytes,
            latency_seconds: 0.0,
            plain_bits_per_second: 16e9,
            reached_bits_per_second: reached,
            reachable,
        };
        let point = |net: &str, record_bytes, way, wall: f64, counted: [f64; 7]| Point {
            net: Some(net.into()),
            code: "rs:4+2".into(),
            k: 4,
            m: 2,
            coding: Coding::Client,
            embedded: false,
            record_bytes,
            stores: None,
            way,
            count: 1000,
            rounds: vec![
                Round { wall, counted, kernel: 0.03 },
                Round { wall: wall * 1.1, counted: counted.map(|time| time * 1.1), kernel: 0.03 },
            ],
        };
        let networks = vec![
            network("1G", Some(1e9), 3028, 0.95e9, true),
            network("none", None, 0, 16e9, true),
            network("40G", Some(4e10), 0, 16e9, false),
        ];
        let points = vec![
            point("1G", 4096, Way::Inline, 0.9, [0.05, 0.1, 0.0, 0.0, 0.0, 0.35, 0.35]),
            point("1G", 131_072, Way::Stripe, 3.2, [0.2, 0.2, 0.0, 0.05, 0.02, 2.1, 0.6]),
            point("none", 131_072, Way::Stripe, 1.5, [0.2, 0.2, 0.0, 0.05, 0.02, 0.4, 0.6]),
        ];
        Measurement {
            kind: KIND.into(),
            version: VERSION,
            date: "2026-11-25 12:00:00 UTC".into(),
            machine: "a <fixed> machine, 2 cores".into(),
            program: "0.0".into(),
            stores: 6,
            link: Link::default(),
            networks,
            points,
            streams: [("none:4+2", None, 1.0), ("rs:4+2", None, 1.02), ("rs:4+2", Some("naive"), 1.5)]
                .into_iter()
                .flat_map(|(code, kernel, wall)| [1, 10].map(|threads| stream(code, kernel, threads, wall)))
                .collect(),
        }
    }

    fn stream(code: &str, kernel: Option<&str>, threads: u32, wall: f64) -> Stream {
        let round = |wall: f64| StreamRound {
            wall,
            counted: [0.3, 0.01, 0.0, 0.05, 0.1, 0.6, 1.4].map(|part| part * f64::from(threads).sqrt()),
            processors: [0.2, 0.6, 0.01, 0.5],
        };
        Stream {
            net: Some("none".into()),
            code: code.into(),
            kernel: kernel.map(str::to_owned),
            k: 4,
            m: 2,
            coding: Coding::Client,
            threads,
            record_bytes: 131_072,
            bytes: 512 << 20,
            rounds: vec![round(wall), round(1.1 * wall)],
        }
    }

    /// The files were looked at in a browser; `WEFT_GOLDEN=write` writes them again after a change.
    fn is_golden(name: &str, what: &str, expected: &str) {
        if std::env::var_os("WEFT_GOLDEN").is_some_and(|how| how == "write") {
            let place = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/write_cost/golden").join(name);
            std::fs::write(place, what).unwrap();
            return;
        }
        assert!(what == expected, "{name} is another one; WEFT_GOLDEN=write writes it");
    }

    #[test]
    fn the_figures_of_a_fixed_result() {
        is_golden("result.csv", &csv(&fixed()), include_str!("golden/result.csv"));
    }

    #[test]
    fn the_threads_of_a_fixed_result() {
        is_golden("streams.csv", &stream_csv(&fixed()), include_str!("golden/streams.csv"));
    }

    #[test]
    fn the_page_of_a_fixed_result() {
        let page = html(&fixed());
        is_golden("result.html", &page, include_str!("golden/result.html"));
        for outside in ["http:", "https:", "<script", "@import", "url("] {
            assert!(!page.contains(outside), "it needs nothing from elsewhere: {outside}");
        }
        assert!(page.contains("a &lt;fixed&gt; machine") && !page.contains("<fixed>"));
    }

    #[test]
    fn a_run_without_networks_and_one_without_points() {
        let mut loopback = fixed();
        loopback.networks.clear();
        loopback.points.truncate(1);
        loopback.points[0].net = None;
        assert!(csv(&loopback).contains("\nloopback,,,yes,rs:4+2,"));
        assert!(html(&loopback).contains("loopback"));
        let nothing = Measurement { points: Vec::new(), streams: Vec::new(), ..fixed() };
        assert!(html(&nothing).contains("not reachable"));
    }
}
