//! The study's formulas (S3): T_total = T_ec + T_io + T_etc and P_total = P_idle T_total + P_rw
//! T_io + P_ec T_ec, forwards to predict and backwards to say what a measured job's energy was
//! spent on.
//!
//! The study writes P for joules where it says P_total and for watts elsewhere, and its phase 4
//! adds P_rw T_io where the equation above subtracts it. Here joules are joules, and the equation
//! is solved.

use super::Split;
use serde::{Deserialize, Serialize};

/// Powers of a machine, in watts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Constants {
    /// P_idle: doing nothing, ready for work.
    pub idle_watts: f64,
    /// P_rw: what one stream that reads and writes draws above that.
    pub read_write_watts: f64,
    /// P_ec: what one core that codes draws above idle.
    pub coding_watts: f64,
}

/// Times of a job, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// T_total: by the clock on the wall.
    pub total_seconds: f64,
    /// T_io: reading and writing, summed over all that do.
    pub io_seconds: f64,
    /// T_ec: coding, summed over all cores.
    pub coding_seconds: f64,
}

impl Times {
    /// T_etc: what was neither. Nothing where coding, reading and writing overlapped.
    pub fn other_seconds(&self) -> f64 {
        (self.total_seconds - self.io_seconds - self.coding_seconds).max(0.0)
    }
}

/// What a job of such times takes on such a machine: P_total by its three terms.
pub fn total(constants: &Constants, times: &Times) -> Split {
    Split {
        idle_joules: constants.idle_watts * times.total_seconds,
        io_joules: constants.read_write_watts * times.io_seconds,
        coding_joules: constants.coding_watts * times.coding_seconds,
    }
}

/// What a job's energy was spent on: P_idle T_total for being on, P_rw T_io for reading and
/// writing, and what is left for coding. A term never takes more than is left, so that the three
/// always are the whole.
pub fn attribute(joules: f64, constants: &Constants, times: &Times) -> Split {
    let all = joules.max(0.0);
    let expected = total(constants, times);
    let idle_joules = expected.idle_joules.clamp(0.0, all);
    let io_joules = expected.io_joules.clamp(0.0, all - idle_joules);
    Split { idle_joules, io_joules, coding_joules: all - idle_joules - io_joules }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MACHINE: Constants = Constants { idle_watts: 100.0, read_write_watts: 10.0, coding_watts: 25.0 };
    const JOB: Times = Times { total_seconds: 60.0, io_seconds: 20.0, coding_seconds: 30.0 };

    #[test]
    fn a_job_takes_the_sum_of_the_three_terms() {
        let split = total(&MACHINE, &JOB);
        assert_eq!((split.idle_joules, split.io_joules, split.coding_joules), (6000.0, 200.0, 750.0));
        assert_eq!((split.joules(), JOB.other_seconds()), (6950.0, 10.0));
        assert_eq!(attribute(6950.0, &MACHINE, &JOB), split, "backwards is the inverse of forwards");
    }

    /// Table 4 of the study: shares in percent of I/O, coding and idling, for EC1-A and EC2-A on
    /// disks. Each row is made of the powers and times that give it, and is found again from the
    /// sum.
    #[test]
    fn the_published_shares_come_out_of_the_equation() {
        let rows = [(1, 13, 86), (2, 8, 90), (2, 6, 92), (10, 11, 79), (13, 9, 78), (16, 7, 77)];
        for (io, coding, idle) in rows.map(|(a, b, c)| (f64::from(a), f64::from(b), f64::from(c))) {
            let times = Times { total_seconds: 100.0, io_seconds: 40.0, coding_seconds: 50.0 };
            let machine = Constants {
                idle_watts: idle / times.total_seconds,
                read_write_watts: io / times.io_seconds,
                coding_watts: coding / times.coding_seconds,
            };
            let shares = attribute(total(&machine, &times).joules(), &machine, &times).shares();
            for (share, published) in shares.into_iter().zip([idle, io, coding]) {
                assert!((share * 100.0 - published).abs() < 1e-9, "{share} is not {published} %");
            }
        }
    }

    /// The study's conclusion (S6): the same work in a tenth of the time takes less, because idling
    /// is most of it.
    #[test]
    fn the_shorter_job_is_the_cheaper_one() {
        let slow = Times { total_seconds: 1000.0, io_seconds: 80.0, coding_seconds: 900.0 };
        let fast = Times { total_seconds: 100.0, io_seconds: 80.0, coding_seconds: 15.0 };
        let [slow, fast] = [slow, fast].map(|times| total(&MACHINE, &times));
        assert!(slow.shares()[0] > 0.77 && slow.shares()[0] < 0.92);
        assert!(fast.joules() < 0.13 * slow.joules());
    }

    #[test]
    fn nothing_has_no_shares() {
        assert_eq!(attribute(0.0, &MACHINE, &JOB).shares(), [0.0; 3]);
        assert_eq!(attribute(-5.0, &MACHINE, &JOB).joules(), 0.0);
    }

    proptest! {
        /// Whatever the constants say, no part is negative and the parts are the whole.
        #[test]
        fn parts_are_the_whole(joules in 0.0..1e9, idle in 0.0..1e4, io in 0.0..1e4, t in 0.0..1e5, t_io in 0.0..1e6) {
            let machine = Constants { idle_watts: idle, read_write_watts: io, coding_watts: 5.0 };
            let times = Times { total_seconds: t, io_seconds: t_io, coding_seconds: 1.0 };
            let split = attribute(joules, &machine, &times);
            prop_assert!(split.idle_joules >= 0.0 && split.io_joules >= 0.0 && split.coding_joules >= 0.0);
            prop_assert!((split.joules() - joules).abs() <= 1e-6 * joules.max(1.0));
        }
    }
}
