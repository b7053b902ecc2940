//! `crs`, the fast one: Cauchy matrices over GF(2^4) (k+m <= 16) or GF(2^5) (k+m <= 32) chosen for
//! few XORs.
//!
//! The choice is part of the code's identity: `crs_points.txt` holds the Cauchy points of every
//! shape with m > 3 and never changes; m <= 3 follows from a rule. The test `crs_table` made the
//! file and says how.

use crate::linear::Matrix;
use crate::xor::bits::BitMatrix;

/// Cauchy points by shape: `k m points`, the m row points first, base 32.
const TABLE: &str = include_str!("crs_points.txt");

/// Bytes of a packet: four planes are a page, so that a region of every block is one page.
pub(crate) const PACKET: usize = 64;

/// Planes of a block.
pub(crate) fn planes(k: usize, m: usize) -> usize {
    if k + m <= 16 { 4 } else { 5 }
}

/// GF(2^w), w = 4 (polynomial 0x13) or 5 (0x25).
#[derive(Clone, Copy)]
struct Field {
    w: usize,
}

impl Field {
    fn double(self, a: u8) -> u8 {
        let polynomial: u8 = if self.w == 4 { 0x13 } else { 0x25 };
        let doubled = a << 1;
        if doubled >> self.w & 1 == 1 { doubled ^ polynomial } else { doubled }
    }

    fn mul(self, a: u8, b: u8) -> u8 {
        let mut power = a;
        let mut product = 0;
        for bit in 0..self.w {
            if b >> bit & 1 == 1 {
                product ^= power;
            }
            power = self.double(power);
        }
        product
    }

    fn inv(self, a: u8) -> u8 {
        (1..1 << self.w).find(|&b| self.mul(a, b) == 1).expect("nonzero")
    }

    /// Ones in the bit matrix of an element.
    fn ones(self, e: u8) -> u32 {
        std::iter::successors(Some(e), |&e| Some(self.double(e))).take(self.w).map(u8::count_ones).sum()
    }
}

/// The parity rows over GF(2^w).
fn elements(k: usize, m: usize) -> Matrix {
    let field = Field { w: planes(k, m) };
    if m <= 3 {
        return few(field, k, m);
    }
    let shape = format!("{k} {m} ");
    let line = TABLE.lines().find_map(|line| line.strip_prefix(&shape)).expect("every shape is in the table");
    let points: Vec<u8> = line.chars().map(|c| c.to_digit(32).expect("base 32") as u8).collect();
    cauchy(field, &points[..m], &points[m..])
}

/// Up to three rows 1, a, 1/a over distinct nonzero a of fewest ones: any square part is regular,
/// for it is a Vandermonde matrix up to the scaling of its columns.
fn few(field: Field, k: usize, m: usize) -> Matrix {
    let mut a: Vec<u8> = (1..1u8 << field.w).collect();
    a.sort_by_key(|&e| (field.ones(e) + if m > 2 { field.ones(field.inv(e)) } else { 0 }, e));
    a.truncate(k);
    let rows = [vec![1; k], a.clone(), a.iter().map(|&e| field.inv(e)).collect()];
    rows[..m].to_vec()
}

/// 1 / (x + y), with columns divided by their first entry and every other row multiplied by the
/// least element that gives it the fewest ones.
fn cauchy(field: Field, x: &[u8], y: &[u8]) -> Matrix {
    let row = |x_i: u8| y.iter().map(|y_j| field.mul(field.inv(x_i ^ y_j), x[0] ^ y_j)).collect::<Vec<u8>>();
    let lightest = |row: Vec<u8>| {
        let scaled = |s: u8| row.iter().map(|&e| field.mul(s, e)).collect::<Vec<u8>>();
        let weight = |s: &u8| scaled(*s).iter().map(|&e| field.ones(e)).sum::<u32>();
        scaled((1..1u8 << field.w).min_by_key(weight).expect("there are elements"))
    };
    x.iter().enumerate().map(|(i, &x_i)| if i == 0 { row(x_i) } else { lightest(row(x_i)) }).collect()
}

/// The parity planes over the data planes.
pub(crate) fn matrix(k: usize, m: usize) -> BitMatrix {
    let field = Field { w: planes(k, m) };
    BitMatrix::expand(&elements(k, m), field.w, |e| field.double(e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xor::optimise::program;

    /// Writes `crs_points.txt` again: `cargo test --release -p weft-ec crs_table -- --ignored
    /// --nocapture`. The points of a shape are the best of many random ones by ones in the matrix,
    /// then of the best few by XORs of the program.
    #[test]
    #[ignore = "makes the table, which never changes"]
    fn crs_table() {
        for blocks in 5..=32 {
            for m in 4..blocks {
                let k = blocks - m;
                let field = Field { w: planes(k, m) };
                let mut random = fastrand::Rng::with_seed((100 * k + m) as u64);
                let mut best: Vec<(u32, Vec<u8>)> = Vec::new();
                for _ in 0..1500 {
                    let mut points: Vec<u8> = (0..1u8 << field.w).collect();
                    random.shuffle(&mut points);
                    points.truncate(blocks);
                    let ones = cauchy(field, &points[..m], &points[m..]).concat().iter().map(|&e| field.ones(e)).sum();
                    best.push((ones, points));
                    if best.len() > 100 {
                        best.sort();
                        best.truncate(8);
                    }
                }
                best.sort();
                best.dedup();
                let xors = |points: &Vec<u8>| {
                    let elements = cauchy(field, &points[..m], &points[m..]);
                    program(&BitMatrix::expand(&elements, field.w, |e| field.double(e)), field.w, 2).xors()
                };
                let (_, points) = best.into_iter().take(6).min_by_key(|(_, p)| xors(p)).unwrap();
                let text: String = points.iter().map(|&p| char::from_digit(p.into(), 32).unwrap()).collect();
                println!("{k} {m} {text}");
            }
        }
    }
}
