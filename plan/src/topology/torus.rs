//! A torus network (paper 000, ExSTorus-FS, section 2.2): each server has coordinates such as
//! `4,2,7`, has links to its neighbours in each dimension, and the last one in a dimension is a
//! neighbour of the first. The distance is the number of links on the shortest way, the hops.

use crate::domain::Domain;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// No torus has more dimensions: a coordinate is a name of a domain, and those are eight.
const MAX_DIMENSIONS: usize = 8;

/// Where a server is in a torus.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Coordinates(Vec<u16>);

/// What are no coordinates, and no sizes of a torus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoTorus(pub(super) String);

impl fmt::Display for NoTorus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NoTorus {}

fn numbers(text: &str) -> Option<Vec<u16>> {
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse().ok())?;
    let numbers: Vec<u16> = text.split(',').map(digits).collect::<Option<_>>()?;
    (numbers.len() <= MAX_DIMENSIONS).then_some(numbers)
}

fn shown(numbers: &[u16], between: &str) -> String {
    numbers.iter().map(u16::to_string).collect::<Vec<_>>().join(between)
}

impl FromStr for Coordinates {
    type Err = NoTorus;

    fn from_str(text: &str) -> Result<Self, NoTorus> {
        let refused = || {
            let text: String = text.chars().take(64).collect();
            NoTorus(format!(
                "{text:?} is not a place in a torus; one is at most {MAX_DIMENSIONS} numbers such as 4,2,7"
            ))
        };
        numbers(text).map(Self).ok_or_else(refused)
    }
}

impl TryFrom<String> for Coordinates {
    type Error = NoTorus;

    fn try_from(text: String) -> Result<Self, NoTorus> {
        text.parse()
    }
}

impl From<Coordinates> for String {
    fn from(coordinates: Coordinates) -> Self {
        coordinates.to_string()
    }
}

impl fmt::Display for Coordinates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&self.0, ","))
    }
}

impl Coordinates {
    /// The failure domain of this place: each dimension is a level, so that servers with the same
    /// first coordinate, a plane of the torus, fail together at level 1.
    pub fn domain(&self) -> Domain {
        shown(&self.0, "/").parse().expect("numbers are names, and they are few")
    }
}

/// A torus: how many servers it has in each dimension.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Torus(Vec<u16>);

impl FromStr for Torus {
    type Err = NoTorus;

    fn from_str(text: &str) -> Result<Self, NoTorus> {
        let sizes = numbers(text).filter(|sizes| !sizes.contains(&0)).map(Self);
        sizes.ok_or_else(|| NoTorus("the sizes of a torus are at most 8 numbers above 0, such as 8,8,16".into()))
    }
}

impl TryFrom<String> for Torus {
    type Error = NoTorus;

    fn try_from(text: String) -> Result<Self, NoTorus> {
        text.parse()
    }
}

impl From<Torus> for String {
    fn from(torus: Torus) -> Self {
        torus.to_string()
    }
}

impl fmt::Display for Torus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&self.0, ","))
    }
}

impl Torus {
    /// The number of its places.
    pub fn count(&self) -> u128 {
        // Eight numbers of 16 bits.
        self.0.iter().map(|&size| u128::from(size)).product()
    }

    /// All its places: the last dimension is counted first.
    pub fn all(&self) -> impl Iterator<Item = Coordinates> + '_ {
        let next = |place: &Coordinates| {
            let mut next = place.0.clone();
            for (at, size) in next.iter_mut().zip(&self.0).rev() {
                *at += 1;
                if *at < *size {
                    return Some(Coordinates(next));
                }
                *at = 0;
            }
            None
        };
        std::iter::successors(Some(Coordinates(vec![0; self.0.len()])), next)
    }

    /// Whether a place is in it.
    pub fn has(&self, place: &Coordinates) -> bool {
        place.0.len() == self.0.len() && place.0.iter().zip(&self.0).all(|(at, size)| at < size)
    }

    /// The hops between two places in it that are as far from each other as can be.
    pub fn farthest(&self) -> u32 {
        self.0.iter().map(|size| u32::from(size / 2)).sum()
    }

    /// The hops between two places in it: in each dimension the shorter way round.
    pub fn hops(&self, a: &Coordinates, b: &Coordinates) -> u32 {
        let one = |((&a, &b), &size): ((&u16, &u16), &u16)| {
            let straight = a.abs_diff(b);
            u32::from(straight.min(size.saturating_sub(straight)))
        };
        a.0.iter().zip(&b.0).zip(&self.0).map(one).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn at(text: &str) -> Coordinates {
        text.parse().unwrap()
    }

    #[test]
    fn places_and_sizes_are_numbers() {
        for good in ["4,2,7", "0", "1,2,3,4,5,6,7,8", "65535"] {
            assert_eq!(good.parse::<Coordinates>().unwrap().to_string(), good);
        }
        for bad in ["", ",", "1,", "1,,2", "a", "-1", "+1", "65536", "1,2,3,4,5,6,7,8,9", "1.5", "1, 2"] {
            assert!(bad.parse::<Coordinates>().unwrap_err().to_string().contains("4,2,7"), "{bad}");
            assert!(bad.parse::<Torus>().is_err());
        }
        assert!("4,0".parse::<Torus>().is_err());
        let torus: Torus = "4,2".parse().unwrap();
        let inside = ["0,0", "3,1", "4,1", "3,2", "3", "1,1,1"].map(|place| torus.has(&at(place)));
        assert_eq!(inside, [true, true, false, false, false, false]);
        assert_eq!(at("4,2,7").domain().at(Some(2)), "4/2");
        let in_order: Vec<String> = torus.all().take(3).map(|place| place.to_string()).collect();
        assert_eq!(in_order, ["0,0", "0,1", "1,0"]);
    }

    /// All pairs of places of some tori: hops are the shortest ways over links, counted by walking.
    #[test]
    fn hops_are_the_shortest_ways() {
        for sizes in ["1", "2", "7", "5,4", "2,3,4", "3,1,2,2"] {
            let torus: Torus = sizes.parse().unwrap();
            let all: Vec<Coordinates> = torus.all().collect();
            assert_eq!(all.len() as u128, torus.count());
            for from in &all {
                assert_eq!(all.iter().map(|to| torus.hops(from, to)).max(), Some(torus.farthest()));
                let mut reached = BTreeMap::from([(from.clone(), 0u32)]);
                let mut edge = vec![from.clone()];
                for step in 1.. {
                    let neighbours = edge.iter().flat_map(|place| {
                        let torus = &torus;
                        (0..place.0.len()).flat_map(move |dimension| {
                            [1, torus.0[dimension] - 1].map(|by| {
                                let mut next = place.clone();
                                next.0[dimension] = (next.0[dimension] + by) % torus.0[dimension];
                                next
                            })
                        })
                    });
                    let new: Vec<Coordinates> = neighbours.filter(|next| !reached.contains_key(next)).collect();
                    reached.extend(new.iter().map(|place| (place.clone(), step)));
                    edge = new;
                    if edge.is_empty() {
                        break;
                    }
                }
                assert_eq!(reached.len(), all.len());
                assert!(all.iter().all(|to| torus.hops(from, to) == reached[to]), "{sizes} from {from}");
            }
        }
    }
}
