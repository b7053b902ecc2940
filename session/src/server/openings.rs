//! The openings of a volume: how far each one recovered the one before. A client that knows an
//! earlier opening learns from it which of its transactions are lost. What the machine of a server
//! is does not matter.

use crate::port::Opening;
use plan::TxId;
use serde::{Deserialize, Serialize};

/// The most openings that are remembered. A client that knows an older one may have lost all that
/// it did not sync.
const MAX_OPENINGS: usize = 256;

/// The last openings, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Openings {
    /// Each with the last transaction that was there when it began.
    last: Vec<(Opening, TxId)>,
    /// The last opening that may have lost something.
    lossy: u64,
}

impl Openings {
    /// A new opening found the transactions up to `found`. `closed` is the last opening that ended
    /// with everything durable.
    pub fn begin(&mut self, opening: Opening, found: TxId, closed: u64) {
        if self.last.last().is_none_or(|(before, _)| before.number != closed) {
            self.lossy = opening.number;
        }
        let from = (self.last.len() + 1).saturating_sub(MAX_OPENINGS);
        self.last.drain(..from);
        self.last.push((opening, found));
    }

    /// The current opening.
    pub fn current(&self) -> Opening {
        self.last.last().map_or_else(Opening::default, |(opening, _)| *opening)
    }

    /// The last opening that may have lost something, for clients that do not compare more.
    pub fn lossy(&self) -> u64 {
        self.lossy
    }

    /// The last transaction of an opening that all later ones found; `TxId::MAX` if there is no
    /// later one, 0 if it is not known.
    pub fn recovered(&self, known: &Opening) -> TxId {
        match self.last.iter().position(|(opening, _)| opening == known) {
            Some(at) => self.last[at + 1..].iter().map(|(_, found)| *found).min().unwrap_or(TxId::MAX),
            None => TxId(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opening(number: u64) -> Opening {
        Opening { number, id: [number as u8; 16] }
    }

    #[test]
    fn what_any_later_opening_did_not_find_is_lost() {
        let mut openings = Openings::default();
        for (number, found) in [(1, 0), (2, 70), (3, 55), (4, 90)] {
            openings.begin(opening(number), TxId(found), 0);
        }
        let recovered = |number| openings.recovered(&opening(number)).0;
        assert_eq!([1, 2, 3, 4, 5].map(recovered), [55, 55, 90, u64::MAX, 0]);
        assert_eq!(openings.recovered(&Opening { id: [9; 16], ..opening(3) }), TxId(0), "another history");
        assert_eq!(openings.recovered(&Opening::default()), TxId(0));
        assert_eq!((openings.current(), openings.lossy()), (opening(4), 4));
        openings.begin(opening(5), TxId(99), 4);
        assert_eq!(openings.lossy(), 4, "the one before ended with everything durable");
        for number in 6..1000 {
            openings.begin(opening(number), TxId(number), 0);
        }
        assert_eq!((openings.last.len(), openings.recovered(&opening(5))), (MAX_OPENINGS, TxId(0)));
        assert_eq!(openings.recovered(&opening(998)), TxId(999));
    }

    /// The bytes of the setting in the metadata, made from the rules of postcard 1.
    #[test]
    fn openings_have_fixed_bytes() {
        let openings = Openings { last: vec![(opening(3), TxId(300)), (opening(4), TxId(7))], lossy: 4 };
        let bytes = postcard::to_stdvec(&openings).unwrap();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let (third, fourth) = ("03".repeat(16), "04".repeat(16));
        assert_eq!(hex, format!("0203{third}ac0204{fourth}0704"));
        assert_eq!(postcard::from_bytes(&bytes), Ok(openings));
    }
}
