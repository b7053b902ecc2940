//! `weft bench energy`: the energy study's experiment, whole (S1 to S6). Seven methods and three
//! wide workloads, each job from a file on a source device to chunk files on a destination device,
//! and back with losses; reading and writing without coding; and what three years of it cost.

mod args;
mod csv;
mod measure;
mod result;
mod study;
mod tables;

pub use args::Args;
pub use csv::csv;
pub use result::Measurement;
pub use tables::{html, text};

use archive::energy::Choice;

/// Runs the experiment.
///
/// # Errors
/// When a kernel does not run here, a directory cannot be written, or a job fails.
pub fn run(args: &Args, choice: &Choice) -> Result<Measurement, String> {
    measure::measure(args, choice)
}

#[cfg(test)]
mod tests {
    use super::result::{Copied, Job, Pair, Took};
    use super::*;
    use plan::energy::{Basis, Split};

    fn took(seconds: f64) -> Took {
        let split = Split { idle_joules: 60.0 * seconds, io_joules: seconds, coding_joules: 4.0 * seconds };
        let (user_seconds, system_seconds) = (seconds / 2.0, seconds / 4.0);
        let joules = split.joules();
        Took { seconds, user_seconds, system_seconds, joules, basis: Basis::Modelled, split: Some(split) }
    }

    fn measurement() -> Measurement {
        let args = Args {
            from: vec!["/disk".into(), "/flash".into()],
            to: vec![],
            bytes: Some(40_000_000_000),
            rounds: None,
            simd: None,
            quick: false,
            json_file: None,
            csv: None,
            html: None,
        };
        let pairs = args.pairs();
        let mut jobs = vec![];
        for (pair, it) in pairs.iter().enumerate() {
            for (k, m) in study::SHAPES {
                for method in study::METHODS.iter().filter(|method| it.is_whole() || method.name == "EC2-A") {
                    let slow = if method.simd { 1.0 } else { 10.0 };
                    let encode = took(slow * (10.0 - pair as f64));
                    let decode = it.is_whole().then_some(encode);
                    let (code, kernel) = (format!("{}:{k}+{m}", method.family), "plain");
                    jobs.push(Job { pair, method: method.name, what: method.what, code, kernel, k, m, encode, decode });
                }
            }
        }
        let copy = |pair, objects, object_bytes, seconds| Copied { pair, objects, object_bytes, took: took(seconds) };
        let unit = args.bytes();
        Measurement {
            weft: "1.0.0",
            date: "now".into(),
            processor: "a processor".into(),
            cores: 2,
            quick: false,
            rounds: 3,
            bytes: unit,
            simd: "ssse3",
            energy: "modelled: 60 W idle and 6 W a busy core, assumed".into(),
            basis: Basis::Modelled,
            refused: vec![],
            pairs,
            copies: vec![copy(0, 1, unit, 5.0), copy(0, 1, 6 * unit, 33.0), copy(0, 6, unit, 30.0)],
            jobs,
        }
    }

    #[test]
    fn destinations_are_the_sources_and_every_pair_is_there() {
        let names: Vec<String> = measurement().pairs.iter().map(Pair::name).collect();
        assert_eq!(names, ["/disk", "/disk to /flash", "/flash to /disk", "/flash"]);
    }

    /// By hand: SIMD takes a tenth of plain. 65 J a second; EC2-A at 160+80 on the disk takes 650 J
    /// for 40 GB: 3 million times that for 120 PB is 541.7 kWh or 57.96 dollars. Copying 40 GB
    /// takes 325 J; three copies read once and write thrice, so twice that.
    #[test]
    fn the_text_has_reductions_shares_pairs_and_years_beside_the_published() {
        let shown = text(&measurement());
        let line = |words: &[&str]| {
            let found = shown.lines().find(|line| words.iter().all(|word| line.contains(word)));
            found.unwrap_or_else(|| panic!("no line has {words:?} in:\n{shown}"))
        };
        line(&["160+80", "EC1-A to EC2-A", "-90.0 %", "-90.01 % (disk), -56.02 % (flash)"]);
        line(&["/flash", "160+40", "EC1-B to EC2-B", "-28.19 % (flash)"]);
        line(&["160+80", "EC2-A", "1.5 %", "6.2 %", "92.3 %", "10 / 11 / 79 %"]);
        line(&["/disk to /flash", "160+80", "-10.0 %", "-24.15 %"]);
        line(&["/disk", "160+80", "EC2-A", "58.0", "-90.0 %", "-67.25 to -84.95 %"]);
        line(&["3 copies", "58.0"]);
        line(&["6 x 40.0 GB", "30", "485 s"]);
    }

    #[test]
    fn the_page_and_the_lines_have_every_measurement() {
        let measurement = measurement();
        let lines = csv(&measurement);
        let width = lines.lines().next().unwrap().split(',').count();
        assert!(lines.lines().all(|line| line.split(',').count() == width));
        let jobs = measurement.jobs.iter().map(|job| 1 + usize::from(job.decode.is_some())).sum::<usize>();
        assert_eq!(lines.lines().count(), 1 + measurement.copies.len() + jobs);
        let page = html(&measurement);
        for word in ["EC1-C", "160+32", "/flash to /disk", "modelled", "</html>"] {
            assert!(page.contains(word), "{word}");
        }
    }
}
