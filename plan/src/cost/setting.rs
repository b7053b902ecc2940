//! What a prediction is for, and the constants that it uses.

use crate::coding::Coder;
use serde::{Deserialize, Serialize};

/// A time that grows with a size: `fixed + per_byte · bytes`, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Seconds for each record.
    pub fixed: f64,
    /// Seconds for each byte.
    pub per_byte: f64,
    /// Seconds more for each record where the processors waited for the wire all the time: their
    /// caches are cold, and they sleep more deeply.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cold: f64,
}

impl Line {
    /// The time of so many bytes on processors that do not wait. It is not negative, also where a
    /// fit is.
    pub fn at(&self, bytes: f64) -> f64 {
        self.after(0.0, bytes)
    }

    /// The same on processors that wait for a part of the time, 0 to 1.
    pub fn after(&self, waiting: f64, bytes: f64) -> f64 {
        (self.fixed + self.per_byte * bytes + self.cold * waiting).max(0.0)
    }
}

/// Which way a synced record takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// Into the metadata: m+2 mirrors of the journal get the data.
    Inline,
    /// Into a stripe: k+m stores get a block each.
    Stripe,
}

/// The constants of one way and one side that codes, without the time on the wire. Each [`Line`]
/// is over what it says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Constants {
    /// CT, over the bytes of the record.
    pub client: Line,
    /// MT, over the bytes of the record.
    pub metadata: Line,
    /// DT, over the bytes of the record.
    pub transfer: Line,
    /// MP, over the bytes of the record.
    pub master: Line,
    /// PC, over the bytes of the record times m: each byte of data goes into m parities.
    pub parity: Line,
    /// DD, over the bytes that are distributed, see [`Setting::distributed_bytes`]. What is fixed
    /// is for each message, see [`Setting::messages`].
    pub distribution: Line,
    /// SP, over the bytes that one slave gets, see [`Setting::slave_bytes`].
    pub slave: Line,
    /// What one plain TCP connection of the machine carries where no link limits it, in bytes a
    /// second: the processors send at that speed, also while a slower link is busy. None if that
    /// was not measured.
    pub connection: Option<f64>,
}

impl Constants {
    /// The constants of a stream without syncs: many records share a stripe, and many stripes a
    /// sync and a transaction, so only what grows with the bytes is left of those steps. A write
    /// call is still one for each record.
    #[must_use]
    pub fn of_stream(&self) -> Self {
        let long = |line: Line| Line { fixed: 0.0, cold: 0.0, ..line };
        Self {
            client: self.client,
            metadata: Line::default(),
            transfer: long(self.transfer),
            master: long(self.master),
            parity: long(self.parity),
            distribution: long(self.distribution),
            slave: long(self.slave),
            connection: self.connection,
        }
    }
}

/// A link of one machine; both directions at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// None for a link that does not limit.
    pub bytes_per_second: Option<f64>,
    /// The time of an empty message and its answer.
    pub round_trip_seconds: f64,
    /// What it lets through at once after it was idle, as limits do that a bench sets. 0 of a real
    /// link.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub burst_bytes: f64,
}

fn is_zero(bytes: &f64) -> bool {
    *bytes == 0.0
}

impl Link {
    /// A link of so many bits a second, as networks are named: 10G is 10^10.
    pub fn of_bits(bits_per_second: f64, round_trip_seconds: f64) -> Self {
        Self { bytes_per_second: Some(bits_per_second / 8.0), round_trip_seconds, burst_bytes: 0.0 }
    }

    /// The time on the wire, without the way there, of a link that is always busy.
    pub fn wire(&self, bytes: f64) -> f64 {
        self.bytes_per_second.map_or(0.0, |speed| bytes / speed)
    }

    /// The same of a link that was idle before.
    pub fn wire_after_pause(&self, bytes: f64) -> f64 {
        self.wire((bytes - self.burst_bytes).max(0.0))
    }
}

/// The code, the record, the servers and the network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// Data blocks of a stripe.
    pub k: u32,
    /// Parity blocks of a stripe.
    pub m: u32,
    /// R.
    pub record_bytes: u64,
    /// Where a record goes.
    pub way: Way,
    /// Who codes.
    pub coder: Coder,
    /// Stores, each on a machine of its own.
    pub stores: u32,
    /// Chunk sets that one client fills at once: it uses at most so many times k+m stores.
    pub open_sets: u32,
    /// The link of each client.
    pub client_link: Link,
    /// The link of each store and of the metadata server.
    pub store_link: Link,
    /// Processor cores of a client.
    pub client_cores: f64,
    /// Processor cores of each store.
    pub store_cores: f64,
    /// What the disks of one store write; None for disks that do not limit.
    pub disk_bytes_per_second: Option<f64>,
}

impl Setting {
    /// # Errors
    /// What cannot be.
    pub fn check(&self) -> Result<(), String> {
        let positive = |value: f64| value.is_finite() && value > 0.0;
        let link = |link: &Link| {
            link.bytes_per_second.is_none_or(positive)
                && link.round_trip_seconds.is_finite()
                && link.round_trip_seconds >= 0.0
                && link.burst_bytes.is_finite()
                && link.burst_bytes >= 0.0
        };
        if self.k == 0 {
            return Err("a code has at least one data block".into());
        }
        let Some(blocks) = self.k.checked_add(self.m) else { return Err("a code has at most 2^32 - 1 blocks".into()) };
        if self.stores < blocks {
            return Err(format!("{}+{} needs {blocks} stores; there are {}", self.k, self.m, self.stores));
        }
        if self.record_bytes == 0 || self.open_sets == 0 {
            return Err("a record has at least one byte, and a client fills at least one chunk set".into());
        }
        if !link(&self.client_link) || !link(&self.store_link) || !self.disk_bytes_per_second.is_none_or(positive) {
            return Err(
                "the speed of a link or a disk is more than 0, and round trip and burst are not negative".into()
            );
        }
        if !positive(self.client_cores) || !positive(self.store_cores) {
            return Err("there is more than 0 of a processor core".into());
        }
        Ok(())
    }

    /// k+m.
    pub fn blocks(&self) -> f64 {
        f64::from(self.k) + f64::from(self.m)
    }

    /// R.
    pub fn record(&self) -> f64 {
        self.record_bytes as f64
    }

    /// The bytes of one block: R/k.
    pub fn block_bytes(&self) -> f64 {
        self.record() / f64::from(self.k)
    }

    /// The bytes that one slave gets: R/k of a stripe, R of a record in the metadata.
    pub fn slave_bytes(&self) -> f64 {
        match self.way {
            Way::Inline => self.record(),
            Way::Stripe => self.block_bytes(),
        }
    }

    /// How many slaves get data over the network: m+2 mirrors of the journal from the metadata
    /// server, k+m stores from a client, k+m-1 from a Master, which keeps one block itself.
    pub fn slaves(&self) -> f64 {
        match (self.way, self.coder) {
            (Way::Inline, _) => f64::from(self.m) + 2.0,
            (Way::Stripe, Coder::Here) => self.blocks(),
            (Way::Stripe, Coder::Master) => self.blocks() - 1.0,
        }
    }

    /// How many messages a record makes to slaves: with its data, to sync a stripe, and with the
    /// records of the journal that name a stripe to its m+2 mirrors.
    pub fn messages(&self) -> f64 {
        match self.way {
            Way::Inline => self.slaves(),
            Way::Stripe => 2.0 * self.slaves() + f64::from(self.m) + 2.0,
        }
    }

    /// The bytes of a record that are distributed to slaves.
    pub fn distributed_bytes(&self) -> f64 {
        self.slaves() * self.slave_bytes()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// 4+2 at 10G with 128 KiB records.
    pub(in crate::cost) const USUAL: Setting = Setting {
        k: 4,
        m: 2,
        record_bytes: 131_072,
        way: Way::Stripe,
        coder: Coder::Here,
        stores: 6,
        open_sets: 1,
        client_link: Link { bytes_per_second: Some(1.25e9), round_trip_seconds: 0.0, burst_bytes: 0.0 },
        store_link: Link { bytes_per_second: Some(1.25e9), round_trip_seconds: 0.0, burst_bytes: 0.0 },
        client_cores: 1.0,
        store_cores: 1.0,
        disk_bytes_per_second: None,
    };

    #[test]
    fn bytes_by_way_and_coder() {
        let bytes = |way, coder| {
            let setting = Setting { way, coder, ..USUAL };
            (setting.slave_bytes(), setting.distributed_bytes(), setting.messages())
        };
        assert_eq!(bytes(Way::Stripe, Coder::Here), (32_768.0, 6.0 * 32_768.0, 16.0));
        assert_eq!(bytes(Way::Stripe, Coder::Master), (32_768.0, 5.0 * 32_768.0, 14.0));
        assert_eq!(bytes(Way::Inline, Coder::Here), (131_072.0, 4.0 * 131_072.0, 4.0));
    }

    #[test]
    fn a_stream_pays_by_the_byte() {
        let both = Line { fixed: 1.0, per_byte: 2.0, cold: 3.0 };
        let bytes = Line { per_byte: 2.0, ..Line::default() };
        let all = Constants {
            client: both,
            metadata: both,
            transfer: both,
            master: both,
            parity: both,
            distribution: both,
            slave: both,
            connection: None,
        };
        let Constants { client, metadata, transfer, master, parity, distribution, slave, .. } = all.of_stream();
        assert_eq!((client, metadata), (both, Line::default()));
        assert_eq!([transfer, master, parity, distribution, slave], [bytes; 5]);
    }

    #[test]
    fn lines_and_links() {
        let line = Line { fixed: 2.0, per_byte: 0.5, cold: 3.0 };
        assert_eq!((line.at(4.0), line.after(0.5, 4.0)), (4.0, 5.5));
        assert_eq!(Line { fixed: -2.0, ..line }.at(2.0), 0.0);
        assert_eq!(Link::of_bits(1e10, 0.0).wire(1.25e9), 1.0);
        assert_eq!(Link::default().wire(1e30), 0.0);
        let bursts = Link { burst_bytes: 5000.0, ..Link::of_bits(8e3, 0.0) };
        assert_eq!([4000.0, 5000.0, 7000.0].map(|bytes| bursts.wire_after_pause(bytes)), [0.0, 0.0, 2.0]);
        assert_eq!(bursts.wire(5000.0), 5.0, "nothing is saved up while it is busy");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert_eq!(USUAL.check(), Ok(()));
        let slow = Link { bytes_per_second: Some(0.0), ..Link::default() };
        let back = Link { round_trip_seconds: -1.0, ..Link::default() };
        let less = Link { burst_bytes: -1.0, ..Link::default() };
        let odd = Link { round_trip_seconds: f64::NAN, ..Link::default() };
        for wrong in [
            Setting { k: 0, ..USUAL },
            Setting { stores: 5, ..USUAL },
            Setting { m: u32::MAX, ..USUAL },
            Setting { record_bytes: 0, ..USUAL },
            Setting { open_sets: 0, ..USUAL },
            Setting { client_link: slow, ..USUAL },
            Setting { store_link: back, ..USUAL },
            Setting { store_link: odd, ..USUAL },
            Setting { store_link: less, ..USUAL },
            Setting { client_cores: 0.0, ..USUAL },
            Setting { store_cores: f64::INFINITY, ..USUAL },
            Setting { disk_bytes_per_second: Some(f64::NAN), ..USUAL },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }
}
