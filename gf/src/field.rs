//! Scalar arithmetic in GF(2^8), polynomial 0x11D, generator 2 (`docs/format.md`, Field).
//! The tables are computed at compile time; every kernel's tables derive from these.

/// The field's reduction polynomial, x^8 + x^4 + x^3 + x^2 + 1.
pub const POLYNOMIAL: u16 = 0x11D;

const fn tables() -> ([u8; 512], [u8; 256]) {
    let (mut exp, mut log) = ([0; 512], [0; 256]);
    let (mut x, mut i) = (1u16, 0);
    while i < 255 {
        exp[i] = x as u8;
        exp[i + 255] = x as u8;
        log[x as usize] = i as u8;
        x <<= 1;
        if x & 0x100 != 0 {
            x ^= POLYNOMIAL;
        }
        i += 1;
    }
    (exp, log)
}

const EXP_LOG: ([u8; 512], [u8; 256]) = tables();
static EXP: [u8; 512] = EXP_LOG.0;
static LOG: [u8; 256] = EXP_LOG.1;

/// The product of two elements.
#[inline]
pub fn mul(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    EXP[LOG[a as usize] as usize + LOG[b as usize] as usize]
}

/// The inverse of a nonzero element.
///
/// # Panics
/// When `a` is zero.
#[inline]
pub fn inv(a: u8) -> u8 {
    assert!(a != 0, "zero has no inverse");
    EXP[255 - LOG[a as usize] as usize]
}

/// `a` to the power `e`; anything to the power 0 is 1.
pub fn power(a: u8, e: usize) -> u8 {
    match (a, e) {
        (_, 0) => 1,
        (0, _) => 0,
        _ => EXP[LOG[a as usize] as usize * (e % 255) % 255],
    }
}

const fn mul_const(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    EXP_LOG.0[EXP_LOG.1[a as usize] as usize + EXP_LOG.1[b as usize] as usize]
}

const fn products() -> [[u8; 256]; 256] {
    let (mut all, mut a) = ([[0; 256]; 256], 0);
    while a < 256 {
        let mut b = 0;
        while b < 256 {
            all[a][b] = mul_const(a as u8, b as u8);
            b += 1;
        }
        a += 1;
    }
    all
}

/// All products: that of a and b at `[a][b]`.
pub(crate) static PRODUCTS: [[u8; 256]; 256] = products();

/// Products with the 16 low and the 16 high nibbles, for byte shuffles:
/// `[c * 0..16, c * 0x00, 0x10 .. 0xF0]`.
pub const fn nibble_tables(c: u8) -> [u8; 32] {
    let mut table = [0; 32];
    let mut i = 0;
    while i < 16 {
        table[i] = mul_const(c, i as u8);
        table[16 + i] = mul_const(c, (i << 4) as u8);
        i += 1;
    }
    table
}

/// The 8x8 bit matrix of multiplication by `c` in the order that `GF2P8AFFINEQB` reads: byte 7-i
/// selects the bits of the input whose sum is bit i of the output.
pub const fn affine_matrix(c: u8) -> u64 {
    let mut matrix = 0u64;
    let mut column = 0;
    while column < 8 {
        let product = mul_const(c, 1 << column);
        let mut row = 0;
        while row < 8 {
            if product >> row & 1 == 1 {
                matrix |= 1 << ((7 - row) * 8 + column);
            }
            row += 1;
        }
        column += 1;
    }
    matrix
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_axioms_hold_for_all_pairs() {
        for a in 0..=255u8 {
            for b in 0..=255u8 {
                let mut product = 0u16;
                for bit in 0..8 {
                    if b >> bit & 1 == 1 {
                        product ^= (a as u16) << bit;
                    }
                }
                for bit in (8..16).rev() {
                    if product >> bit & 1 == 1 {
                        product ^= POLYNOMIAL << (bit - 8);
                    }
                }
                assert_eq!(mul(a, b) as u16, product);
            }
            if a != 0 {
                assert_eq!(mul(a, inv(a)), 1);
                assert_eq!(power(a, 255), 1);
            }
        }
        assert_eq!(power(0, 0), 1);
        assert_eq!(power(2, 8), 0x1D);
    }
}
