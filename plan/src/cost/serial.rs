//! One record after the other, each synced: the steps add up.

use super::formulas::{StepTimes, distribution, transfer};
use super::setting::{Constants, Line, Link, Setting, Way};
use crate::coding::Coder;

/// The steps of one record as the paper writes it, equation (6): the client sends R to the Master
/// (LM), or codes itself; each slave gets its bytes over a link of its own (LS), and all are equal.
/// One round trip to the metadata server, to the Master and to the slaves.
///
/// It is too fast where one link carries the blocks of all slaves; [`steps`] counts that.
pub fn paper(constants: &Constants, setting: &Setting) -> StepTimes {
    let lm = match setting.coder {
        Coder::Here => 0.0,
        Coder::Master => setting.client_link.round_trip_seconds + setting.client_link.wire(setting.record()),
    };
    let slowness = vec![1.0; setting.slaves() as usize];
    let ls = setting.store_link.round_trip_seconds + setting.store_link.wire(setting.slave_bytes());
    let wire = StepTimes {
        metadata: setting.client_link.round_trip_seconds,
        transfer: transfer(1.0, lm),
        distribution: distribution(1.0, &slowness, ls),
        ..StepTimes::default()
    };
    sum(constants, setting, wire, 0.0)
}

/// The steps of one synced record. All blocks leave over the link of who codes, so DD is the time
/// of that link or of a slave's, whichever is longer. A stripe is sent, synced, and named in the
/// journal: three round trips of DD, one of MT. A record in the metadata goes to the metadata
/// server with its call (MT), and from there to the mirrors (DD). Each link was idle before: with
/// records one after the other, it has nothing to do while others work.
pub fn steps(constants: &Constants, setting: &Setting) -> StepTimes {
    let wire = wire(constants, setting);
    sum(constants, setting, wire, waiting(setting))
}

/// What the wire takes, beyond what sending takes the processors at the same time.
fn wire(constants: &Constants, setting: &Setting) -> StepTimes {
    let Setting { client_link, store_link, .. } = setting;
    let (record, sent) = (setting.record(), setting.distributed_bytes());
    let beyond = |link: &Link, bytes: f64| {
        let sending = constants.connection.map_or(0.0, |speed| bytes / speed);
        (link.wire_after_pause(bytes) - sending).max(0.0)
    };
    let arriving = beyond(store_link, setting.slave_bytes());
    let received = beyond(client_link, record).max(beyond(store_link, record));
    let trips = |count: f64| count * store_link.round_trip_seconds;
    let call = client_link.round_trip_seconds;
    match (setting.way, setting.coder) {
        (Way::Inline, _) => {
            let mirrored = beyond(store_link, sent);
            // The journal waits for all mirrors but one. The rest of that one's copy, half of it on
            // average, is still on the link when the next call is answered.
            let rest = mirrored.min(store_link.wire(record) / 2.0);
            StepTimes {
                metadata: call + received + rest,
                distribution: trips(1.0) + mirrored - rest,
                ..StepTimes::default()
            }
        }
        (Way::Stripe, Coder::Here) => StepTimes {
            metadata: call,
            distribution: 2.0 * call + trips(1.0) + beyond(client_link, sent).max(arriving),
            ..StepTimes::default()
        },
        (Way::Stripe, Coder::Master) => StepTimes {
            metadata: call,
            transfer: call + received,
            distribution: call + trips(2.0) + beyond(store_link, sent),
            ..StepTimes::default()
        },
    }
}

/// Waits for the wire that make half of what a long wait makes, in seconds.
const HALF_COLD: f64 = 0.001;

/// How much the processors wait for the wire while a record is written: 0 without a wire, and near
/// to 1 where the wire takes much longer than a processor keeps warm.
pub fn waiting(setting: &Setting) -> f64 {
    let wire = wire(&Constants::default(), setting).total();
    wire / (wire + HALF_COLD)
}

/// What the processors need for one record, without waiting for the wire.
pub(super) fn sum(constants: &Constants, setting: &Setting, wire: StepTimes, waiting: f64) -> StepTimes {
    let record = setting.record();
    let inline = setting.way == Way::Inline;
    let coded = |time: f64| if inline { 0.0 } else { time };
    let at = |line: &Line, bytes: f64| line.after(waiting, bytes);
    let distribution = constants.distribution;
    let distribution = Line { fixed: distribution.fixed * setting.messages(), ..distribution };
    StepTimes {
        client: at(&constants.client, record),
        metadata: at(&constants.metadata, record) + wire.metadata,
        transfer: match setting.coder {
            Coder::Master if !inline => at(&constants.transfer, record) + wire.transfer,
            _ => 0.0,
        },
        master: coded(at(&constants.master, record)),
        parity: coded(at(&constants.parity, record * f64::from(setting.m))),
        distribution: at(&distribution, setting.distributed_bytes()) + wire.distribution,
        slave: at(&constants.slave, setting.slave_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::setting::tests::USUAL;

    fn line(fixed: f64) -> Line {
        Line { fixed, ..Line::default() }
    }

    /// Each step has a time of its own.
    fn constants() -> Constants {
        Constants {
            client: line(1.0),
            metadata: line(2.0),
            transfer: line(4.0),
            master: line(8.0),
            parity: line(16.0),
            distribution: line(32.0),
            slave: line(64.0),
            connection: None,
        }
    }

    fn link(bytes_per_second: f64, round_trip_seconds: f64) -> Link {
        Link { bytes_per_second: Some(bytes_per_second), round_trip_seconds, burst_bytes: 0.0 }
    }

    #[test]
    fn constants_alone_where_the_network_takes_no_time() {
        let still = Setting { client_link: Link::default(), store_link: Link::default(), ..USUAL };
        for predict in [paper, steps] {
            let times = |way, coder| predict(&constants(), &Setting { way, coder, ..still }).as_array();
            assert_eq!(times(Way::Stripe, Coder::Here), [1.0, 2.0, 0.0, 8.0, 16.0, 16.0 * 32.0, 64.0]);
            assert_eq!(times(Way::Stripe, Coder::Master), [1.0, 2.0, 4.0, 8.0, 16.0, 14.0 * 32.0, 64.0]);
            assert_eq!(times(Way::Inline, Coder::Here), [1.0, 2.0, 0.0, 0.0, 0.0, 4.0 * 32.0, 64.0]);
        }
    }

    /// A record of 1200 bytes in 4+2: blocks of 300.
    #[test]
    fn the_wire_by_way_and_coder() {
        let small =
            Setting { record_bytes: 1200, client_link: link(100.0, 1.0), store_link: link(200.0, 10.0), ..USUAL };
        let none = Constants::default();
        let times = |predict: fn(&Constants, &Setting) -> StepTimes, way, coder| {
            let times = predict(&none, &Setting { way, coder, ..small });
            (times.metadata, times.transfer, times.distribution)
        };
        // The client's link carries six blocks.
        assert_eq!(times(steps, Way::Stripe, Coder::Here), (1.0, 0.0, 2.0 + 10.0 + 18.0));
        assert_eq!(times(paper, Way::Stripe, Coder::Here), (1.0, 0.0, 10.0 + 1.5));
        // The client's link carries the record, the Master's five blocks.
        assert_eq!(times(steps, Way::Stripe, Coder::Master), (1.0, 1.0 + 12.0, 1.0 + 20.0 + 7.5));
        assert_eq!(times(paper, Way::Stripe, Coder::Master), (1.0, 1.0 + 12.0, 10.0 + 1.5));
        // The metadata server's link carries four records, half of one beside the next call.
        assert_eq!(times(steps, Way::Inline, Coder::Here), (1.0 + 12.0 + 3.0, 0.0, 10.0 + 21.0));
        // What an idle link lets through at once takes no time, for each way that is waited for.
        let bursts = |link: Link| Link { burst_bytes: 600.0, ..link };
        let idle = Setting { client_link: bursts(small.client_link), store_link: bursts(small.store_link), ..small };
        let inline = steps(&none, &Setting { way: Way::Inline, ..idle });
        assert_eq!((inline.metadata, inline.distribution), (1.0 + 6.0 + 3.0, 10.0 + 18.0));
        assert_eq!(steps(&none, &idle).distribution, 2.0 + 10.0 + 12.0);
        // One slow store holds up a fast client.
        let slow = Setting { client_link: Link::default(), store_link: link(3.0, 0.0), ..small };
        assert_eq!(steps(&none, &slow).distribution, 100.0);
    }

    /// The processors send while a slower link is busy, so its time counts from there on.
    #[test]
    fn sending_goes_on_beside_a_slow_link() {
        let slow = Setting { record_bytes: 1200, client_link: link(100.0, 0.0), store_link: link(1e9, 0.0), ..USUAL };
        let sending = Line { per_byte: 1.0 / 400.0, ..Line::default() };
        let constants = Constants { distribution: sending, connection: Some(400.0), ..Constants::default() };
        assert_eq!(steps(&constants, &slow).distribution, 18.0);
        let faster = Setting { client_link: link(1600.0, 0.0), ..slow };
        assert_eq!(steps(&constants, &faster).distribution, 4.5, "a connection carries no more");
    }

    #[test]
    fn processors_that_wait_are_cold() {
        let cold = Constants { slave: Line { cold: 1.0, ..line(1.0) }, ..Constants::default() };
        let slave = |bytes_per_second| {
            let link = link(bytes_per_second, 0.0);
            steps(&cold, &Setting { client_link: link, store_link: link, ..USUAL }).slave
        };
        assert!(slave(1e15) < 1.001 && slave(1e3) > 1.99);
        // DD takes a millisecond: 196,608 bytes.
        assert!((slave(196_608_000.0) - 1.5).abs() < 1e-9);
        assert_eq!(paper(&cold, &Setting { client_link: link(1e3, 0.0), ..USUAL }).slave, 1.0, "the paper has no such");
    }

    /// What grows with what.
    #[test]
    fn slopes_are_over_their_own_bytes() {
        let slope = Line { per_byte: 1.0, ..Line::default() };
        let all = Constants {
            client: slope,
            metadata: slope,
            transfer: slope,
            master: slope,
            parity: slope,
            distribution: slope,
            slave: slope,
            connection: None,
        };
        let still = Setting { record_bytes: 1200, client_link: Link::default(), store_link: Link::default(), ..USUAL };
        assert_eq!(steps(&all, &still).as_array(), [1200.0, 1200.0, 0.0, 1200.0, 2400.0, 1800.0, 300.0]);
        let wide = Setting { k: 8, m: 4, stores: 12, ..still };
        assert_eq!(steps(&all, &wide).as_array(), [1200.0, 1200.0, 0.0, 1200.0, 4800.0, 1800.0, 150.0]);
        let inline = Setting { way: Way::Inline, ..still };
        assert_eq!(steps(&all, &inline).as_array(), [1200.0, 1200.0, 0.0, 0.0, 0.0, 4800.0, 1200.0]);
    }

    #[test]
    fn a_faster_network_never_makes_a_record_slower() {
        let mut last = f64::INFINITY;
        for bits in [1e9, 1e10, 4e10, 1e11, 1e15] {
            for coder in [Coder::Here, Coder::Master] {
                let fast = Link::of_bits(bits, 0.0);
                let setting = Setting { client_link: fast, store_link: fast, coder, ..USUAL };
                assert!(paper(&constants(), &setting).total() <= steps(&constants(), &setting).total());
            }
            let fast = Link::of_bits(bits, 0.0);
            let total = steps(&constants(), &Setting { client_link: fast, store_link: fast, ..USUAL }).total();
            assert!(total <= last);
            last = total;
        }
    }
}
