//! What the processors of a machine did since its start, and for one process, from texts of Linux.

/// Processor time, in the ticks of the kernel (a hundredth of a second, as a rule).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Processors {
    /// Programs, the kernel, and interrupts.
    pub busy: u64,
    /// Idle, or waiting for a disk.
    pub idle: u64,
    /// Given to other virtual machines.
    pub stolen: u64,
}

impl Processors {
    /// Reads the first line: user, nice, system, idle, iowait, irq, softirq and steal. What guests
    /// used is in the first two. None when it is another text.
    pub fn parse(stat: &str) -> Option<Self> {
        let words = stat.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace().take(8);
        let ticks: Vec<u64> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
        let sum = |places: &[usize]| {
            places.iter().filter_map(|&at| ticks.get(at)).fold(0u64, |sum, ticks| sum.saturating_add(*ticks))
        };
        (ticks.len() > 3).then(|| Self { busy: sum(&[0, 1, 2, 5, 6]), idle: sum(&[3, 4]), stolen: sum(&[7]) })
    }

    /// All of it.
    pub fn all(&self) -> u64 {
        self.busy.saturating_add(self.idle).saturating_add(self.stolen)
    }
}

/// User and system time of a process in ticks, from the text of `/proc/PID/stat`. The name of the
/// program comes first and may contain anything, but no `)` follows it.
pub fn process_ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut words = rest.split_ascii_whitespace().skip(11);
    let user: u64 = words.next()?.parse().ok()?;
    Some(user.saturating_add(words.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_found_behind_any_name() {
        let stat = "77 (a) b (c)) S 1 77 77 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 4 0 1000 1 2";
        assert_eq!(process_ticks(stat), Some(300));
        assert_eq!((process_ticks(""), process_ticks("7 (a")), (None, None));
    }

    #[test]
    fn the_first_line_is_read_and_other_texts_are_not() {
        let found = Processors::parse("cpu  10 2 8 70 5 1 4 6 3 9\ncpu0 1 2 3 4 5 6 7 8 9 10\n").unwrap();
        assert_eq!((found, found.all()), (Processors { busy: 25, idle: 75, stolen: 6 }, 106));
        let old = Processors::parse("cpu  10 2 8 70\n").unwrap();
        assert_eq!(old, Processors { busy: 20, idle: 70, stolen: 0 });
        for bad in ["", "cpu", "intr 1 2 3 4 5 6", "cpu  1 2 3", "cpu  1 x 3 4 5", "cpu0 1 2 3 4"] {
            assert_eq!(Processors::parse(bad), None, "{bad:?}");
        }
        let most = Processors::parse(&format!("cpu  {0} {0} {0} {0} {0}", u64::MAX)).unwrap();
        assert_eq!(most.all(), u64::MAX);
    }
}
